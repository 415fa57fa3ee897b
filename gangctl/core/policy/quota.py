"""Quota: for how many members of its elastic roles a gang has quota in its queue, and what it asks for and gives back.

    granted(r) = pods of r for which the queue has admitted the gang's Workloads, without those that it gave back
    kept(r)    = members of r without those that the status has as ``withoutQuota``: only these have pods

    gives back <=> granted(r) > kept(r) and it doesn't ask, once no more than kept(r) pods of r are there
    asks       <=> kept(r) < all members of r, and now >= grows_at (``size.py``)
    has it     <=> it asks, and granted(r) > kept(r): the members get their pods, and the gang grows (``growth.py``)
    loses it   <=> granted(r) < kept(r)

The rule: the first attempt starts with the largest allowed size for which the queue has admitted it, and a smaller
attempt gives the quota of the others back. A gang asks for more by a second Workload, since the quota of an admitted
one only falls. What isn't used within ``shrinkAfterSeconds`` is given back; that counts as a stop to grow, so the next
time comes later. If the queue takes the second one back, the gang stops, as planned, and goes on without those members.

Spares keep their quota. A gang whose pods the queue places itself (topology) keeps all quota, and asks for no more.
What must not happen: a pod without quota; quota that is given back while its pod is there; a larger size before the
queue gives quota for it.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gangctl.api.gangjob import Role, Spec
from gangctl.api.model import changed
from gangctl.api.names import member_name
from gangctl.api.reasons import Reason
from gangctl.api.roles import members_of
from gangctl.api.status import GangPhase, Replaced, Size, Status
from gangctl.core.facts.fitness import Defect, ready
from gangctl.core.facts.gang import Gang, coming_attempt
from gangctl.core.facts.world import Workload
from gangctl.core.policy import admission, growth, pods, size
from gangctl.core.policy.admission import PodsAsked, QueueVerb, TellQueue
from gangctl.words import decisions, warnings
from gangctl.words.message import Message

# What is asked for


def asked_at_first(spec: Spec) -> tuple[PodsAsked, ...]:
    """What the Workload of a gang asks for: all pods; of the first elastic role, fewer are enough (as Kueue has it)."""
    elastic = size.elastic_roles(spec)[:1]
    return tuple(
        [
            PodsAsked(role.name, all_of(role), _least(role) + role.spares if role in elastic else all_of(role))
            for role in spec.roles
        ]
    )


def all_of(role: Role) -> int:
    """How many members the role has, spares included."""
    return role.replicas + role.spares


def _least(role: Role) -> int:
    """The least size at which the status has room to name the others."""
    return next(one for one in reversed(size.allowed_sizes(role)) if role.replicas - one <= pods.MAX_REPLACED)


def _asked_to_grow(gang: Gang) -> tuple[PodsAsked, ...]:
    asked: list[PodsAsked] = []
    for role in size.elastic_roles(gang.spec):
        kept = size.with_quota(gang, role)
        more = all_of(role) - kept
        larger = [one for one in size.allowed_sizes(role) if one + role.spares > kept]
        if more:
            asked.append(PodsAsked(role.name, more, more if asked else larger[-1] + role.spares - kept))
    return tuple(asked)


# What the gang has


def follows(gang: Gang) -> bool:
    """Whether the queue's answer is known, it admits the gang, and the size of the gang can follow its quota."""
    queue = gang.observed.queue
    one = queue.workload
    return bool(queue.name) and gang.is_elastic and admission.is_admitted(gang) and not (one and one.places_pods)


def granted(gang: Gang, role: Role) -> int:
    """For how many members of the role the queue has given quota, spares included."""
    queue = gang.observed.queue
    first = all_of(role) if queue.workload is None else queue.workload.pods.get(role.name, all_of(role))
    return first + sum(one.pods.get(role.name, 0) for one in queue.more if one.gives)


def admitted(gang: Gang, status: Status) -> Status:
    """The status of a gang that gets its first pods: with as many members as its queue has admitted."""
    if not gang.observed.queue.name or not gang.is_elastic:
        return status
    sizes, without = dict[str, int](), list[str]()
    small = [role for role in size.elastic_roles(gang.spec) if granted(gang, role) < all_of(role)]
    for role in small:
        fits = size.largest_fit(role, granted(gang, role) - role.spares) or _least(role)
        sizes[role.name] = fits
        without += [member_name(role.name, at) for at in range(fits + role.spares, all_of(role))]
    if not small:
        return status
    base, attempt = status.base_incarnation, status.attempt
    entries = [
        Replaced(member=name, incarnation=base, attempt=attempt, time=gang.now, without_quota=True) for name in without
    ]
    sized = size.smaller_size(
        gang.with_status(status), status.size or Size(), small, sizes, queue=gang.observed.queue.name
    )
    return changed(status, size=sized, replaced=tuple(entries))


# What changes


class Change(NamedTuple):
    """What is written because the quota changes, and why."""

    status: Status
    because: Message


