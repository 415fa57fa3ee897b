"""Obey the directives of the controller. Only a newer one is obeyed, and none after Finish.

Order: (attempt, Hold < Run < Finish). A Run must name this session, and finds it Ready for the same attempt; the worker
starts once its restore point has been seen. A Run must never start a worker in a pod that is ending or cut off.
"""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.supervisor.machine.events import (
    Effects,
    FindPorts,
    Kill,
    LookForRestore,
    PortsFound,
    RestoreMissing,
    RestoreSeen,
    Save,
    Send,
    Spawn,
)
from gangsidecar.supervisor.machine.state import Result, State, enter, lease_ends
from gangsidecar.supervisor.machine.stop import announce, begin_stop, end_parked, finish, is_searched, shorten_stop
from gangsidecar.wire import Phase, Verb


def directive(state: State, now_ms: int, new: wire.Directive) -> Result:
    """Obey a newer directive; take over the timers of the same one again; ignore an older one."""
    old = state.directive
    if (new.gang, new.pod) != (state.identity.gang, state.identity.pod):
        return state, ()
    if old is not None:
        if new.order == old.order:
            return _again(state, old, new), (Send(),)
        if new.order < old.order or old.verb is Verb.FINISH:
            return state, ()
    if new.verb is Verb.RUN:
        return _run(state, now_ms, new)
    state = replace(
        state, directive=new, orphan_ms=new.orphan_ms, looking=False, ports=(), stop_ms=None, killed_ms=None, checks=()
    )
    if not state.alive:
        return settle(state, now_ms)
    effects: Effects = ()
    if state.stop is None:
        state, effects = announce(state, now_ms, new)
    else:
        state = shorten_stop(replace(state, stop=replace(state.stop, since=now_ms)), new)
    if state.phase is not Phase.STUCK:
        state = enter(state, now_ms, Phase.STOPPING)
    return state, (*effects, Send())


def settle(state: State, now_ms: int, *, checked: bool = False) -> Result:
    """No process is left but parked ones: what the newest directive makes of that. ``checked``: a check was ended."""
    current = state.directive
    ends = state.terminated_at is not None or (current is not None and current.verb is Verb.FINISH)
    if state.parked and ends:
        return end_parked(state, now_ms)
    if current is not None and current.verb is Verb.HOLD:
        ports = FindPorts(current.attempt, current.base_port, current.port_count)
        return enter(state, now_ms, Phase.STOPPING), (ports,)
    if current is not None and current.verb is Verb.FINISH:
        return finish(state, now_ms)
    if current is None or current.run is None or current.attempt == state.ran:
        return enter(state, now_ms, Phase.RUNNING), (Send(),)
    # For the end of a check, or of what was parked.
    waited = (checked or is_searched(current.run)) and state.phase is Phase.STOPPING
    if waited and state.terminated_at is None and not _is_cut_off(state, now_ms, current):
        state, effects = _begin(state, now_ms, current.attempt, current.run)
        return state, (*effects, Send())
    return enter(state, now_ms, Phase.READY), (Send(),)  # The Run was obeyed, and then cut off.


def ports_found(state: State, _now_ms: int, event: PortsFound) -> Result:
    """Ready(N), with everything that its report needs. Where no port was free, there may be one later."""
    hold = state.directive
    if hold is None or hold.attempt != event.attempt:
        return state, ()
    if state.phase is Phase.READY and hold.verb is Verb.HOLD and event.ports and not state.ports:
        return replace(state, ports=event.ports), (Send(),)
    if state.phase is not Phase.STOPPING or state.alive:
        return state, ()
    since = max(state.phase_since, state.gone_at)
    return replace(state, phase=Phase.READY, phase_since=since, ports=event.ports), (Send(),)


def restore_seen(state: State, now_ms: int, event: RestoreSeen) -> Result:
    """The restore point is there: the worker may start, unless the pod is ending or cut off by now."""
    current = state.directive
    if not state.looking or current is None or current.run is None or current.attempt != event.attempt:
        return state, ()
    if _is_cut_off(state, now_ms, current):
        return replace(state, looking=False), ()
    return _spawn(state, now_ms, event.attempt, current.run)


