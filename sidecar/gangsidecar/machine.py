"""The rules of a supervisor as a state machine: pure, with time as an argument.

Invariant: **a worker of attempt N starts at most once in a session, only by a Run(N) that names this session after it
said Ready(N), and Ready(N) is said only when no process of any worker is left.** Everything else follows from the order
of directives, (attempt, Hold < Run < Finish): the machine never goes back.

:func:`step` takes one event and gives the next state and the effects, in the order in which they are to be carried out.
It has no clock, no I/O, no randomness and no log, and it never raises. Times are milliseconds of CLOCK_BOOTTIME.
The one who drives it reaps before it hands over anything that may stop a worker, so that natural ends stay natural.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from signal import SIGTERM
from typing import Any, Callable, Dict, Optional, Tuple

from . import wire
from .events import (
    Effect,
    Effects,
    End,
    Event,
    Exited,
    FindPorts,
    Identity,
    KillTree,
    LookForRestore,
    PortsFound,
    RestoreMissing,
    RestoreSeen,
    Save,
    Send,
    Signal,
    Spawn,
    Started,
    Terminate,
    Tick,
    TreeGone,
)
from .evidence import (
    Evidence,
    Pace,
    add_checkpoint,
    add_end,
    add_loaded,
    add_progress,
    add_request,
    drop_checkpoint,
    ends,
    loaded,
    progress,
    request,
    restored,
)
from .wire import Phase, Verb

__all__ = [
    "Effect",
    "Effects",
    "End",
    "Event",
    "Exited",
    "FindPorts",
    "Identity",
    "KillTree",
    "LookForRestore",
    "PortsFound",
    "RestoreMissing",
    "RestoreSeen",
    "Save",
    "Send",
    "Signal",
    "Spawn",
    "Started",
    "State",
    "Stop",
    "Terminate",
    "Tick",
    "TreeGone",
    "deadline",
    "report",
    "start",
    "step",
]

GRACE_MS = 15_000
"""Where no directive was ever heard."""
STUCK_MS = 10_000
"""After SIGKILL a process is gone in moments, or sits in a driver and may never go."""
TERMINATE_MS = 2_000
"""How long a SIGTERM from the kubelet waits for the gang's planned Hold, and the last report for being heard."""
PROGRESS_MS = 1_000
"""Steps alone cause a report at most this often."""

_ORDER = {Verb.HOLD: 0, Verb.RUN: 1, Verb.FINISH: 2}


@dataclass(frozen=True)
class Stop:
    """A stop in progress: SIGTERM was sent at ``since``; SIGKILL is due at ``kill_at``, was sent at ``killed_at``."""

    since: int
    kill_at: int
    killed_at: Optional[int] = None


@dataclass(frozen=True)
class State:
    """Everything that a supervisor knows. Hashable; only :func:`start` and :func:`step` make one."""

    identity: Identity
    session: str
    orphan_ms: int
    pinged_at: int
    """When a controller was last heard of; at first, when the session began."""
    gone_at: int
    """When the last process of a worker was gone; at first, when the session began."""
    phase: Phase
    phase_since: int
    evidence: Evidence
    directive: Optional[wire.Directive] = None
    """The newest one that was accepted."""
    ran: int = 0
    """The attempt of the newest Spawn of this session."""
    alive: bool = False
    """From Spawn to TreeGone."""
    mains: Tuple[Tuple[int, Optional[int]], ...] = ()
    """(local rank, rank) of the spawned processes that have not ended."""
    stop: Optional[Stop] = None
    stop_ms: Optional[int] = None
    terminated_at: Optional[int] = None
    looking: bool = False
    """Between LookForRestore and its answer."""
    missing_step: Optional[int] = None
    missing_attempt: int = 0
    ports: Tuple[int, ...] = ()
    paced_at: Optional[int] = None
    """When progress last caused a report."""


Result = Tuple[State, Effects]


def start(
    identity: Identity,
    session: str,
    now_ms: int,
    ends: Tuple[wire.End, ...] = (),
    checkpoints: Tuple[wire.Checkpoint, ...] = (),
    orphan_ms: int = 600_000,
) -> State:
    """The state of a new session, with what an earlier one of the same pod has left (ages as of ``now_ms``)."""
    evidence = Evidence()
    for end in ends:
        evidence = add_end(evidence, now_ms - end.age_ms, end)
    for checkpoint in checkpoints:
        evidence = add_checkpoint(evidence, checkpoint)
    return State(
        identity=identity,
        session=session,
        orphan_ms=orphan_ms,
        pinged_at=now_ms,
        gone_at=now_ms,
        phase=Phase.IDLE,
        phase_since=now_ms,
        evidence=evidence,
    )