def given_back(gang: Gang, status: Status, holders: Collection[str]) -> Status:
    """The status of an attempt that starts with another size: its members without place and use have no quota.

    ``holders``: the members that have a place.
    """
    if not follows(gang):
        return status
    surplus = [name for role in size.elastic_roles(gang.spec) for name in _idle(gang, role, holders)]
    return _without(gang, status, surplus) if pods.has_room(status, surplus) else status


def taken(gang: Gang) -> Change | None:
    """Return what follows if the queue takes quota back and no worker runs in the pods that must go; None if not so."""
    kept, because = _lost(gang), quota_reclaimed(gang)
    if not kept:
        return None
    runs = gang.status.phase is GangPhase.RUNNING
    needed = gang.holding if runs else frozenset[str]()
    names = [name for role in kept for name in _ranked(gang, role, needed)[granted(gang, role) :]]
    status = _without(gang, _stop_asking(gang, gang.status), names)
    return Change(status, decisions.members_without_quota(names, str(because)))


def must_stop(gang: Gang) -> bool:
    """Whether the queue takes quota back that the running attempt uses."""
    places = Counter(member.role.name for member in gang.places.values())
    return any(granted(gang, role) < places[role.name] for role in _lost(gang))


def quota_reclaimed(gang: Gang) -> Message:
    """Return that the queue takes quota back, in its own words."""
    said = next((one.said for one in reversed(gang.observed.queue.more) if not one.gives and one.said), "")
    return decisions.quota_reclaimed(gang.observed.queue.name, said)


def changes(gang: Gang) -> Change | None:
    """Return what is written while the gang runs, to ask for quota, to use it, or to give it back; None if nothing."""
    queue, old, known = gang.observed.queue.name, gang.status, gang.status.size or Size()
    if not queue and gang.without_quota:
        names = sorted(gang.without_quota)
        return Change(_with_quota(gang, _stop_asking(gang, old), names), decisions.quota_not_needed(names))
    if not (gang.without_quota or known.given_time) or not follows(gang):
        return None
    if known.asked_time:
        names = [name for role in size.elastic_roles(gang.spec) for name in _gained(gang, role)]
        if not names:
            return None
        sized = changed(known, asked_time=0.0, given_time=gang.now)
        return Change(_with_quota(gang, changed(old, size=sized), names), decisions.quota_given(queue, names))
    if known.given_time:
        if (due := _used_by(gang)) is None or gang.now < due:
            return None
        names = [name for role in size.elastic_roles(gang.spec) for name in _idle(gang, role, gang.holding)]
        because = decisions.quota_not_used(queue, names, gang.spec.recovery.shrink_after_seconds)
        return Change(_without(gang, _stop_asking(gang, old), names), because)
    asked = sum(one.pods for one in _asked_to_grow(gang))
    if not asked or gang.now < size.grows_at(gang):
        return None
    return Change(changed(old, size=changed(known, asked_time=gang.now)), decisions.quota_asked(queue, asked))


def looks_at(gang: Gang) -> float | None:
    """When to look again though nothing happens; None if only the queue is waited for."""
    known = gang.status.size or Size()
    if not follows(gang) or known.asked_time:
        return None
    return _used_by(gang) if known.given_time else size.grows_at(gang)


def smaller(gang: Gang) -> Message | None:
    """Return that a gang lacks the quota to grow, and when it asks for it or for what it waits; None if it has it."""
    queue, known = gang.observed.queue, gang.status.size
    if known is None or known.given_time or not gang.without_quota or not queue.name:
        return None
    if queue.workload is not None and queue.workload.places_pods:
        return warnings.runs_smaller(known.reason, "Resume", queue=queue.name)
    if not known.asked_time:
        return warnings.runs_smaller(known.reason, "Asking", size.grows_at(gang), queue.name)
    said = next((one.said for one in queue.more if not one.gives), "")
    return warnings.runs_smaller(known.reason, "Quota", queue=queue.name, words=said)


def _lost(gang: Gang) -> list[Role]:
    roles = size.elastic_roles(gang.spec) if follows(gang) else ()
    return [role for role in roles if granted(gang, role) < size.with_quota(gang, role)]


def _gained(gang: Gang, role: Role) -> list[str]:
    """The members for which there is quota now, as far as it makes a larger size."""
    fits = size.largest_fit(role, granted(gang, role) - role.spares) + role.spares
    more = max(0, fits - size.with_quota(gang, role))
    return [one.name for one in members_of(role) if one.name in gang.without_quota][:more]


def _idle(gang: Gang, role: Role, holders: Collection[str]) -> list[str]:
    """The members with quota beyond those of ``holders`` and as many spares as are wanted."""
    places = sum(one.name in holders for one in members_of(role))
    return _ranked(gang, role, holders)[places + role.spares :]


