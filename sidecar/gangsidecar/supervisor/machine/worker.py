"""Starts and ends of the worker's processes, what was found in their output, and SIGTERM to the supervisor.

An end counts as stopped if anything had ordered a stop before it: such an end is never a fault and never a success.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.supervisor.machine import parking
from gangsidecar.supervisor.machine.directives import settle
from gangsidecar.supervisor.machine.events import Exited, Save, Send, Started, Terminate, TreeGone
from gangsidecar.supervisor.machine.state import Result, State
from gangsidecar.supervisor.machine.stop import end_parked
from gangsidecar.wire import Phase


def started(state: State, now_ms: int, event: Started) -> Result:
    """The age of Running counts from the last start of a process."""
    if state.phase is not Phase.RUNNING:
        return state, ()
    return replace(state, phase_since=now_ms, warm_start=event.warm_start), (Send(),)


def exited(state: State, now_ms: int, event: Exited) -> Result:
    """Record how a process ended. One that had parked belongs to no attempt: it is only no longer there."""
    if any(local_rank == event.local_rank for local_rank, _ in state.parked):
        return parking.gone(state, event.local_rank), ()
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
    return parking.hurry(state, now_ms), (Send(), Save())


def log_matched(state: State, _now_ms: int, event: wire.LogMatch) -> Result:
    """Keep the first match of each pattern. It ends and restarts nothing: it says more of an end."""
    known = state.log_matches
    if event.attempt != state.ran or len(known) == wire.MAX_LOG_PATTERNS:
        return state, ()
    if any(one.pattern == event.pattern for one in known):
        return state, ()
    return replace(state, log_matches=(*known, event)), (Send(),)


def tree_gone(state: State, now_ms: int, _event: TreeGone) -> Result:
    """A stop is complete, or a worker has ended by itself and waits for the gang."""
    if not state.alive:
        return state, ()
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
