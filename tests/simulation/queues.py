"""Kueue, as the simulation has it: one queue, and the gang's Workloads in it. A fake, and it says so.

The queue may evict the gang at any time, or only what it has grown by; people may delete its Workload, and a controller
may not know what the queue says. While quota is scarce, an elastic gang gets little more than the least, and nothing to
grow by. Invariant 14 is asserted here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gangctl.api.gangjob import Role
from gangctl.api.roles import roles_hash
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import holders
from gangctl.core.facts.world import Queue, Workload
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy.admission import GIVES_BACK, QueueVerb, TellQueue
from gangctl.core.policy.pods import CreatePod
from gangctl.core.policy.quota import asked_at_first
from tests.simulation.values import Fault, Leader
from tests.simulation.violations import require

FIRST: Final = "w"
"""The Workload that asks for the gang."""

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

EVICTED, DELETED, UNKNOWN = "the queue evicts the gang", "the Workload is deleted", "the queue can or can't be read"
SCARCE, TAKEN = "quota becomes scarce, or plenty", "the queue takes back what the gang has grown by"


def unread(u: Universe) -> Queue:
    """What a controller knows of the queue before it has read anything."""
    return replace(u.queue, known=not u.queue.name, workload=None)


def read(u: Universe) -> Queue:
    """What a controller reads."""
    return u.queue if u.queue.known else unread(u)


def may_admit(u: Universe) -> bool:
    """Whether the queue has something to admit: after an eviction only what has given its quota back."""
    return _admissible(u.queue.workload) or (not u.scarce and any(map(_admissible, u.queue.more)))


def _admissible(one: Workload | None) -> bool:
    return one is not None and not one.admitted and not one.ended and not (one.evicted and one.reserved)


def admit(u: Universe) -> None:
    """The queue gives the gang its quota, or what it asks for to grow; with one pod more than the least if scarce."""
    one, more = u.queue.workload, u.queue.more
    if one is not None and _admissible(one):
        few = {asked.role: min(asked.pods, asked.least + 1) for asked in asked_at_first(u.spec)}
        _put(u, replace(one, admitted=True, reserved=True, evicted=False, pods=few if u.scarce else one.pods))
    else:
        given = [replace(one, admitted=True, reserved=True) if _admissible(one) else one for one in more]
        u.queue = replace(u.queue, more=tuple(given))


def _put(u: Universe, workload: Workload | None) -> None:
    u.queue = replace(u.queue, workload=workload)


def tell(u: Universe, number: int, told: TellQueue) -> None:
    """A controller changes the Workload. It reads it first: what it knows may be old."""
    leader, one = u.leaders[number], u.queue.workload
    if not u.queue.known:
        return  # It fails, and is tried again when there is something to decide by.
    u.power[f"the queue is told {told.verb}"] += 1
    if told.verb in GIVES_BACK and told.verb is not QueueVerb.GIVE and one is not None and not told.workload:
        _is_free(u, leader, told)
    match told.verb:
        case QueueVerb.JOIN if one is None:
            pods = {asked.role: asked.pods for asked in asked_at_first(leader.spec)}
            _put(u, Workload(u.queue.name, roles_hash(leader.spec.roles), name=FIRST, pods=pods))
        case QueueVerb.GROW:
            name = f"{FIRST}-{leader.status.attempt}"
            pods = {asked.role: asked.pods for asked in told.pods}
            if all(one.name != name for one in u.queue.more):
                asked = Workload(u.queue.name, roles_hash(leader.spec.roles), name=name, pods=pods)
                u.queue = replace(u.queue, more=(*u.queue.more, asked))
        case QueueVerb.GIVE:
            _give(u, told)
            _fits(u, leader, told)
        case QueueVerb.LEAVE if told.workload:
            u.queue = replace(u.queue, more=tuple([one for one in u.queue.more if one.name != told.workload]))
            _fits(u, leader, told)
        case QueueVerb.LEAVE:
            _put(u, None)
        case QueueVerb.READY if told.workload:
            more = [replace(one, ready=True) if one.name == told.workload else one for one in u.queue.more]
            u.queue = replace(u.queue, more=tuple(more))
        case QueueVerb.READY if one is not None:
            _put(u, replace(one, ready=True))
        case QueueVerb.RELEASE if one is not None and one.evicted:
            pods = {asked.role: asked.pods for asked in asked_at_first(leader.spec)}
            _put(u, replace(one, admitted=False, reserved=False, ready=False, pods=pods))
        case QueueVerb.SUCCEED | QueueVerb.FAIL if one is not None:
            _put(u, replace(one, ended=True))
    u.leaders[number] = leader._replace(queue=u.queue, dirty=True)


def decided(leader: Leader, plan: Plan) -> None:
    """14: no pod is created unless the queue is known to admit the gang's roles, and no gang stops for not knowing."""
    queue, one, roles = leader.queue, leader.queue.workload, roles_hash(leader.spec.roles)
    if not queue.name:
        return
    if any(isinstance(action, CreatePod) for action in plan.actions):
        admits = one is not None and one.admitted and not one.ended and one.roles_hash == roles
        require(queue.known and admits, 14, f"a pod is created, and the queue says {queue}")
        created = {action.member for action in plan.actions if isinstance(action, CreatePod)}
        there = created | {pod.member for pod in leader.pods if not pod.deleting and not pod.terminated}
        for role in leader.spec.roles:
            needs = sum(name.rpartition("-")[0] == role.name for name in there)
            has = granted(queue, role, held=True)
            require(needs <= has, 14, f"{needs} members of {role.name} have pods, and quota for {has}")
    old, new = leader.status, plan.status or leader.status
    stops = new.phase is GangPhase.SUSPENDED and old.phase not in {GangPhase.NEW, GangPhase.SUSPENDED}
    if stops and not leader.spec.suspend and not new.given_back and old.roles_hash == roles:
        require(queue.known, 14, f"the gang stops, and it isn't known what the queue says: {new.message}")