def _ranked(gang: Gang, role: Role, needed: Collection[str]) -> list[str]:
    """The members with quota: first those that are needed, then those that are ready."""
    names, there = [one.name for one in members_of(role) if one.name not in gang.without_quota], ready(gang)
    return sorted(names, key=lambda name: (name not in needed, name not in there))


def _used_by(gang: Gang) -> float | None:
    """Until when the quota that was given may be unused; None once more members are ready."""
    since = 0.0 if gang.status.size is None else gang.status.size.given_time
    unused = any(_idle(gang, role, gang.holding) for role in size.elastic_roles(gang.spec))
    return since + gang.spec.recovery.shrink_after_seconds if unused and not growth.could_grow(gang) else None


def _stop_asking(gang: Gang, status: Status) -> Status:
    stops = [*size.recent_stops(gang), gang.now][-size.MAX_STOPS :]
    known = changed(status.size or Size(), asked_time=0.0, given_time=0.0, stops=tuple(stops))
    return changed(status, size=known)


def _without(gang: Gang, status: Status, names: Collection[str]) -> Status:
    """The status in which these members have no pod, and no quota for it."""
    why = Defect(Reason.QUOTA_CHANGED, "")
    status = pods.replace_members(gang, status, dict.fromkeys(names, why))
    entries = [changed(one, without_quota=True, failures=0) if one.member in names else one for one in status.replaced]
    return changed(status, replaced=tuple(entries))


def _with_quota(gang: Gang, status: Status, names: Collection[str]) -> Status:
    """The status in which these members get their pod."""
    attempt = coming_attempt(status)
    entries = [
        changed(one, without_quota=None, attempt=attempt, time=gang.now) if one.member in names else one
        for one in status.replaced
    ]
    return changed(status, replaced=tuple(entries))


# What the queue is told


def queue_actions(gang: Gang, status: Status) -> tuple[TellQueue, ...]:
    """What the queue is told of members by which the gang grows or has shrunk, once ``status`` is stored."""
    queue = gang.observed.queue
    if not queue.known:
        return ()
    told = gang.with_status(status)
    wanted = follows(told) and status.phase not in {GangPhase.SUSPENDED, GangPhase.SUCCEEDED, GangPhase.FAILED}
    if not wanted:
        is_free = not admission.uses_quota(gang)
        return tuple([TellQueue(QueueVerb.LEAVE, workload=one.name) for one in queue.more if is_free][:1])
    pending = [one for one in queue.more if not one.gives and not one.evicted and not one.ended]
    if status.size is not None and status.size.asked_time and status.phase is not GangPhase.HELD:
        has_it = any(excess > 0 for excess in _excess(told).values())
        back = _to_give_back(told)  # Only what was evicted: it makes room for the next.
        return () if pending or has_it else back or (TellQueue(QueueVerb.GROW, pods=_asked_to_grow(told)),)
    leaves = [TellQueue(QueueVerb.LEAVE, workload=one.name) for one in pending][:1]
    return tuple(leaves) or _to_give_back(told) or _started(told)


def _started(gang: Gang) -> tuple[TellQueue, ...]:
    """What Kueue waits for where it has `waitForPodsReady`: otherwise it evicts what the gang has grown by."""
    runs = gang.status.phase is GangPhase.RUNNING and _used_by(gang) is None
    waiting = [one.name for one in gang.observed.queue.more if one.gives and not one.ready] if runs else []
    return tuple([TellQueue(QueueVerb.READY, str(gang.status.message), workload=name) for name in waiting[:1]])


def _excess(gang: Gang) -> dict[str, int]:
    """Elastic role -> for how many more pods there is quota than the gang keeps."""
    return {one.name: granted(gang, one) - size.with_quota(gang, one) for one in size.elastic_roles(gang.spec)}


def _to_give_back(gang: Gang) -> tuple[TellQueue, ...]:
    """The first of the gang's Workloads that has more quota than the gang keeps, the newest first."""
    roles, queue, excess = size.elastic_roles(gang.spec), gang.observed.queue, _excess(gang)
    there = Counter(pod.member.rpartition("-")[0] for pod in gang.observed.pods if admission.takes_quota(gang, pod))
    if any(one < 0 for one in excess.values()) or any(there[one.name] > size.with_quota(gang, one) for one in roles):
        return ()
    for one in reversed(queue.more):
        if not one.gives or all(number <= excess.get(name, 0) for name, number in one.pods.items()):
            return (TellQueue(QueueVerb.LEAVE, workload=one.name),)
        if any(excess.get(name, 0) > 0 for name in one.pods):
            return (_give(one, excess),)
    assert queue.workload is not None
    return (_give(queue.workload, excess),) if any(excess.values()) else ()


def _give(one: Workload, excess: Mapping[str, int]) -> TellQueue:
    kept = [PodsAsked(name, number - min(number, excess.get(name, 0))) for name, number in one.pods.items()]
    return TellQueue(QueueVerb.GIVE, workload=one.name, pods=tuple(kept))
