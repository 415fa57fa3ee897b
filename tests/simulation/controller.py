"""A controller process: looks, decides, writes the status, and only then acts and tells the members.

Each of these is a step of its own, so that it can be killed between any two of them, and others can act meanwhile. All
that it knows is in a :class:`~tests.simulation.values.Leader`; a new one begins with the API server and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from gangctl.cluster.sightings import first_seen, seen_again
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy import brake
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.checks import AskCheck
from gangctl.core.policy.pods import CreatePod, DeletePod
from tests.simulation import beside, invariants, queues, relayed, restored, sidecars, signals, truth
from tests.simulation.engine import observed
from tests.simulation.hub import tell_all
from tests.simulation.universe import Universe
from tests.simulation.values import Leader, seconds
from tests.simulation.violations import require

RETRY_MS = 1_000
RENEW_DEADLINE_MS = 10_000
"""A process that does not lead any more goes on for so long at most: the Lease was deleted, and it can't read it."""
AT_ONCE = 4
"""Decisions of one second for each of which the plan before has asked, with nothing new."""


class Watch(Enum):
    """What a controller follows in the API: each lags by itself. ``Leader.synced`` has times of the first three."""

    GANG = auto()
    PODS = auto()
    NODES = auto()
    QUEUE = auto()


class Write(Enum):
    """What a status write comes to."""

    DONE = auto()
    CONFLICT = auto()
    TIMEOUT_STORED = auto()
    """No answer came, and it was stored."""
    TIMEOUT_LOST = auto()


def begin(u: Universe) -> int:
    """A controller process becomes the leader."""
    u.newest_leader += 1
    number = u.newest_leader
    u.leaders[number] = Leader(
        number=number,
        skew=u.skew,
        began=u.now,
        since=u.now + u.skew,
        status=u.status,
        version=u.version,
        spec=u.spec,
        generation=u.generation,
        written=_pods(u),
        pods=tuple(first_seen(pod, u.wall) for pod in _pods(u)),
        lost=_lost(u, frozenset(), u.skew),
        signals=signals.first_seen(u),
        synced=(u.now, u.now, u.now),
        queue=queues.unread(u),
    )
    return number


def end(u: Universe, number: int) -> None:
    """The process is gone, with its memory and its connections."""
    relayed.hang_up(u, number)
    del u.leaders[number]


def lease_ends(u: Universe) -> int | None:
    """When those who don't lead any more have noticed it; None = there are none."""
    newest = u.leaders.get(u.newest_leader)
    return None if len(u.leaders) < 2 or newest is None else newest.began + RENEW_DEADLINE_MS


def lose_leases(u: Universe) -> None:
    """Who doesn't lead any more notices it in time; the connections of one that is frozen end."""
    until = lease_ends(u)
    if until is None or u.now < until:
        return
    for number, leader in list(u.leaders.items()):
        if number != u.newest_leader and not leader.frozen:
            end(u, number)
        elif number != u.newest_leader:
            relayed.hang_up(u, number)


def thaw(u: Universe, number: int) -> None:
    """It runs on, and notices which connections have ended meanwhile."""
    leader = u.leaders[number]
    linked = {uid for uid, box in u.boxes.items() if box.link == number and box.is_heard}
    heard = tuple(replace(one, connected=one.connected and one.report.pod in linked) for one in leader.heard)
    lost = leader.lost_links
    if u.relays and heard != leader.heard:
        lost = lost.with_another(seconds(u.clock(leader)))
    u.leaders[number] = leader._replace(frozen=False, dirty=True, heard=heard, lost_links=lost)


def stale(u: Universe, leader: Leader) -> tuple[Watch, ...]:
    """Which of its watches have something that it hasn't seen."""
    news = (
        leader.version != u.version,
        leader.written != _pods(u) or leader.refused != _refused(u),
        frozenset(node for node, _ in leader.lost) != u.lost or {one.signal for one in leader.signals} != u.signals,
        leader.queue != queues.read(u),
    )
    return tuple(watch for watch, is_news in zip(Watch, news, strict=True) if is_news)


def sync(u: Universe, number: int, watches: tuple[Watch, ...] = tuple(Watch)) -> None:
    """Some of its watches deliver: each lags by itself."""
    leader = u.leaders[number]
    told = leader.version != u.version and Watch.GANG in watches
    changed = any(watch in watches for watch in stale(u, leader))
    synced = tuple(u.now if watch in watches else at for watch, at in zip(Watch, leader.synced, strict=False))
    leader = leader._replace(synced=synced, dirty=leader.dirty or changed)
    if told:
        leader = leader._replace(status=u.status, version=u.version, spec=u.spec, generation=u.generation, plan=None)
    if Watch.PODS in watches:
        leader = leader._replace(written=_pods(u), pods=_seen(u, leader), refused=_refused(u))
    if Watch.NODES in watches:
        leader = leader._replace(lost=_lost(u, leader.lost, leader.skew), signals=signals.seen(u, leader))
    if Watch.QUEUE in watches:
        leader = leader._replace(queue=queues.read(u))
    u.leaders[number] = leader
    if told:
        tell_all(u, number)


def wants_to_think(u: Universe, leader: Leader) -> bool:
    """One reconcile at a time, when something has changed or the time has come."""
    idle = leader.plan is None and not leader.todo and not leader.frozen
    return idle and (leader.dirty or (leader.wake_at is not None and u.now >= leader.wake_at))