def granted(queue: Queue, role: Role, *, held: bool = False) -> int:
    """For how many pods of the role there is quota. ``held``: what the queue wants back, and hasn't yet, counts."""
    one, everyone = queue.workload, role.replicas + role.spares
    first = everyone if one is None else one.pods.get(role.name, everyone)
    return first + sum(one.pods.get(role.name, 0) for one in queue.more if one.gives or (held and one.reserved))


def _give(u: Universe, told: TellQueue) -> None:
    kept = {one.role: one.pods for one in told.pods}
    for one in (u.queue.workload, *u.queue.more):
        if one is not None and one.name == told.workload:
            less = all(kept[role] <= number for role, number in one.pods.items())
            require(less or not one.reserved, 14, f"{one.name} is to keep {kept} of {one.pods}, and quota only falls")
    given = [replace(one, pods=kept) if one.name == told.workload else one for one in u.queue.more]
    u.queue = replace(u.queue, more=tuple(given))
    if u.queue.workload is not None and told.workload == FIRST:
        _put(u, replace(u.queue.workload, pods=kept))


def _fits(u: Universe, leader: Leader, told: TellQueue) -> None:
    """14: quota is given back only when no worker runs for which it was."""
    one = u.queue.workload
    if leader.number != u.newest_leader or one is None or not one.gives:
        return
    using = {pod.member for uid, pod in u.pods.items() if uid in u.boxes and u.boxes[uid].procs}
    using -= {pod.member for pod in u.pods.values() if pod.node in u.lost}
    for role in leader.spec.roles:
        needs, has = sum(name.rpartition("-")[0] == role.name for name in using), granted(u.queue, role, held=True)
        require(needs <= has, 14, f"{told}, and workers run in {using}, with quota for {has}")


def takes_back(leader: Leader) -> str:
    """Why a gang that runs is stopped for its queue, as it really is; empty: nothing asks for it."""
    places = Counter(role for role, _ in (place.rsplit("-", 1) for place in holders(leader.spec, leader.status)))
    lacks = [role.name for role in leader.spec.roles if granted(leader.queue, role) < places[role.name]]
    return f"the queue has taken quota of {lacks} back" if lacks and leader.queue.known else ""


def _is_free(u: Universe, leader: Leader, told: TellQueue) -> None:
    """14: quota is given back only when no worker runs in a pod that is still there."""
    if leader.number != u.newest_leader:
        return
    using = [uid for uid, pod in u.pods.items() if uid in u.boxes and u.boxes[uid].procs and pod.node not in u.lost]
    require(not using, 14, f"{told.verb}, and workers run in {using}")


def is_at_rest(u: Universe) -> bool:
    """6: a gang that has ended keeps no quota."""
    return (u.queue.workload is None or u.queue.workload.ended) and not u.queue.more


def _evict(u: Universe, _: int) -> None:
    one = u.queue.workload
    if one is not None and one.reserved and not one.ended:
        _put(u, replace(one, admitted=False, evicted=True))


def _delete(u: Universe, _: int) -> None:
    _put(u, None)


def _hide(u: Universe, _: int) -> None:
    u.queue = replace(u.queue, known=not u.queue.known)
    for number, leader in u.leaders.items():
        u.leaders[number] = leader._replace(queue=read(u), dirty=True)


def _scarce(u: Universe, _: int) -> None:
    u.scarce = not u.scarce


def _take(u: Universe, _: int) -> None:
    taken = [replace(one, admitted=False, evicted=True) if one.gives else one for one in u.queue.more]
    u.queue = replace(u.queue, more=tuple(taken))


FAULTS: Final[dict[str, Fault]] = {EVICTED: _evict, DELETED: _delete, UNKNOWN: _hide, SCARCE: _scarce, TAKEN: _take}
"""Not among those that lives of other gangs are drawn from: they name no queue."""
