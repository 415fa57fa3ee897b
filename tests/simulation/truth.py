"""How it really is with a gang, by the fake kernels and kubelets: who has finished, and what may end an attempt.

The invariants compare with this what the core decides. It must not use what a component believes or reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangctl.api.gangjob import NeverSucceeds, Roles
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import holders, incarnation, started_processes, waiting_roles
from gangctl.core.facts.world import Heard, Pod
from gangsidecar.supervisor.machine import history as histories
from gangsidecar.wire import Phase
from tests.simulation import signals
from tests.simulation.values import CHILD, Box, Ended, Leader, seconds

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

START_MS: Final = 60_000
"""A worker that was told to run and doesn't for so long may end the attempt."""
LATE_MS: Final = 20_000
"""A member counts as heard for so long after its last report."""
UNHEARD_MS: Final = 10_000
"""A step that was made so shortly before a controller decided may not have been heard."""
RECORD_MS: Final = 5_000
"""Within this time a controller has to store who has finished."""


# Who has finished


def forget(u: Universe, uid: str) -> None:
    """What was in this pod may be lost for good: what no controller could store by now nothing can know."""
    box = u.boxes.get(uid)
    if box is not None:
        ended = frozenset(key for key in u.ghost.finished if key[1] == box.member) - u.ghost.witnessed
        u.ghost = u.ghost._replace(perished=u.ghost.perished | ended)


def finished(u: Universe, box: Box, key: Ended) -> None:
    """A process has ended with 0 before anything was stopped."""
    u.ghost = u.ghost._replace(finished=u.ghost.finished | {key})
    if not box.is_reached or box.node in u.lost or box.pod not in u.pods:
        forget(u, box.pod)


def round_ends(u: Universe, leader: Leader) -> None:
    """What a controller has known for long enough has to be stored when its round is complete."""
    known = {key for key, at in leader.ends if u.now >= at + RECORD_MS}
    if known - u.ghost.witnessed:
        u.ghost = u.ghost._replace(witnessed=u.ghost.witnessed | known)


def is_complete(u: Universe) -> bool:
    """Whether every process that the success policy counts has finished the newest attempt, and it can be known."""
    policy, (attempt, held) = u.spec.success_policy, u.ghost.ran
    if isinstance(policy, NeverSucceeds) or not u.ghost.finished:
        return False
    keys = [
        (attempt, holder, rank)
        for place, holder in held
        if place in u.places and (not isinstance(policy, Roles) or u.places[place].role.name in policy.roles)
        for rank in range(started_processes(u.places[place].role))
    ]
    return bool(keys) and all(key in u.ghost.finished and key not in u.ghost.perished for key in keys)


# Who kept the signal


def killed(u: Universe, box: Box) -> None:
    """SIGKILL is sent to what SIGTERM has not ended, and to what has not parked in time, were it by a moment."""
    state = box.machine
    if not u.engine.searching and state is not None and state.stop is not None and not state.stop.of_parked:
        known = {local_rank for local_rank, _ in state.parked}
        late = [proc for proc in box.parked if proc.local_rank not in known]
        stubborn = {(box.member, proc.attempt) for proc in (*box.procs, *late) if proc.termed or proc.asked}
        u.ghost = u.ghost._replace(killed=u.ghost.killed | stubborn)


def is_blamed_wrongly(u: Universe, old: Status, new: Status) -> bool:
    """Whether the incident that is settled names a member as one that kept the signal, and it did not."""
    last, before = (status.incidents[0] if status.incidents else None for status in (new, old))
    if last is None or last.kept_signal is None or u.engine.searching:
        return False
    if before is not None and (before.attempt, before.kept_signal) == (last.attempt, last.kept_signal):
        return False
    return (last.kept_signal.member, old.started_attempt) not in u.ghost.killed


# What may end an attempt


def started(u: Universe, leader: Leader, status: Status) -> None:
    """An attempt has started. What its controller did not know as it decided may cost the next one."""
    held = tuple(holders(leader.spec, status).items())
    current = {(member, incarnation(status, member)) for _, member in held}
    boxes = [box for box in u.boxes.values() if (box.member, box.incarnation) in current]
    unbound = {uid for uid, box in u.boxes.items() if not _is_known(leader, box) and any(p.stuck for p in box.procs)}
    u.ghost = u.ghost._replace(
        ran=(status.attempt, held),
        started_at=u.phase_at,
        trained_at=u.phase_at,
        heard=(),
        unbound=u.ghost.unbound | unbound,
        excused=u.ghost.excused if all(_is_known(leader, box) for box in boxes) else status.attempt,
    )