def step(state: State, now_ms: int, event: Event) -> Result:
    """What the event changes and what is to be done about it. Never raises; what has no meaning changes nothing."""
    effects: Effects = ()
    if not isinstance(event, (Exited, TreeGone)):
        # What is due comes before the event (a late ping doesn't undo an isolation), but after what has already
        # happened to the processes (an end that was there before the stop is a natural one).
        timer = _timer(state)
        while timer is not None and timer[0] <= now_ms:
            state, more = timer[1](state, now_ms)
            effects += more
            timer = _timer(state)
    handler = _HANDLERS.get(type(event))
    if handler is None or state.phase is Phase.DONE:
        return state, effects
    state, more = handler(state, now_ms, event)
    return state, effects + more


def deadline(state: State) -> Optional[int]:
    """When a Tick is wanted next; None = never."""
    timer = _timer(state)
    return None if timer is None else timer[0]


def report(state: State, now_ms: int, seq: int) -> wire.Report:
    """The whole state as it is told to the controller."""
    return wire.Report(
        gang=state.identity.gang,
        member=state.identity.member,
        incarnation=state.identity.incarnation,
        pod=state.identity.pod,
        session=state.session,
        seq=seq,
        attempt=0 if state.directive is None else state.directive.attempt,
        phase=state.phase,
        terminating=state.terminated_at is not None,
        ends=ends(state.evidence, now_ms),
        checkpoints=state.evidence.checkpoints,
        missing_step=state.missing_step,
        missing_attempt=state.missing_attempt,
        progress=progress(state.evidence, now_ms),
        request=request(state.evidence, now_ms),
        address=state.identity.address,
        ports=state.ports,
        phase_age_ms=max(0, now_ms - state.phase_since),
        stop_ms=state.stop_ms,
        loaded=loaded(state.evidence, now_ms),
    )


# Timers: in each state at most one thing is due next.


def _timer(state: State) -> Optional[Tuple[int, Callable[[State, int], Result]]]:
    if state.phase is Phase.DONE:
        return None
    stop = state.stop
    if stop is not None:
        if stop.killed_at is None:
            return stop.kill_at, _kill
        return None if state.phase is Phase.STUCK else (stop.killed_at + STUCK_MS, _stuck)
    if state.alive:
        times = [] if state.terminated_at is None else [state.terminated_at + TERMINATE_MS]
        if state.directive is not None and state.directive.isolation_ms is not None:
            times.append(state.pinged_at + state.directive.isolation_ms)
        return (min(times), _stop) if times else None
    times = [max(state.pinged_at, state.gone_at) + state.orphan_ms]
    if state.terminated_at is not None:
        times.append(max(state.terminated_at, state.gone_at) + TERMINATE_MS)
    return min(times), _done


def _stop(state: State, now_ms: int) -> Result:
    """SIGTERM to the whole tree, then the grace. Leftovers of processes that ended by themselves get none."""
    grace = GRACE_MS if state.directive is None else max(0, state.directive.grace_ms)
    if state.mains:
        return replace(state, stop=Stop(now_ms, now_ms + grace)), (Signal(int(SIGTERM)),)
    return _kill(replace(state, stop=Stop(now_ms, now_ms)), now_ms)


def _kill(state: State, now_ms: int) -> Result:
    """The grace is over."""
    stop = None if state.stop is None else replace(state.stop, killed_at=now_ms)
    return replace(state, stop=stop), (KillTree(),)


def _stuck(state: State, now_ms: int) -> Result:
    """SIGKILL didn't help: say so. The killing goes on."""
    return _enter(state, now_ms, Phase.STUCK), (Send(),)


def _done(state: State, now_ms: int) -> Result:
    """Nothing runs and nothing will: the end, with a last report."""
    return _enter(state, now_ms, Phase.DONE), (Send(), Save(), End())


def _enter(state: State, now_ms: int, phase: Phase) -> State:
    return state if state.phase is phase else replace(state, phase=phase, phase_since=now_ms)


# Directives


