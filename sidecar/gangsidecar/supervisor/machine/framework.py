"""What the framework API passes on (checkpoints, progress, loading, restart requests), and pings.

A call counts for attempt N from the start of N's worker until its last process is gone or, if the worker ended by
itself, until the next attempt. A call for any other attempt changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.supervisor.machine.events import Save, Send
from gangsidecar.supervisor.machine.history import Steps
from gangsidecar.supervisor.machine.state import Result, State
from gangsidecar.supervisor.machine.stop import PROGRESS_MS, report_progress, signal_tree
from gangsidecar.wire import Phase


def ping(state: State, now_ms: int, event: wire.Ping) -> Result:
    """The controller is there. The lease counts from the report that it has heard, not from when its ping arrives.

    A time to come is that of a session before the machine was restarted.
    """
    heard = event.heard_ms if event.heard_ms <= now_ms else 0
    return replace(state, pinged_at=now_ms, leased_at=max(state.leased_at, heard)), ()


def checkpoint(state: State, _now_ms: int, event: wire.Checkpoint) -> Result:
    """Taken also while the worker is being stopped: that is what the grace is for."""
    if not _is_current(state, event.attempt):
        return state, ()
    history = histories.add_checkpoint(state.history, event)
    if history == state.history:
        return state, ()
    return replace(state, history=history), (Send(), Save())


def dropped(state: State, _now_ms: int, event: wire.Dropped) -> Result:
    """A rank writes the checkpoint again, or has deleted it."""
    if not _is_current(state, event.attempt):
        return state, ()
    history = histories.drop_checkpoint(state.history, event)
    if history == state.history:
        return state, ()
    return replace(state, history=history), (Send(), Save())


def progress(state: State, now_ms: int, event: wire.Progress) -> Result:
    """The first step and each change of phase cause a report at once, steps alone once a second.

    The last of several steps must not wait for the next one: a rank that hangs makes none.
    """
    if not _is_current(state, event.attempt):
        return state, ()
    old, history = state.history.progress, histories.add_progress(state.history, now_ms, event)
    news = old is None or _marks(old) != _marks(history.progress)
    if not news and state.progress_sent_at is not None and now_ms - state.progress_sent_at < PROGRESS_MS:
        return replace(state, history=history, progress_held=True), ()
    return report_progress(replace(state, history=history), now_ms)


def loaded(state: State, now_ms: int, event: wire.Loaded) -> Result:
    """A rank has loaded the restore point."""
    if not _is_current(state, event.attempt):
        return state, ()
    history = histories.add_loaded(state.history, now_ms, event)
    if history == state.history:
        return state, ()
    return replace(state, history=history), (Send(),)


def watching(state: State, now_ms: int, event: wire.Watching) -> Result:
    """So many want to hear of a stop first; with none left, its signal waits no longer."""
    if not _is_current(state, event.attempt):
        return state, ()
    state = replace(state, readers=event.readers)
    stop = state.stop
    is_waiting = stop is not None and stop.killed_at is None and stop.signal_at is not None and not stop.taking
    return signal_tree(state, now_ms) if is_waiting and not state.readers else (state, ())


def request(state: State, now_ms: int, event: wire.Request) -> Result:
    """The framework asks for a restart."""
    if not _is_current(state, event.attempt):
        return state, ()
    return replace(state, history=histories.add_request(state.history, now_ms, event)), (Send(),)


def _is_current(state: State, attempt: int) -> bool:
    is_there = state.alive and not (state.stop is not None and state.stop.of_parked)
    return attempt == state.ran and state.ran > 0 and (is_there or state.phase is Phase.RUNNING)


def _marks(steps: Steps | None) -> tuple[object, ...]:
    return () if steps is None else (steps.phase, steps.first_step, steps.first_ms)
