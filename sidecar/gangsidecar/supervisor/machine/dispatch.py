"""One step of the machine: what is due comes first, then the event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangsidecar import wire
from gangsidecar.supervisor.machine import directives, framework, parking, stop, worker
from gangsidecar.supervisor.machine.events import (
    Effects,
    Event,
    Exited,
    Parkable,
    Parked,
    PortsFound,
    RestoreMissing,
    RestoreSeen,
    StacksTaken,
    Started,
    Terminate,
    TreeGone,
)
from gangsidecar.supervisor.machine.state import Result, State
from gangsidecar.wire import Phase

_HANDLERS: dict[type, Callable[[State, int, Any], Result]] = {
    wire.Directive: directives.directive,
    PortsFound: directives.ports_found,
    RestoreSeen: directives.restore_seen,
    RestoreMissing: directives.restore_missing,
    StacksTaken: stop.stacks_taken,
    Started: worker.started,
    Exited: worker.exited,
    TreeGone: worker.tree_gone,
    Parkable: parking.parkable,
    Parked: parking.parked,
    Terminate: worker.terminate,
    wire.Ping: framework.ping,
    wire.Checkpoint: framework.checkpoint,
    wire.Dropped: framework.dropped,
    wire.Loaded: framework.loaded,
    wire.Progress: framework.progress,
    wire.Request: framework.request,
    wire.Watching: framework.watching,
    wire.LogMatch: worker.log_matched,
}
"""A Tick has none: it only lets the due timers run."""


def step(state: State, now_ms: int, event: Event) -> Result:
    """What the event changes, and what must be done about it. Never raises; an event without meaning changes nothing.

    Due timers come before the event, so a late ping doesn't undo an isolation. They come after the news that a process
    has ended: an end that was there before the stop is a natural one.
    """
    effects: Effects = ()
    if not isinstance(event, (Exited, TreeGone)):
        timer = stop.next_timer(state)
        while timer is not None and timer[0] <= now_ms:
            state, more = timer[1](state, now_ms)
            effects += more
            timer = stop.next_timer(state)
    handler = _HANDLERS.get(type(event))
    if handler is None or state.phase is Phase.DONE:
        return state, effects
    state, more = handler(state, now_ms, event)
    return state, effects + more


def deadline(state: State) -> int | None:
    """When a Tick is wanted next; None = never."""
    timer = stop.next_timer(state)
    return None if timer is None else timer[0]
