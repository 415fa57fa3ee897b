"""Pods: which are created and deleted, so that the cluster comes to what the status says.

The rule: every member has one pod, of its current incarnation; older ones are deleted. A pod must not be deleted unless
the status gives it up, and must not be forgotten before it is known to run nothing. So a pod in which a worker may have
run is never made again: it is missing, and its member gets the next incarnation; none while the others run, if it has
finished. A gang that names a queue gets no pod while it isn't known that the queue admits it.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from gangctl.api.status import GangPhase, Replaced, Status
from gangctl.core.facts.gang import Gang, holders, is_fresh, raised_incarnations
from gangctl.core.policy import admission, queueing
from gangctl.core.policy.replacement import creatable_at

ENDING_MARGIN_SECONDS = 15.0
"""After the grace, a pod that was told to finish and hasn't ended is deleted."""
MOST: Final = 512
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
        workers = _of_workers(gang, status)
        missing = (
            _create(name, base, entries.get(name))
            for name in gang.members
            if name not in present
            and name not in workers
            and gang.now >= creatable_at(entries.get(name, status.recreated))
        )
        made += islice(missing, MOST)
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
    return queueing.is_admitted(gang) and admission.creates(gang, status)


def _of_workers(gang: Gang, status: Status) -> frozenset[str]:
    """The members in whose pods a worker may have run: if one is missing, it is not made again."""
    if status.phase is GangPhase.PENDING:
        return frozenset()  # All are fresh.
    fresh = (entry.member for entry in status.replaced if is_fresh(status, entry))
    return frozenset(holders(gang.spec, status).values()).difference(fresh)


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
    """Pods that are deleted because the gang has ended (those that don't end by themselves) or is suspended (all)."""
    recovery = gang.spec.recovery
    grace = recovery.planned_stop_grace_period_seconds if all_of_them else recovery.stop_grace_period_seconds
    overdue = gang.now >= overdue_at(gang, grace)
    return tuple(
        DeletePod(pod.name, pod.uid)
        for pod in gang.observed.pods
        if not pod.deleting
        and ((all_of_them and (pod.terminated or pod.uid not in gang.heard)) or (overdue and not pod.terminated))
    )