def _directive(state: State, now_ms: int, new: wire.Directive) -> Result:
    """Order by (attempt, Hold < Run < Finish): only a newer one is obeyed, and nothing comes after Finish."""
    old = state.directive
    if (new.gang, new.pod) != (state.identity.gang, state.identity.pod):
        return state, ()
    if old is not None:
        if _key(new) == _key(old):
            return _again(state, old, new), (Send(),)
        if _key(new) < _key(old) or old.verb is Verb.FINISH:
            return state, ()
    if new.verb is Verb.RUN:
        return _run(state, now_ms, new)
    state = replace(state, directive=new, orphan_ms=new.orphan_ms, looking=False, ports=(), stop_ms=None)
    if not state.alive:
        return _settle(state, now_ms)
    effects: Effects = ()
    if state.stop is None:
        state, effects = _stop(state, now_ms)
    else:
        state = _shorten(replace(state, stop=replace(state.stop, since=now_ms)), new)
    if state.phase is not Phase.STUCK:
        state = _enter(state, now_ms, Phase.STOPPING)
    return state, (*effects, Send())


def _key(directive: wire.Directive) -> Tuple[int, int]:
    return directive.attempt, _ORDER[directive.verb]


def _again(state: State, old: wire.Directive, new: wire.Directive) -> State:
    """The same directive with other timers: these are live policy, the rest is fixed for the attempt."""
    kept = replace(old, grace_ms=new.grace_ms, isolation_ms=new.isolation_ms, orphan_ms=new.orphan_ms)
    return _shorten(replace(state, directive=kept, orphan_ms=new.orphan_ms), new)


def _shorten(state: State, directive: wire.Directive) -> State:
    """A directive that comes during a stop can only bring SIGKILL nearer."""
    stop = state.stop
    if stop is None:
        return state
    kill_at = min(stop.kill_at, stop.since + max(0, directive.grace_ms))
    return replace(state, stop=replace(stop, kill_at=kill_at))


def _run(state: State, now_ms: int, new: wire.Directive) -> Result:
    """Only the session that said Ready(N) takes Run(N), unless its pod is ending or it is cut off by now."""
    old, run = state.directive, new.run
    if run is None or run.session != state.session or state.terminated_at is not None:
        return state, ()
    if state.phase is not Phase.READY or old is None or old.attempt != new.attempt:
        return state, ()
    if new.isolation_ms is not None and now_ms - state.pinged_at >= new.isolation_ms:
        return state, ()
    state = replace(state, directive=new, orphan_ms=new.orphan_ms, missing_step=None, missing_attempt=0)
    if run.restore is not None and run.restore.path:
        return replace(state, looking=True), (LookForRestore(new.attempt, run.restore),)
    return _spawn(state, now_ms, new.attempt, run)


def _spawn(state: State, now_ms: int, attempt: int, run: wire.Run) -> Result:
    """Start the worker; what an earlier attempt registered beyond the restore point has not happened any more."""
    evidence = replace(state.evidence, pace=None, load=None, asked=None)
    if run.checkpointed:
        evidence = restored(evidence, None if run.restore is None else run.restore.step)
    spawned = replace(
        _enter(state, now_ms, Phase.RUNNING),
        evidence=evidence,
        ran=attempt,
        alive=True,
        mains=tuple((process.local_rank, process.rank) for process in run.processes),
        looking=False,
        paced_at=None,
    )
    changed = evidence.checkpoints != state.evidence.checkpoints
    return spawned, (Spawn(attempt, run), *((Save(),) if changed else ()))


def _seen(state: State, now_ms: int, event: RestoreSeen) -> Result:
    """The restore point is there: now the worker may start, unless the pod is ending."""
    directive = state.directive
    if not state.looking or directive is None or directive.run is None or directive.attempt != event.attempt:
        return state, ()
    return _spawn(state, now_ms, event.attempt, directive.run)


def _missing(state: State, _now_ms: int, event: RestoreMissing) -> Result:
    """Start nothing and say so: the controller replaces this member or rejects the step."""
    directive = state.directive
    if not state.looking or directive is None or directive.run is None or directive.attempt != event.attempt:
        return state, ()
    restore = directive.run.restore
    step = None if restore is None else restore.step
    return replace(state, looking=False, missing_step=step, missing_attempt=directive.attempt), (Send(),)


def _settle(state: State, now_ms: int) -> Result:
    """Nothing runs: what does the newest directive make of it?"""
    verb = None if state.directive is None else state.directive.verb
    if state.directive is not None and verb is Verb.HOLD:
        hold = state.directive
        return _enter(state, now_ms, Phase.STOPPING), (FindPorts(hold.attempt, hold.base_port, hold.port_count),)
    if verb is Verb.FINISH:
        return _done(state, now_ms)
    return _enter(state, now_ms, Phase.RUNNING), (Send(),)


