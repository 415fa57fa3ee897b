"""Kueue, as the simulation has it: one queue with room enough, and the gang's Workload in it. A fake, and it says so.

The queue may evict the gang at any time, people may delete its Workload, and a controller may not know what the queue
says. Invariant 14 is asserted here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gangctl.api.status import GangPhase
from gangctl.api.stored import roles_hash
from gangctl.core.facts.world import Queue, Workload
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy.admission import GIVES_BACK, QueueVerb, TellQueue
from gangctl.core.policy.pods import CreatePod
from tests.simulation.values import Fault, Leader
from tests.simulation.violations import require

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

EVICTED, DELETED, UNKNOWN = "the queue evicts the gang", "the Workload is deleted", "the queue can or can't be read"


def unread(u: Universe) -> Queue:
    """What a controller knows of the queue before it has read anything."""
    return replace(u.queue, known=not u.queue.name, workload=None)


def read(u: Universe) -> Queue:
    """What a controller reads."""
    return u.queue if u.queue.known else unread(u)


def may_admit(u: Universe) -> bool:
    """Whether the queue has something to admit: after an eviction only what has given its quota back."""
    one = u.queue.workload
    return one is not None and not one.admitted and not one.ended and not (one.evicted and one.reserved)


def admit(u: Universe) -> None:
    """The queue gives the gang its quota."""
    assert u.queue.workload is not None
    _put(u, replace(u.queue.workload, admitted=True, reserved=True, evicted=False))


def _put(u: Universe, workload: Workload | None) -> None:
    u.queue = replace(u.queue, workload=workload)


def tell(u: Universe, number: int, told: TellQueue) -> None:
    """A controller changes the Workload. It reads it first: what it knows may be old."""
    leader, one = u.leaders[number], u.queue.workload
    if not u.queue.known:
        return  # It fails, and is tried again when there is something to decide by.
    u.power[f"the queue is told {told.verb}"] += 1
    if told.verb in GIVES_BACK and one is not None:
        _is_free(u, leader, told)
    match told.verb:
        case QueueVerb.JOIN if one is None:
            _put(u, Workload(u.queue.name, roles_hash(leader.spec.roles)))
        case QueueVerb.LEAVE:
            _put(u, None)
        case QueueVerb.READY if one is not None:
            _put(u, replace(one, ready=True))
        case QueueVerb.RELEASE if one is not None and one.evicted:
            _put(u, replace(one, admitted=False, reserved=False, ready=False))
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
    old, new = leader.status, plan.status or leader.status
    stops = new.phase is GangPhase.SUSPENDED and old.phase not in {GangPhase.NEW, GangPhase.SUSPENDED}
    if stops and not leader.spec.suspend and not new.given_back and old.roles_hash == roles:
        require(queue.known, 14, f"the gang stops, and it isn't known what the queue says: {new.message}")


def _is_free(u: Universe, leader: Leader, told: TellQueue) -> None:
    """14: quota is given back only when no worker runs in a pod that is still there."""
    if leader.number != u.newest_leader:
        return
    using = [uid for uid, pod in u.pods.items() if uid in u.boxes and u.boxes[uid].procs and pod.node not in u.lost]
    require(not using, 14, f"{told.verb}, and workers run in {using}")


def is_at_rest(u: Universe) -> bool:
    """6: a gang that has ended keeps no quota."""
    return u.queue.workload is None or u.queue.workload.ended


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


FAULTS: Final[dict[str, Fault]] = {EVICTED: _evict, DELETED: _delete, UNKNOWN: _hide}
"""Not among those that lives of other gangs are drawn from: they name no queue."""
