"""The rules of a supervisor as a state machine. Pure: time is an argument.

Invariant: **a worker of attempt N starts at most once in a session, and no two workers run at once.** In formulas::

    Run(N) starts a worker  only if  Run.session = session  and  phase = Ready  and  the attempt of Ready = N
    Ready(N) is reached     only if  no process of any worker is left, but parked ones without a child (``stop.py``)
    a directive is obeyed   only if  order(new) > order(accepted)  and  accepted is not Finish
                            where    order = (attempt, Hold < Run < Finish)

    Run of searched output  starts a worker only when what is parked is gone as well
    Run starts a worker     only if  now < leased_at + isolation_ms
                            where    leased_at = when the newest report was sent that a controller has heard

So the machine never goes back. In each state at most one timer is next (``stop.py``)::

    stacks are taken    the stop goes on at  max(stop.since + OTHERS_MS, when they are there), when all members have
                        theirs, or at        stop.since + min(STACKS_MS, grace_ms / 2)
    a stop is announced SIGTERM at    stop.since + min(NOTICE_MS, grace_ms / 2), or when no reader is left
    a stop began        SIGKILL at    min over its directives of (stop.since + grace_ms)
    SIGKILL was sent    Stuck at      stop.killed_at + STUCK_MS
    a worker is alive   stop at       min(terminated_at + TERMINATE_MS, leased_at + isolation_ms)
    a check is alive    SIGKILL at    min(check.since + timeout_ms, terminated_at + TERMINATE_MS,
                                          leased_at + isolation_ms)
    some are parked     SIGKILL at    min(parked_at + PARKED_MS, leased_at + isolation_ms)
    nothing is alive    Done at       min(max(pinged_at, gone_at) + orphan_ms,
                                          max(terminated_at, gone_at) + TERMINATE_MS)

:func:`step` takes one event and returns the next state and the effects, in the order in which they must be carried out.
It has no clock, I/O, randomness or log, and it must never raise. Times are milliseconds of CLOCK_BOOTTIME. The driver
must reap ended processes before it passes an event that may stop a worker: an end that came before a stop is natural.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from gangsidecar import wire
from gangsidecar.supervisor.machine import checks, directives, stop, worker
from gangsidecar.supervisor.machine.events import (
    CheckEnded,
    Effect,
    Effects,
    Exited,
    FindPorts,
    Input,
    Kill,
    KillTree,
    LookForRestore,
    Park,
    Parkable,
    Parked,
    PodIdentity,
    PortsFound,
    Quit,
    Refuse,
    RestoreMissing,
    RestoreSeen,
    RunCheck,
    Save,
    Send,
    Signal,
    SignalOne,
    Spawn,
    StacksTaken,
    Started,
    TakeStacks,
    Terminate,
    Tick,
    TreeGone,
    WarmStarted,
)
from gangsidecar.supervisor.machine.state import (
    GRACE_MS,
    Result,
    State,
    Stop,
    lasting_checkpoints,
    report,
    start_session,
)
from gangsidecar.wire import Phase

_HANDLERS: dict[type, Callable[[State, int, Any], Result]] = {
    wire.Directive: directives.directive,
    PortsFound: directives.ports_found,
    RestoreSeen: directives.restore_seen,
    RestoreMissing: directives.restore_missing,
    StacksTaken: stop.stacks_taken,
    wire.Check: checks.begin_check,
    CheckEnded: checks.end_check,
    Started: worker.record_start,
    WarmStarted: worker.warm_started,
    Exited: worker.record_exit,
    TreeGone: worker.tree_gone,
    Parkable: stop.parkable,
    Parked: stop.record_parking,
    Terminate: worker.terminate,
    wire.Ping: worker.record_ping,
    **dict.fromkeys(get_args(wire.FrameworkMessage), worker.framework_call),
    wire.LogMatch: worker.log_matched,
}
"""A Tick has none: it only lets the due timers run."""


def step(state: State, now_ms: int, event: Input) -> Result:
    """Return the state after the event, and the effects. Never raises; an event without meaning changes nothing.

    Due timers come before the event, so a late ping doesn't undo an isolation. They come after the news that a process
    has ended: an end that was there before the stop is a natural one.
    """
    effects: Effects = ()
    if not isinstance(event, (Exited, CheckEnded, TreeGone)):
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
    """Return the time of the next Tick; None = never."""
    timer = stop.next_timer(state)
    return None if timer is None else timer[0]