def _ports(state: State, _now_ms: int, event: PortsFound) -> Result:
    """Ready(N), with everything that its report needs."""
    hold = state.directive
    if state.phase is not Phase.STOPPING or state.alive or hold is None or hold.attempt != event.attempt:
        return state, ()
    since = max(state.phase_since, state.gone_at)
    return replace(state, phase=Phase.READY, phase_since=since, ports=event.ports), (Send(),)


# Processes


def _started(state: State, now_ms: int, _event: Started) -> Result:
    """The age of Running counts from the last exec."""
    if state.phase is not Phase.RUNNING:
        return state, ()
    return replace(state, phase_since=now_ms), (Send(),)


def _exited(state: State, now_ms: int, event: Exited) -> Result:
    """Record how a process ended; it was stopped if anything had ordered a stop before."""
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
    return replace(state, mains=mains, evidence=add_end(state.evidence, now_ms, end)), (Send(), Save())


def _gone(state: State, now_ms: int, _event: TreeGone) -> Result:
    """The tree is gone: a stop is complete, or a worker has ended by itself and waits for the gang."""
    if not state.alive:
        return state, ()
    stop_ms = state.stop_ms if state.stop is None else now_ms - state.stop.since
    return _settle(replace(state, alive=False, mains=(), stop=None, stop_ms=stop_ms, gone_at=now_ms), now_ms)


def _terminate(state: State, now_ms: int, _event: Terminate) -> Result:
    """Say it first: all ranks then save together. Nothing is started any more."""
    if state.terminated_at is not None:
        return state, ()
    return replace(state, terminated_at=now_ms, looking=False), (Send(),)


# What the framework says


def _ping(state: State, now_ms: int, _event: wire.Ping) -> Result:
    return replace(state, pinged_at=now_ms), ()


def _current(state: State, attempt: int) -> bool:
    """Attempt N can be spoken for from its start until its last process is gone or, ended by itself, is replaced."""
    return attempt == state.ran and state.ran > 0 and (state.alive or state.phase is Phase.RUNNING)


def _checkpoint(state: State, _now_ms: int, event: wire.Checkpoint) -> Result:
    """Taken also while its worker is being stopped: that is what the grace is for."""
    if not _current(state, event.attempt):
        return state, ()
    evidence = add_checkpoint(state.evidence, event)
    if evidence == state.evidence:
        return state, ()
    return replace(state, evidence=evidence), (Send(), Save())


def _dropped(state: State, _now_ms: int, event: wire.Dropped) -> Result:
    if not _current(state, event.attempt):
        return state, ()
    evidence = drop_checkpoint(state.evidence, event)
    if evidence == state.evidence:
        return state, ()
    return replace(state, evidence=evidence), (Send(), Save())


def _progress(state: State, now_ms: int, event: wire.Progress) -> Result:
    """The first step and each change of phase are told at once, steps alone once a second."""
    if not _current(state, event.attempt):
        return state, ()
    old, evidence = state.evidence.pace, add_progress(state.evidence, now_ms, event)
    new = evidence.pace
    news = old is None or new is None or _marks(old) != _marks(new)
    if not news and state.paced_at is not None and now_ms - state.paced_at < PROGRESS_MS:
        return replace(state, evidence=evidence), ()
    return replace(state, evidence=evidence, paced_at=now_ms), (Send(),)


def _marks(pace: Pace) -> Tuple[object, ...]:
    return pace.phase, pace.first_step, pace.first_ms


def _loaded(state: State, now_ms: int, event: wire.Loaded) -> Result:
    if not _current(state, event.attempt):
        return state, ()
    evidence = add_loaded(state.evidence, now_ms, event)
    if evidence == state.evidence:
        return state, ()
    return replace(state, evidence=evidence), (Send(),)


def _request(state: State, now_ms: int, event: wire.Request) -> Result:
    if not _current(state, event.attempt):
        return state, ()
    return replace(state, evidence=add_request(state.evidence, now_ms, event)), (Send(),)


def _tick(state: State, _now_ms: int, _event: Tick) -> Result:
    """What was due has been done before any event."""
    return state, ()


_HANDLERS: Dict[type, Callable[[State, int, Any], Result]] = {
    wire.Directive: _directive,
    wire.Ping: _ping,
    wire.Checkpoint: _checkpoint,
    wire.Dropped: _dropped,
    wire.Loaded: _loaded,
    wire.Progress: _progress,
    wire.Request: _request,
    Exited: _exited,
    TreeGone: _gone,
    Started: _started,
    PortsFound: _ports,
    RestoreSeen: _seen,
    RestoreMissing: _missing,
    Terminate: _terminate,
    Tick: _tick,
}
