"""Pods: which are created, deleted and replaced, and which nodes they avoid.

Pods: which are created and deleted, so that the cluster comes to what the status says.

The rule: every member has one pod, of its current incarnation; older ones are deleted. A pod must not be deleted unless
the status gives it up, and must not be forgotten before it is known to run nothing. So a pod in which a worker may have
run is never made again: it is missing, and its member gets the next incarnation; none while the others run, if it has
finished. A gang that names a queue gets no pod while it isn't known that the queue admits it.

Where the queue places each pod (topology), or the template has a gate, a member's next pod is created when its last one
has ended, or is being deleted on a lost node. Kueue counts pods that haven't ended, and knows members by their index:
if two pods have the same, it gives free places to any members.

Replacement: which members get a new pod, and which nodes it avoids.

The rule: a member whose pod can't go on is replaced at once: the status raises its incarnation before its pod is
deleted. The new pod must avoid the node on evidence against the node itself, else it prefers to. A pod must not be
given up without remembering it: until it is known to be gone, the barrier waits for it. Replacements that fail before
their worker has started back off, 10 to 300 s, and so do those that are disrupted within ten minutes: nothing else
would end such a row.

A status has room for few members that differ from the others. Where there would be more, every pod is replaced, spares
of a running gang excepted: they wait. A status must not become too large to be stored.

Degradation: a slow rank gets another pod, where a rule with ``onReasons: [DeviceDegraded]`` asks for it.

    leaves(rank) = it is slow (facts/progress.py), the first rule that matches says so, and it was not moved before
                   and the rule doesn't count, or the budget allows one more restart

All ranks have the time to save, as in a drain, and the budget is charged only by a rule that counts. Where it is used
up, the gang trains on: a move that nothing forces must not end the job. A rank that is
slow in another pod as well must not be moved again: its work is slow, and not its device. One moves at a time, the
slowest; where no rule matches, a slow rank is only told (``record/degraded.py``).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from gangctl.api.model import changed
from gangctl.api.policy import Action, OnReason
from gangctl.api.reasons import Reason
from gangctl.api.roles import members_of
from gangctl.api.status import GangPhase, Recreated, Replaced, Status
from gangctl.core.facts import progress
from gangctl.core.facts.barrier import await_pods, awaits, still_awaited, still_awaited_all
from gangctl.core.facts.evidence import Fault, default
from gangctl.core.facts.faults import faults
from gangctl.core.facts.fitness import Defect, defect, starting_members
from gangctl.core.facts.gang import Gang, coming_attempt, holders, is_fresh, once, raised_incarnations
from gangctl.core.facts.progress import Slow, finished_places
from gangctl.core.policy import admission, recovery, size
from gangctl.core.policy.cause import Verdict, verdict
from gangctl.core.policy.recovery import STEADY_SECONDS
from gangctl.words.faults import rank_slow
from gangsidecar.wire import Level

# Pods


ENDING_MARGIN_SECONDS = 15.0
"""After the grace, a pod that was told to finish and hasn't ended is deleted."""
MAX_CREATED: Final = 512
"""So many pods are created by one plan; the next one goes on. A plan costs memory as long as it waits for slots, though
the cluster may take no pod of the gang."""
_WITH_PODS = frozenset({GangPhase.PENDING, GangPhase.GATHERING, GangPhase.RUNNING, GangPhase.HELD})


class CreatePod(NamedTuple):
    """Create the pod of a member's incarnation. Its name makes doing it twice harmless."""

    member: str
    incarnation: int
    avoid: tuple[str, ...] = ()
    required: bool = False


class DeletePod(NamedTuple):
    """Delete one pod, by name and UID."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """Absent = the pod's own grace period."""


