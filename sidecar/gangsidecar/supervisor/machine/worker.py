"""Take news of the worker: starts and ends of its processes, their output, calls of the framework API; and pings.

An end counts as stopped if anything had ordered a stop before it: such an end is never a fault and never a success.

A call of the framework (checkpoints, progress, milestones, restart requests) counts for attempt N from the start of N's
worker until its last process is gone or, if the worker ended by itself, until the next attempt. A call for any other
attempt changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor.machine import checks
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.supervisor.machine.directives import settle
from gangsidecar.supervisor.machine.events import Exited, Save, Send, Started, Terminate, TreeGone, WarmStarted
from gangsidecar.supervisor.machine.history import Steps
from gangsidecar.supervisor.machine.state import Result, State
from gangsidecar.supervisor.machine.stop import (
    PROGRESS_MS,
    drop_parked,
    end_parked,
    hurry,
    report_progress,
    signal_tree,
)
from gangsidecar.wire import Phase


def record_start(state: State, now_ms: int, event: Started) -> Result:
    """Record the start of a process: the age of Running counts from the last."""
    if state.phase is not Phase.RUNNING:
        return state, ()
    return replace(state, phase_since=now_ms, warm_start=event.warm_start), (Send(),)


def warm_started(state: State, _now_ms: int, event: WarmStarted) -> Result:
    """What has started below the worker's command is news of this attempt, and of no other."""
    if state.phase is not Phase.RUNNING or event.warm_start.attempt != state.ran:
        return state, ()
    return replace(state, warm_start=event.warm_start), (Send(),)


def record_exit(state: State, now_ms: int, event: Exited) -> Result:
    """Record how a process ended. One that had parked belongs to no attempt: it is only no longer there."""
    if any(local_rank == event.local_rank for local_rank, _ in state.parked):
        return drop_parked(state, event.local_rank), ()
    main = next((one for one in state.mains if one[0] == event.local_rank), None)
    if not state.alive or main is None:
        return state, ()
    end = wire.End(
        attempt=state.ran,
        local_rank=event.local_rank,
        age_ms=0,
        rank=main[1],
        exit_code=event.exit_code if event.signal is None else None,
        signal=event.signal,
        stopped=state.stop is not None or state.terminated_at is not None,
        oom=event.oom,
        hidden=event.hidden,
        message=event.message,
    )
    at = state.mains.index(main)
    mains = state.mains[:at] + state.mains[at + 1 :]
    state = replace(state, mains=mains, history=histories.add_end(state.history, now_ms, end))
    return hurry(state, now_ms), (Send(), Save())


def log_matched(state: State, _now_ms: int, event: wire.LogMatch) -> Result:
    """Keep the first match of each pattern. It ends and restarts nothing: it says more of an end."""
    matches = state.log_matches
    if event.attempt != state.ran or len(matches) == wire.MAX_LOG_PATTERNS:
        return state, ()
    if any(one.pattern == event.pattern for one in matches):
        return state, ()
    return replace(state, log_matches=(*matches, event)), (Send(),)


def tree_gone(state: State, now_ms: int, _event: TreeGone) -> Result:
    """A stop is complete, or a worker has ended by itself and waits for the gang."""
    if not state.alive:
        return state, ()
    if state.check is not None:
        return checks.check_over(state, now_ms)
    stop = state.stop
    if stop is not None and stop.of_parked:
        return settle(replace(state, alive=False, stop=None), now_ms)
    taken = "" if state.stop is None or not state.stop.taking else state.stop.stacks
    stacks = wire.Stacks(state.ran, taken) if taken else state.stacks
    gone = replace(state, alive=False, mains=(), stop=None, gone_at=now_ms, stacks=stacks)
    if stop is not None:
        killed_ms = 0
        if stop.killed_at is not None and stop.signal_at is None and not stop.leftover:
            killed_ms = max(0, stop.killed_at - stop.since)
        gone = replace(gone, stop_ms=now_ms - stop.since, killed_ms=killed_ms or None)
    return settle(gone, now_ms)


def terminate(state: State, now_ms: int, _event: Terminate) -> Result:
    """Report it first, so that all ranks save together. Nothing is started any more."""
    if state.terminated_at is not None:
        return state, ()
    state = replace(state, terminated_at=now_ms, looking=False)
    if state.parked and not state.alive:
        return end_parked(state, now_ms)
    return state, (Send(),)


def record_ping(state: State, now_ms: int, event: wire.Ping) -> Result:
    """Record that the controller is there. The lease counts from the report that it got, not from its ping.

    A time to come is that of a session before the machine was restarted.
    """
    heard = event.heard_ms if event.heard_ms <= now_ms else 0
    return replace(state, pinged_at=now_ms, leased_at=max(state.leased_at, heard)), ()


def framework_call(state: State, now_ms: int, event: wire.FrameworkMessage) -> Result:
    """A call that the framework API passes on. Checkpoints and corruption count also in a stop."""
    if not _is_current(state, event.attempt):
        return state, ()
    match event:
        case wire.Progress():
            return _progress(state, now_ms, event)
        case wire.Watching():
            return _watching(state, now_ms, event)
        case wire.Checkpoint():
            history = histories.add_checkpoint(state.history, event)
        case wire.Dropped():
            history = histories.drop_checkpoint(state.history, event)
        case wire.Verified():
            history = histories.add_verified(state.history, event)
        case wire.Reached():
            history = histories.add_reached(state.history, now_ms, event)
        case wire.Request():
            return replace(state, history=histories.add_request(state.history, now_ms, event)), (Send(),)
        case wire.Corruption():
            return replace(state, history=histories.add_corruption(state.history, now_ms, event)), (Send(),)
    if history == state.history:
        return state, ()
    return replace(state, history=history), (Send(),) if isinstance(event, wire.Reached) else (Send(), Save())


def _progress(state: State, now_ms: int, event: wire.Progress) -> Result:
    """The first step and each change of phase cause a report at once, steps alone once a second.

    The last of several steps must not wait for the next one: a rank that hangs makes none.
    """
    old, history = state.history.progress, histories.add_progress(state.history, now_ms, event)
    news = old is None or _marks(old) != _marks(history.progress)
    if not news and state.progress_sent_at is not None and now_ms - state.progress_sent_at < PROGRESS_MS:
        return replace(state, history=history, progress_held=True), ()
    return report_progress(replace(state, history=history), now_ms)


def _watching(state: State, now_ms: int, event: wire.Watching) -> Result:
    """With no reader left that acts on a stop first, its signal waits no longer."""
    state = replace(state, readers=event.readers)
    stop = state.stop
    is_waiting = stop is not None and stop.killed_at is None and stop.signal_at is not None and not stop.taking
    return signal_tree(state, now_ms) if is_waiting and not state.readers else (state, ())


def _is_current(state: State, attempt: int) -> bool:
    is_there = state.alive and state.check is None and not (state.stop is not None and state.stop.of_parked)
    return attempt == state.ran and state.ran > 0 and (is_there or state.phase is Phase.RUNNING)


def _marks(steps: Steps | None) -> tuple[object, ...]:
    return () if steps is None else (steps.phase, steps.first_step, steps.first_ms)
