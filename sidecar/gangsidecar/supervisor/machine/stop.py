"""Timers: the end of a lease, SIGKILL after the grace, Stuck, the end of parked processes and of orphans, held steps.

A stop must never wait longer than the shortest grace that a directive has given it. Of a worker that hangs the stacks
are taken first, if the directive asks for them, and its end waits for those of the other members: what ends in one pod
changes what the others do. Where the framework wants to hear of a directive's stop first, SIGTERM waits until it has
acted. Both are within the grace::

    announced at stop.since, or where stacks are asked for
                 max(stop.since + OTHERS_MS, when they are taken), at most stop.since + min(STACKS_MS, grace / 2)
    SIGTERM at   min(when no reader is left, announced at + min(NOTICE_MS, what is left of the grace / 2))

Processes can survive a stop: they park, and the next Run goes on with them. A parked process runs nothing and starts
nothing, until this supervisor has obeyed a Run. In formulas::

    p is asked to park    only if  p has said that it can, and a Hold begins the stop of a worker in a pod that goes on
    p is parked           only if  p was asked to park in this stop, and says so for the attempt that is being stopped,
                                   before SIGKILL is sent
    Ready(N) is reached   only if  every process of any worker is gone or parked, and none that is parked has a child
    p goes on             only by  Spawn of a Run that this session obeys, and whose output is not searched: p keeps
                                   the standard output that it was started with

The supervisor looks at the processes itself. What a process says must never count for another stop, and a parked
process must never be taken for one of an attempt: it has no end, neither a fault nor a success. What is not parked in
time is killed, and so is every parked process where nothing will go on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from signal import SIGTERM

from gangsidecar import wire
from gangsidecar.supervisor.machine.events import (
    Kill,
    KillTree,
    Park,
    Parkable,
    Parked,
    Quit,
    Refuse,
    Save,
    Send,
    Signal,
    SignalOne,
    StacksTaken,
    TakeStacks,
)
from gangsidecar.supervisor.machine.history import suspected_process
from gangsidecar.supervisor.machine.state import GRACE_MS, Result, State, Stop, enter, lease_ends
from gangsidecar.wire import Phase, Verb

STUCK_MS = 10_000
"""After SIGKILL a process is gone in moments, or it waits in a driver and may never go."""
TERMINATE_MS = 2_000
"""The time that a SIGTERM from the kubelet waits for the gang's planned Hold, and that the last report may take."""

STACKS_MS = 1_500
"""The time that a stop waits for the stacks of its own worker, which hangs."""
OTHERS_MS = 1_500
"""The time that it waits for those of the other members, which it doesn't see."""
NOTICE_MS = 500
"""The time that SIGTERM waits for readers of the announcement. Callbacks that return end the wait."""
PROGRESS_MS = 1_000
"""Steps alone cause a report at most this often."""
PARKED_MS = 600_000
"""A parked process may hold a device's memory. A new pod for another member is there before that."""

Timer = tuple[int, Callable[[State, int], Result]]
LEFTOVER_MS = 1_000
"""The time to end for leftovers of processes that have all parked or ended, if it is less than the grace."""
SEARCHED = "progress.source searches its output attempt by attempt; let it call gang.progress instead"
LOG_SEARCHED = "podFailurePolicy has onLog, which searches its output attempt by attempt; remove onLog for its role"


def next_timer(state: State) -> Timer | None:
    """Return what is due next, and when; None = nothing."""
    if state.phase is Phase.DONE:
        return None
    stop = state.stop
    if stop is not None:
        if stop.killed_at is None:
            is_announced = stop.signal_at is not None and stop.signal_at < stop.kill_at
            then = _all_taken if stop.taking else signal_tree
            return (stop.signal_at or 0, then) if is_announced else (stop.kill_at, _kill)
        return None if state.phase is Phase.STUCK else (stop.killed_at + STUCK_MS, _stuck)
    if state.alive:
        lease = None if state.directive is None else lease_ends(state, state.directive.isolation_ms)
        times = [] if lease is None else [(lease, begin_stop)]
        if state.terminated_at is not None:
            times.append((state.terminated_at + TERMINATE_MS, begin_stop))
        if state.check is not None:
            times.append((state.check.since + state.check.check.timeout_ms, end_late_check))
        if state.progress_held and state.progress_sent_at is not None:
            times.append((state.progress_sent_at + PROGRESS_MS, report_progress))
        return min(times, key=lambda timer: timer[0], default=None)
    orphaned = max(state.pinged_at, state.gone_at) + state.orphan_ms
    if state.parked:
        return None if state.looking else (min(orphaned, _parked_until(state)), end_parked)
    if state.terminated_at is None:
        return orphaned, finish
    return min(orphaned, max(state.terminated_at, state.gone_at) + TERMINATE_MS), finish