def actions(gang: Gang, status: Status, *, create: bool = True) -> tuple[CreatePod | DeletePod, ...]:
    """What makes the cluster's pods those of ``status``. ``create``: false while a provisional end is waited for."""
    entries, base = {entry.member: entry for entry in status.replaced}, status.base_incarnation
    current, present = raised_incarnations(status), gang.with_status(status).pods
    made: list[CreatePod] = []
    if create and len(present) < len(gang.members) and status.phase in _WITH_PODS and _may_create(gang, status):
        workers, kept = _of_workers(gang, status), _keeping_places(gang)
        missing = (
            _create(name, base, entries.get(name))
            for name in gang.members
            if name not in present
            and name not in workers
            and name not in kept
            and not (name in entries and entries[name].without_quota)
            and gang.now >= creatable_at(entries.get(name, status.recreated))
        )
        made += islice(missing, MAX_CREATED)
    awaited = {entry.pod for entry in status.awaited}
    gone = [
        DeletePod(pod.name, pod.uid)
        for pod in (gang.observed.pods if len(present) < len(gang.observed.pods) else ())
        if not pod.deleting
        and (pod.member not in gang.members or pod.incarnation < current.get(pod.member, base))
        and not (pod.terminated and pod.uid in awaited)
    ]
    return (*made, *gone)


def _may_create(gang: Gang, status: Status) -> bool:
    """Whether its queue and the API server take its pods."""
    return admission.is_admitted(gang) and admission.creates(gang, status)


def _of_workers(gang: Gang, status: Status) -> frozenset[str]:
    """The members in whose pods a worker may have run: if one is missing, it is not made again."""
    if status.phase is GangPhase.PENDING:
        return frozenset()  # All are fresh.
    fresh = (entry.member for entry in status.replaced if is_fresh(status, entry))
    return frozenset(holders(gang.spec, status).values()).difference(fresh)


def _keeping_places(gang: Gang) -> frozenset[str]:
    """The members with a pod that has their place until it has ended."""
    workload = gang.observed.queue.workload
    placed = workload is not None and workload.places_pods
    roles = [one.name for one in gang.spec.roles if placed or one.template.spec.scheduling_gates]
    if not roles:
        return frozenset()
    pods = (pod for pod in gang.observed.pods if admission.takes_quota(gang, pod))
    return frozenset(pod.member for pod in pods if pod.member.rpartition("-")[0] in roles)


def _create(name: str, base: int, entry: Replaced | None) -> CreatePod:
    return CreatePod(name, base) if entry is None else CreatePod(name, entry.incarnation, entry.avoid, entry.required)


def next_creation(gang: Gang, status: Status) -> float | None:
    """When the next pod that backs off may be created."""
    times = (creatable_at(entry) for entry in (*status.replaced, status.recreated))
    return min((time for time in times if time > gang.now), default=None)


def overdue_at(gang: Gang, grace_seconds: int) -> float:
    """When a pod that was told to finish as the phase began, with this grace, should have ended.

    In a new term the grace begins again: the clock that stored the begin of the phase may have been behind.
    """
    return max(gang.status.phase_time, gang.observed.listening_since) + grace_seconds + ENDING_MARGIN_SECONDS


def endings(gang: Gang, *, all_of_them: bool) -> tuple[DeletePod, ...]:
    """Pods that are deleted because the gang has ended (those that don't end by themselves) or is suspended (all).

    A pod of a newer incarnation shows that this status is old: the gang has been resumed since.
    """
    recovery = gang.spec.recovery
    grace = recovery.planned_stop_grace_period_seconds if all_of_them else recovery.stop_grace_period_seconds
    overdue = gang.now >= overdue_at(gang, grace)
    return tuple(
        DeletePod(pod.name, pod.uid)
        for pod in gang.observed.pods
        if not pod.deleting
        and pod.incarnation <= gang.incarnation(pod.member)
        and ((all_of_them and (pod.terminated or pod.uid not in gang.heard)) or (overdue and not pod.terminated))
    )


# Replacement


BACKOFF_SECONDS: Final = 10.0
MAX_BACKOFF_SECONDS: Final = 300.0
MAX_REPLACED: Final = 240
"""More members than this that differ from the default: the gang is recreated instead."""
MAX_AVOIDED: Final = 128
"""So many names of nodes to avoid are remembered, those of the latest replacements."""


