"""Processes that survive a stop: they park, and the next Run goes on with them.

The rule: a parked process runs nothing and starts nothing, until this supervisor has obeyed a Run. In formulas::

    p is told to park     only if  p has said that it can, and a Hold begins the stop of a worker in a pod that goes on
    p is parked           only if  p was told to park in this stop, and says so for the attempt that is being stopped,
                                   before SIGKILL is sent
    Ready(N) is reached   only if  every process of any worker is gone or parked, and none that is parked has a child
    p goes on             only by  Spawn of a Run that this session obeys, and whose output is not searched: p keeps
                                   the standard output that it was started with

The supervisor looks at the processes itself. What a process says must never count for another stop, and a parked
process must never be taken for one of an attempt: it has no end, neither a fault nor a success. What is not parked in
time is killed, and so is every parked process where nothing will go on with it: see ``stop.py``.
"""

from __future__ import annotations

from dataclasses import replace
from signal import SIGTERM

from gangsidecar import wire
from gangsidecar.supervisor.machine.events import Kill, Parkable, Parked, Refuse, SignalOne
from gangsidecar.supervisor.machine.state import Result, State

LEFTOVER_MS = 1_000
"""What is left when each spawned process has parked or ended gets so long to end, if that is less than the grace."""
SEARCHED = "progress.source searches its output attempt by attempt; let it call gang.progress instead"
LOG_SEARCHED = "podFailurePolicy has onLog, which searches its output attempt by attempt; remove onLog for its role"


def is_searched(run: wire.Run) -> bool:
    """Whether each of its processes needs an output of its own: none goes on from an attempt before, or to the next."""
    return bool(why_anew(run))


def why_anew(run: wire.Run) -> str:
    """What searches the output of its processes, and what to do about it; empty if nothing does."""
    if run.source is not None and run.source.pattern:
        return SEARCHED
    return LOG_SEARCHED if run.log_patterns else ""


def parkable(state: State, _now_ms: int, event: Parkable) -> Result:
    """A process can park, or no longer. One that is parked and can't be told to go on is of no use."""
    others = tuple(one for one in state.parkable if one != event.local_rank)
    if not event.can:
        if any(local_rank == event.local_rank for local_rank, _ in state.parked):
            return replace(state, parkable=others), (Kill(event.local_rank),)
        return _signalled(replace(state, parkable=others), event.local_rank)
    if all(local_rank != event.local_rank for local_rank, _ in state.mains):
        return state, ()
    run = None if state.directive is None else state.directive.run
    refusal = event.refusal or ("" if run is None else why_anew(run))
    if refusal:
        return replace(state, parkable=others), (Refuse(event.local_rank, refusal),)
    return replace(state, parkable=(*others, event.local_rank)), ()


def _signalled(state: State, local_rank: int) -> Result:
    """A process that was told to park can't any more: it is stopped like the others, with SIGTERM."""
    stop = state.stop
    if stop is None or local_rank not in stop.parking or all(local_rank != one for one, _ in state.mains):
        return state, ()
    state = replace(state, stop=replace(stop, parking=tuple(one for one in stop.parking if one != local_rank)))
    is_signalled = stop.signal_at is None and stop.killed_at is None
    return state, (SignalOne(int(SIGTERM), local_rank),) if is_signalled else ()


def parked(state: State, now_ms: int, event: Parked) -> Result:
    """A process has parked, if it was told to in this very stop and SIGKILL was not sent."""
    stop = state.stop
    main = next((one for one in state.mains if one[0] == event.local_rank), None)
    if main is None or stop is None or stop.killed_at is not None:
        return state, ()
    if event.local_rank not in stop.parking or event.attempt != state.ran:
        return state, ()
    mains = tuple(one for one in state.mains if one != main)
    state = replace(state, mains=mains, parked=(*state.parked, main), parked_at=now_ms)
    return hurry(state, now_ms), ()


def hurry(state: State, now_ms: int) -> State:
    """When only leftovers of processes that were told to park hold Ready up, SIGKILL comes sooner.

    They got no SIGTERM: it was for their parents to end them.
    """
    stop = state.stop
    if stop is None or stop.killed_at is not None or state.mains or not stop.parking:
        return state
    kill_at = min(stop.kill_at, now_ms + LEFTOVER_MS)
    return replace(state, stop=replace(stop, kill_at=kill_at, leftover=True))


def gone(state: State, local_rank: int) -> State:
    """A parked process has ended."""
    parkable = tuple(one for one in state.parkable if one != local_rank)
    return replace(state, parkable=parkable, parked=tuple(one for one in state.parked if one[0] != local_rank))