def _parked_until(state: State) -> int:
    """When parked processes are ended, unless a Run comes."""
    lease = None if state.directive is None else lease_ends(state, state.directive.isolation_ms)
    until = state.parked_at + PARKED_MS
    return until if lease is None else min(until, lease)


def report_progress(state: State, now_ms: int) -> Result:
    """Send the newest step."""
    return replace(state, progress_sent_at=now_ms, progress_held=False), (Send(),)


def begin_stop(state: State, now_ms: int) -> Result:
    """SIGTERM to the whole tree, then the grace. What outlives the spawned processes gets no grace."""
    grace = GRACE_MS if state.directive is None else max(0, state.directive.grace_ms)
    if state.mains:
        return replace(state, stop=Stop(now_ms, now_ms + grace)), (Signal(int(SIGTERM)),)
    return _kill(replace(state, stop=Stop(now_ms, now_ms)), now_ms)


def end_late_check(state: State, now_ms: int) -> Result:
    """The time of a check is over."""
    running = state.check
    if running is None:
        return state, ()
    check = running.check
    late = wire.Checked(check.attempt, check.turn, check.name, now_ms - running.since)
    return begin_stop(replace(state, check=replace(running, outcome=late)), now_ms)


def announce(state: State, now_ms: int, directive: wire.Directive) -> Result:
    """Begin the stop of a directive, which the sidecar announces to its readers at this moment."""
    begun, effects = begin_stop(state, now_ms)
    stop = begun.stop
    if stop is None or stop.killed_at is not None:
        return begun, effects
    by_ms = now_ms + min(STACKS_MS, (stop.kill_at - now_ms) // 2)
    if directive.stacks and by_ms > now_ms:
        look = TakeStacks(state.ran, by_ms, suspected_process(state.history, state.ran))
        return replace(begun, stop=replace(stop, taking=True, signal_at=by_ms)), (look,)
    return _announce(begun, now_ms)


def stacks_taken(state: State, _now_ms: int, event: StacksTaken) -> Result:
    """Keep the stacks until all are taken: the sidecar announces the stop with the report. They may also come later."""
    if event.attempt != state.ran:
        return state, ()
    stop = state.stop
    if stop is not None and stop.taking and stop.killed_at is None:
        goes_on = min(stop.since + OTHERS_MS, stop.signal_at or stop.kill_at)
        return replace(state, stop=replace(stop, stacks=event.text, signal_at=goes_on)), ()
    return replace(state, stacks=wire.Stacks(event.attempt, event.text)), (Send(),)


def _all_taken(state: State, now_ms: int) -> Result:
    """The time for stacks is over, here and in the other pods."""
    stacks = wire.Stacks(state.ran, "" if state.stop is None else state.stop.stacks)
    state, effects = _announce(replace(state, stacks=stacks), now_ms)
    return state, (*effects, Send())


def _announce(state: State, now_ms: int) -> Result:
    """Announce the stop to the worker.

    Hold asks the processes that can park to do so; in a pod that is to end, nothing will go on.
    """
    stop, directive = state.stop, state.directive
    if stop is None or directive is None:
        return state, ()
    goes_on = directive.verb is Verb.HOLD and state.terminated_at is None
    asked = tuple(one for one, _ in state.mains if one in state.parkable) if goes_on else ()
    stop = replace(stop, taking=False, signal_at=None, parking=asked)
    park = Park(state.ran, asked, stop.kill_at - now_ms, directive.reason, directive.planned)
    effects = (park,) if asked else ()
    if state.readers:
        stop = replace(stop, signal_at=now_ms + min(NOTICE_MS, (stop.kill_at - now_ms) // 2))
        return replace(state, stop=stop), effects
    return replace(state, stop=stop), (*effects, Signal(int(SIGTERM), asked))


def signal_tree(state: State, _now_ms: int) -> Result:
    """SIGTERM, now that the readers of the announcement have acted, or had the time to."""
    stop = state.stop
    spared = () if stop is None else stop.parking
    return replace(state, stop=None if stop is None else replace(stop, signal_at=None)), (Signal(int(SIGTERM), spared),)


def shorten_stop(state: State, directive: wire.Directive) -> State:
    """Shorten a stop for a directive that arrives meanwhile: it can only bring SIGKILL nearer."""
    stop = state.stop
    if stop is None:
        return state
    kill_at = min(stop.kill_at, stop.since + max(0, directive.grace_ms))
    return replace(state, stop=replace(stop, kill_at=kill_at))


def _kill(state: State, now_ms: int) -> Result:
    """The grace is over."""
    stop = None if state.stop is None else replace(state.stop, killed_at=now_ms)
    return replace(state, stop=stop), (KillTree(),)


def _stuck(state: State, now_ms: int) -> Result:
    """SIGKILL has not ended every process: report it, and go on killing, what is parked too."""
    return enter(replace(state, parked=()), now_ms, Phase.STUCK), (Send(),)


def end_parked(state: State, now_ms: int) -> Result:
    """SIGKILL every parked process. The phase is Stopping until the last is gone."""
    stop = Stop(now_ms, now_ms, killed_at=now_ms, of_parked=True)
    ended = replace(state, parked=(), alive=True, stop=stop)
    return enter(ended, now_ms, Phase.STOPPING), (KillTree(), Send())


def finish(state: State, now_ms: int) -> Result:
    """Nothing runs and nothing will: end, with a last report."""
    return enter(state, now_ms, Phase.DONE), (Send(), Save(), Quit())


def is_searched(run: wire.Run) -> bool:
    """Return whether each of its processes needs an output of its own: none goes on from or to another attempt."""
    return bool(why_anew(run))


def why_anew(run: wire.Run) -> str:
    """Say what searches the output of its processes, and what to do about it; empty if nothing does."""
    if run.source is not None and run.source.pattern:
        return SEARCHED
    return LOG_SEARCHED if run.log_patterns else ""


def parkable(state: State, _now_ms: int, event: Parkable) -> Result:
    """A process can park, or no longer. A parked process that can't be reached any more is of no use."""
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
    """A process that was asked to park can't any more: it is stopped like the others, with SIGTERM."""
    stop = state.stop
    if stop is None or local_rank not in stop.parking or all(local_rank != one for one, _ in state.mains):
        return state, ()
    state = replace(state, stop=replace(stop, parking=tuple(one for one in stop.parking if one != local_rank)))
    is_signalled = stop.signal_at is None and stop.killed_at is None
    return state, (SignalOne(int(SIGTERM), local_rank),) if is_signalled else ()


def record_parking(state: State, now_ms: int, event: Parked) -> Result:
    """Record that a process has parked, if it was asked to in this very stop and SIGKILL was not sent."""
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
    """When only leftovers of processes that were asked to park hold Ready up, SIGKILL comes sooner.

    They got no SIGTERM: it was for their parents to end them.
    """
    stop = state.stop
    if stop is None or stop.killed_at is not None or state.mains or not stop.parking:
        return state
    kill_at = min(stop.kill_at, now_ms + LEFTOVER_MS)
    return replace(state, stop=replace(stop, kill_at=kill_at, leftover=True))


def drop_parked(state: State, local_rank: int) -> State:
    """A parked process has ended."""
    parkable = tuple(one for one in state.parkable if one != local_rank)
    return replace(state, parkable=parkable, parked=tuple(one for one in state.parked if one[0] != local_rank))