@once
def unfit(gang: Gang) -> Mapping[str, Defect]:
    """Members whose pods can't go on, spares included."""
    doubtful = gang.conspicuous if gang.unseen else gang.conspicuous - starting_members(gang)
    found = {name: defect(gang, name) for name in gang.members if name in doubtful}
    return {name: why for name, why in found.items() if why is not None}


def needs_recreation(gang: Gang, members: Mapping[str, Defect]) -> bool:
    """Whether so many needed members are bad at once that the gang is recreated. Finished ones ended in good order.

    A role that goes on with those that are left, idle ones among them, loses none of these.
    """
    done, fits = finished_places(gang), set[str]()
    if gang.is_elastic:
        sound = Counter(gang.members[name].role.name for name in gang.pods if name not in members)
        fits = {one.name for one in size.elastic_roles(gang.spec) if size.largest_fit(one, sound[one.name])}
    needed = {place: one for place, one in gang.holders.items() if gang.places[place].role.name not in fits}
    bad = sum(1 for place, holder in needed.items() if holder in members and place not in done)
    return (bad > 1 and bad * 2 > len(needed)) or not has_room(gang.status, members)


def has_room(status: Status, members: Collection[str]) -> bool:
    """Whether the status can remember a replacement of each of these members."""
    known = {entry.member for entry in status.replaced}
    more = set(members) - known
    return not more or len(known) + len(more) <= MAX_REPLACED


def with_room(status: Status, members: Mapping[str, Defect]) -> Mapping[str, Defect]:
    """The first of the members, as many as the status has room for."""
    known = {entry.member for entry in status.replaced}
    more = [name for name in members if name not in known][: max(0, MAX_REPLACED - len(known))]
    chosen = known.union(more)
    return {name: why for name, why in members.items() if name in chosen}


def replace_members(gang: Gang, status: Status, members: Mapping[str, Defect]) -> Status:
    """The status in which these members have a new incarnation."""
    entries = {entry.member: entry for entry in status.replaced}
    for name, why in members.items():
        old = gang.replaced.get(name)
        again = (old or gang.status.recreated) if gang.is_fresh(name) else None
        avoid, required = _avoid(gang, name, why)
        entries[name] = Replaced(
            member=name,
            incarnation=gang.incarnation(name) + 1,
            attempt=coming_attempt(status),
            time=gang.now,
            since=None if again is None else again.since or again.time,
            avoid=avoid,
            required=required,
            failures=_failures(old if old is not None and _is_row(gang, old) else again),
            without_quota=(name in gang.without_quota) or None,
        )
    status = await_pods(status, [awaits(gang, name) for name in members])
    return changed(status, replaced=_avoiding_few(gang, entries.values()))


def recreate_members(gang: Gang, status: Status, members: Mapping[str, Defect]) -> Status:
    """The status in which every member has a new incarnation. ``members``: whose nodes are avoided."""
    base = max([status.base_incarnation, *(entry.incarnation for entry in status.replaced)]) + 1
    again = status.recreated if gang.status.phase is GangPhase.PENDING else None
    told = Recreated(time=gang.now, since=gang.now if again is None else again.since, failures=_failures(again))
    avoiding = tuple(
        Replaced(
            member=name,
            incarnation=base,
            attempt=coming_attempt(status),
            time=gang.now,
            since=told.since,
            avoid=avoid,
            required=required,
            failures=told.failures,
        )
        for name, why in islice(members.items(), MAX_AVOIDED)
        for avoid, required in (_avoid(gang, name, why),)
    )
    without = {  # All pods are new, so each member may be the one without: those that come last have no place.
        one.name: Replaced(
            member=one.name, incarnation=base, attempt=coming_attempt(status), time=gang.now, without_quota=True
        )
        for role in size.elastic_roles(gang.spec)
        for one in members_of(role)[size.with_quota(gang, role) :]
    }
    avoiding = (*(one for one in avoiding if one.member not in without), *without.values())
    status = await_pods(status, [awaits(gang, name) for name in gang.members])
    return changed(status, base_incarnation=base, replaced=avoiding, ranks=(), recreated=told)