def think(u: Universe, number: int) -> None:
    """Observe and decide."""
    leader = u.leaders[number]
    if not u.engine.searching:
        leader = _braked(u, leader)
    plan = u.engine.decide(u.clock(leader), leader, u.job_of)
    queues.decided(leader, plan)
    if not u.engine.searching:
        woken = () if leader.dirty else (*(at for at in leader.woken if at > u.now - 1000), u.now)
        require(len(woken) <= AT_ONCE, 15, f"{len(woken)} decisions in a second, and nothing changes: {plan.because}")
        leader = leader._replace(woken=woken)
    wake = None if plan.requeue_after is None else u.now + max(1, round(plan.requeue_after * 1000))
    looked = frozenset(pod.uid for pod in leader.pods)
    reached = frozenset(one.report.session for one in leader.heard if one.connected)
    corrupt = restored.corrupt_since(leader)
    thought = leader._replace(
        dirty=False,
        wake_at=wake,
        looked=looked,
        feared=frozenset(node for node, _ in leader.lost),
        reached=reached,
        thought_at=u.now,
        corrupt=corrupt,
    )
    if plan.status is not None and plan.status != leader.status:
        u.leaders[number] = thought._replace(plan=plan)
    else:
        u.leaders[number] = thought._replace(todo=plan.actions)
        _end_round(u, number)


def _braked(u: Universe, leader: Leader) -> Leader:
    """It counts who is silent before it decides: the controller has no other gang."""
    now = seconds(u.clock(leader))
    gang = Gang(now, u.job_of(leader.spec, leader.generation, leader.status), observed(leader))
    return leader._replace(brake=brake.update_brake(leader.brake, now, [brake.census(gang)]))


def _end_round(u: Universe, number: int) -> None:
    """The hub forgets the reports of pods that are neither there, nor awaited, nor connected."""
    leader = u.leaders[number]
    if leader.todo:
        return
    needed = {pod.uid for pod in leader.pods} | {entry.pod for entry in leader.status.awaited} | leader.looked
    heard = tuple(one for one in leader.heard if one.connected or one.report.pod in needed)
    if len(heard) < len(leader.heard):
        u.leaders[number] = leader._replace(heard=heard)
    truth.round_ends(u, leader)


def write(u: Universe, number: int, outcome: Write) -> None:
    """The status first: what follows from it is done only when it is stored."""
    leader = u.leaders[number]
    plan = leader.plan
    assert plan is not None
    assert plan.status is not None
    if leader.version != u.version or outcome is Write.CONFLICT:
        u.leaders[number] = leader._replace(plan=None, dirty=True)
        sync(u, number, (Watch.GANG,))
        return
    if outcome is not Write.TIMEOUT_LOST:
        if not u.engine.searching:
            invariants.storable(plan.status)
        u.store(leader, plan.status)
    if outcome is not Write.DONE:
        u.leaders[number] = leader._replace(plan=None, wake_at=u.now + RETRY_MS)
        return
    u.leaders[number] = leader._replace(plan=None, status=u.status, version=u.version, todo=plan.actions, dirty=True)
    tell_all(u, number)
    _end_round(u, number)


def act(u: Universe, number: int) -> None:
    """The next action of a plan whose status is stored."""
    leader = u.leaders[number]
    action, todo = leader.todo[0], leader.todo[1:]
    u.leaders[number] = leader._replace(todo=todo)
    match action:
        case CreatePod(member, incarnation):
            if u.creation_fails:
                u.leaders[number] = leader._replace(todo=todo, dirty=True)
            else:
                u.create_pod(member, incarnation)
        case DeletePod(_, uid):
            pod = u.pods.get(uid)
            if pod is not None and not pod.deleting:
                invariants.deleted(u, action)
                u.delete_pod(uid)
        case AskScan(pod, scan):
            box = u.boxes.get(pod)
            if box is not None and box.link == number:
                sidecars.tell(u, pod, scan)
        case AskCheck(pod, check):
            box = u.boxes.get(pod)
            if box is not None and box.link == number and check not in box.down:
                sidecars.tell(u, pod, check)
        case TellQueue():
            queues.tell(u, number, action)
    _end_round(u, number)


def _pods(u: Universe) -> tuple:  # type: ignore[type-arg]
    pods = tuple(u.pods[uid] for uid in sorted(u.pods))
    for pod in pods if not u.engine.searching else ():
        beside.check(pod)
    return pods


def _lost(u: Universe, known: frozenset[tuple[str, int]], skew: int) -> frozenset[tuple[str, int]]:
    """Which nodes don't answer, and since when the process sees it."""
    since = dict(known)
    return frozenset((node, since.get(node, u.now + skew)) for node in u.lost)


def _seen(u: Universe, leader: Leader) -> tuple[Pod, ...]:
    now = seconds(u.clock(leader))
    before = dict(zip((pod.uid for pod in leader.written), zip(leader.written, leader.pods, strict=True), strict=True))
    return tuple(
        seen_again(pod, *before[pod.uid], now) if pod.uid in before else first_seen(pod, now) for pod in _pods(u)
    )


def _refused(u: Universe) -> tuple[str, ...]:
    return ("exceeded quota",) if u.creation_fails else ()