def roles_started(u: Universe, leader: Leader) -> None:
    """Roles that waited may start: who does it late is late from now on."""
    u.ghost = u.ghost._replace(started_at=leader.thought_at)


def _is_known(leader: Leader, box: Box) -> bool:
    """Whether the controller was connected to the session that runs now as it decided."""
    return box.machine is not None and box.machine.session in leader.reached


def fault(u: Universe, leader: Leader, old: Status) -> str:
    """What really is wrong with the attempt that runs, or who asks for its end; empty: it is healthy."""
    if u.spec.restart_token != old.observed_restart_token:
        return "a restart is asked for"
    if any(attempt == old.attempt for attempt, _ in u.ghost.accused):
        return "a member is said to compute wrongly"
    if u.ghost.excused == old.attempt:
        return "a node was lost for a while, or a container restarted"
    if u.spec.roles is not leader.spec.roles:
        return "the roles have changed"
    held = holders(leader.spec, old)
    found = (_of_member(u, leader, old, member) for member in held.values())
    return next((why for why in found if why), "") or _hang(u, leader, old, list(held.values()))


def unfit(u: Universe, leader: Leader, old: Status, new: Status, member: str) -> str:
    """Why the member really needs a new pod; empty: nothing is wrong with it but that it is silent.

    Silence counts past a deadline only, and only for a controller that hears another member, or heard this one.
    """
    wrong = _of_pods(u, old, member)
    if isinstance(wrong, str):
        return wrong
    pod, box = wrong
    connected = [one.report for one in leader.heard if one.report.session in leader.reached]
    if any((one.member, one.incarnation) == (member, box.incarnation) and one.pod != box.pod for one in connected):
        return "another pod of its name was heard as that was decided"
    cause = new.incidents[0].cause if new.incidents else None
    state = box.machine
    if cause is not None and member in {cause.member, *cause.tied, cause.suspect.rpartition(".")[0]}:
        return "it is at fault"
    if (old.started_attempt, member) in u.ghost.accused:
        return "it is said to compute wrongly"
    if (old.attempt, member, incarnation(old, member)) in u.ghost.unchecked:
        return "it has not passed a check"
    if state is None or box.sessions > 1 or state.terminated_at is not None or box.ending or box.blind or box.unmounted:
        return f"{box.pod} stops, or starts anew"
    if state.phase in {Phase.STUCK, Phase.DONE} or histories.request(state.history, u.now) is not None:
        return f"{box.pod} is {state.phase.value}, or asks for it"
    late = new.barrier_timeouts > old.barrier_timeouts
    late |= u.now - leader.began >= leader.spec.recovery.pod_start_timeout_seconds * 1000
    if late and (connected or any(one.report.pod == box.pod for one in leader.heard)):
        return f"{box.pod} was late"
    if pod.uid not in leader.looked:
        return f"its watch did not show {pod.uid}"
    shown = signals.against(u, leader, box, at_restart=new.phase is not GangPhase.RUNNING)
    lost = box.node in u.lost | leader.feared or u.ghost.excused == old.attempt
    return _of_pod(pod) or shown or (f"{box.node} is lost" if lost else "")


def _of_pods(u: Universe, old: Status, member: str) -> str | tuple[Pod, Box]:
    """The only pod of the member and what runs in it, or why there isn't one."""
    number = incarnation(old, member)
    pods = [pod for pod in u.pods.values() if (pod.member, pod.incarnation) == (member, number)]
    boxes = [box for box in u.boxes.values() if (box.member, box.incarnation) == (member, number) and not box.exited]
    if len(pods) != 1 or len(boxes) != 1 or boxes[0].pod != pods[0].uid:
        return f"{member} has pods {[pod.uid for pod in pods]}, and {[box.pod for box in boxes]} run"
    return pods[0], boxes[0]


def _of_member(u: Universe, leader: Leader, old: Status, member: str) -> str:
    found = _of_pods(u, old, member)
    if isinstance(found, str):
        return found
    pod, box = found
    node = _of_node(u, leader, box) or signals.against(u, leader, box, at_restart=False)
    return _of_pod(pod) or node or _of_worker(u, leader, box, old.attempt)