def forget_gone_pods(gang: Gang, status: Status) -> Status:
    """The status without the awaited pods that are known to be gone by now."""
    awaited, awaited_all = still_awaited(gang), still_awaited_all(gang)
    same = (status.awaited, status.awaited_all) == (awaited, awaited_all)
    return status if same else changed(status, awaited=awaited, awaited_all=awaited_all)


def creatable_at(entry: Replaced | Recreated | None) -> float:
    """When a pod that was replaced may be created: replacements that fail at once, or are disrupted soon, back off."""
    if entry is None or entry.failures == 0:
        return 0.0
    return entry.time + min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * float(1 << min(entry.failures - 1, 16)))


def _is_row(gang: Gang, old: Replaced) -> bool:
    """Whether the member is disrupted again so soon that this might go on without end: no budget is charged for it."""
    is_soon = gang.now < old.time + STEADY_SECONDS
    return is_soon and any(one.member == old.member and not default(one.reason).charged for one in faults(gang))


def _failures(before: Replaced | Recreated | None) -> int:
    return 0 if before is None else before.failures + 1


def _avoiding_few(gang: Gang, entries: Iterable[Replaced]) -> tuple[Replaced, ...]:
    """The entries, newest last, without those that say nothing any more; older ones forget which nodes they avoid."""
    base, coming = gang.status.base_incarnation, coming_attempt(gang.status)
    until = gang.now - gang.spec.recovery.avoid_node_seconds
    left, kept = MAX_AVOIDED, []
    by_time = sorted(entries, key=lambda one: one.time)
    for entry in reversed(by_time):
        left -= len(entry.avoid)
        if entry.incarnation != base or entry.attempt >= coming or entry.time > until or entry.without_quota:
            kept.append(entry if left >= 0 else changed(entry, avoid=(), required=False))
    return tuple(reversed(kept))


def _avoid(gang: Gang, name: str, why: Defect) -> tuple[tuple[str, ...], bool]:
    """The nodes that the new pod keeps off, and whether that is required.

    Required are only nodes with evidence against them: what would merely rather be avoided isn't listed with them.
    """
    pod, old = gang.pods.get(name), gang.replaced.get(name)
    node = () if pod is None or not pod.node else (pod.node,)
    if old is None or gang.now >= old.time + gang.spec.recovery.avoid_node_seconds:
        return node, why.against_node
    if why.against_node == old.required:
        return tuple(dict.fromkeys([*node, *old.avoid]))[:8], why.against_node
    return (node or old.avoid, True) if why.against_node else (old.avoid, True)


# Degradation


def slow_rank_to_move(gang: Gang) -> Fault | None:
    """The slowest rank that is to be moved, as a fault; None if there is none."""
    if not any(OnReason.DEVICE_DEGRADED in rule.on_reasons for rule in gang.spec.pod_failure_policy.rules):
        return None
    before = moved_ranks(gang)
    found = (_fault(gang, one) for one in progress.slow_members(gang) if one.rank not in before)
    return next((one for one in found if _may_move(gang, verdict(gang.spec, one))), None)


def _may_move(gang: Gang, said: Verdict) -> bool:
    if said.action is not Action.COUNT:
        return said.rule is not None
    group = gang.spec.replica_group  # While a gang runs, it doesn't know what others have used of a common budget.
    return said.rule is not None and (group is None or group.budget is None) and recovery.budget_spent(gang) is None


def moved_ranks(gang: Gang) -> frozenset[int]:
    """The ranks that were moved because they were slow, as far as the incidents of the status go back."""
    causes = (incident.cause for incident in gang.status.incidents)
    return frozenset(one.rank for one in causes if one.reason == Reason.DEVICE_DEGRADED and one.rank is not None)


def _fault(gang: Gang, one: Slow) -> Fault:
    pod = gang.pods[one.member]
    return Fault(
        Reason.DEVICE_DEGRADED,
        one.member,
        gang.now,
        pod.incarnation,
        rank=one.rank,
        node=pod.node,
        conditions=pod.conditions,
        level=Level.POD,
        message=rank_slow(one.own_ms, one.typical_ms, one.excess),
    )