def _is_cut_off(state: State, now_ms: int, current: wire.Directive) -> bool:
    """Return whether the lease of a worker is over before it is started."""
    lease = lease_ends(state, current.isolation_ms)
    return lease is not None and now_ms >= lease


def restore_missing(state: State, _now_ms: int, event: RestoreMissing) -> Result:
    """Start nothing and report it: the controller replaces this member or rejects the step."""
    current = state.directive
    if not state.looking or current is None or current.run is None or current.attempt != event.attempt:
        return state, ()
    restore = current.run.restore
    missing = replace(
        state,
        looking=False,
        missing_step=None if restore is None else restore.step,
        missing_attempt=current.attempt,
        missing_folder=not event.in_folder,
    )
    return missing, (Send(),)


def _again(state: State, old: wire.Directive, new: wire.Directive) -> State:
    """The same directive with other timers: these are live policy, the rest is fixed for the attempt.

    Older ones are those of a leader that is none any more; 0 is that of a release without numbers.
    """
    if 0 < new.fencing < old.fencing:
        return state
    kept = replace(
        old, grace_ms=new.grace_ms, isolation_ms=new.isolation_ms, orphan_ms=new.orphan_ms, fencing=new.fencing
    )
    return shorten_stop(replace(state, directive=kept, orphan_ms=new.orphan_ms), new)


def _run(state: State, now_ms: int, new: wire.Directive) -> Result:
    """Only the session that reported Ready(N) takes Run(N), unless its pod is ending or it is cut off by now.

    A worker starts once in a pod and attempt: the others have gone on since, and can't begin again with it.
    """
    old, run = state.directive, new.run
    if run is None or run.session != state.session or state.terminated_at is not None:
        return state, ()
    if state.phase is not Phase.READY or old is None or old.attempt != new.attempt:
        return state, ()
    if new.attempt <= state.ran_in_pod or _is_cut_off(state, now_ms, new):
        return state, ()
    state = replace(
        state, directive=new, orphan_ms=new.orphan_ms, missing_step=None, missing_attempt=0, missing_folder=False
    )
    if state.alive:  # A check, which the controller doesn't wait for any more. It ends first: see settle.
        state, effects = begin_stop(state, now_ms)
        return enter(state, now_ms, Phase.STOPPING), (*effects, Send())
    if state.parked and is_searched(run):
        return end_parked(state, now_ms)  # The worker starts when they are gone: see settle.
    return _begin(state, now_ms, new.attempt, run)


def _begin(state: State, now_ms: int, attempt: int, run: wire.Run) -> Result:
    """Start the worker, or look for its restore point first."""
    if run.restore is not None and run.restore.path:
        return replace(enter(state, now_ms, Phase.READY), looking=True), (LookForRestore(attempt, run.restore),)
    return _spawn(state, now_ms, attempt, run)


def _spawn(state: State, now_ms: int, attempt: int, run: wire.Run) -> Result:
    """Start the worker; what an earlier attempt registered beyond the restore point no longer exists.

    Parked processes go on, if the Run asks for their local ranks.
    """
    asked = {process.local_rank for process in run.processes}
    parked = tuple(local_rank for local_rank, _ in state.parked if local_rank in asked)
    needless = tuple(Kill(local_rank) for local_rank, _ in state.parked if local_rank not in asked)
    history = replace(state.history, progress=None, reached=(), restart=None, corruption=None, verified=())
    if run.checkpointed:
        history = histories.forget_later_steps(history, None if run.restore is None else run.restore.step)
    spawned = replace(
        enter(state, now_ms, Phase.RUNNING),
        history=history,
        ran=attempt,
        ran_in_pod=attempt,
        process_tier=run.process_tier,
        alive=True,
        mains=tuple((process.local_rank, process.rank) for process in run.processes),
        parkable=parked,
        parked=(),
        looking=False,
        readers=0,
        stacks=None,
        log_matches=(),
        progress_sent_at=None,
        progress_held=False,
    )
    return spawned, (*needless, Spawn(attempt, run, parked), Save())