def _of_pod(pod: Pod) -> str:
    sick = any(device.health != "Healthy" for device in pod.devices)
    return f"{pod.uid} ends or is sick" if sick or pod.deleting or pod.terminated or pod.conditions else ""


def _of_node(u: Universe, leader: Leader, box: Box) -> str:
    """Nothing tells a broken network from a lost node, if the cluster shows it as lost, nor what was not heard yet."""
    decided = seconds(leader.thought_at + leader.skew)
    heard = any(one.report.pod == box.pod and one.since < decided for one in leader.heard)
    silent = not box.is_reached or not heard or not u.listens
    return f"{box.node} is lost" if box.node in u.lost and silent else ""


def _of_worker(u: Universe, leader: Leader, box: Box, attempt: int) -> str:
    state = box.machine
    if state is None or state.terminated_at is not None or state.stop is not None:
        return f"{box.pod} stops"
    request = histories.request(state.history, u.now)
    if request is not None and request.attempt == attempt:
        return f"{box.pod} asks for a restart"
    ended = {rank for at, name, rank in u.ghost.finished if (at, name) == (attempt, box.member)}
    done = set() if isinstance(u.spec.success_policy, NeverSucceeds) else ended
    alive = {proc.local_rank for proc in box.procs if proc.attempt == attempt and proc.local_rank != CHILD}
    if len(alive | done) == started_processes(u.members[box.member].role):
        return f"{box.pod} was not heard to start" if _is_start_unheard(u, leader, state.session) else ""
    role = next((u.places[place].role for place, holder in u.ghost.ran[1] if holder == box.member), None)
    if role is not None and role.name in waiting_roles(leader.spec, u.status) and state.phase is Phase.READY:
        return ""
    key = (state.session, attempt)
    waits = key in u.ghost.ready and key not in u.ghost.spawned and state.phase is Phase.READY
    if waits and state.missing_step is None and u.now < u.ghost.started_at + START_MS:
        return ""
    return f"{box.pod} runs {sorted(alive)} of attempt {attempt}"


def _is_start_unheard(u: Universe, leader: Leader, session: str) -> bool:
    """Whether no controller has heard that this worker runs, so long after it was told to, and after this one led.

    One that did not start the attempt knows that from the supervisor alone: by what a relay had of it.
    """
    heard = next((at for one, at in u.ghost.heard if one == session), None)
    knows = leader.began <= u.ghost.started_at or any(one.report.session == session for one in leader.heard)
    late = u.now >= max(u.ghost.started_at, leader.began) + START_MS
    return knows and late and (heard is None or heard >= leader.thought_at)


def note_gap(u: Universe, leader: Leader, before: Heard | None, after: Heard) -> None:
    """The longest time between two steps of a rank that a controller has heard of, in the newest attempt."""
    if u.spec.progress.adaptive is None or before is None or not before.connected:
        return
    old, new = before.report.progress, after.report.progress
    if old is None or new is None or old.attempt != new.attempt or new.step <= old.step:
        return
    number, attempt, longest = u.ghost.gap
    same = (number, attempt) == (leader.number, new.attempt)
    gap = (after.at - new.age_ms / 1000) - (before.at - old.age_ms / 1000)
    u.ghost = u.ghost._replace(gap=(leader.number, new.attempt, max(gap, longest if same else 0.0)))


def _hang(u: Universe, leader: Leader, old: Status, held: list[str]) -> str:
    """A gang that isn't heard is none that hangs."""
    progress = u.spec.progress
    if progress.timeout_seconds is None or progress.on_hang != "Restart":
        return ""
    current = {(member, incarnation(old, member)) for member in held}
    boxes = [box for box in u.boxes.values() if (box.member, box.incarnation) in current]
    heard = any(box.is_heard or box.heard_at + LATE_MS >= leader.thought_at for box in boxes)
    unheard = u.ghost.trained_at > leader.thought_at - UNHEARD_MS
    since = max(u.ghost.trained_before if unheard else u.ghost.trained_at, u.ghost.started_at)
    limit: float = min(progress.timeout_seconds, progress.timeout_of("Startup") or progress.timeout_seconds)
    number, attempt, longest = u.ghost.gap
    if progress.adaptive is not None:
        known = longest if (number, attempt) == (leader.number, old.attempt) else 0.0
        limit = min(limit, max(5.0, progress.adaptive.factor * known))
    return "no rank makes a step" if heard and u.now >= since + limit * 1000 else ""
