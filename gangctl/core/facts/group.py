"""Groups: which gangs are replicas of one service, and since when each is available. Frozen values.

    available_at(g) = begin of g's attempt + minReadySeconds, while it runs and each required pod is ready; None else

A pod's condition Ready may be that of the attempt before: a kubelet sees a closed port when it probes next. So a gang
must not count as available before minReadySeconds are over, whatever its pods show.
"""

from __future__ import annotations

from typing import NamedTuple

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.core.facts.finished import finished
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.stored_times import believed
from gangctl.core.facts.world import Observed, Pod, Replica


class GroupKey(NamedTuple):
    """What the gangs of one group have in common."""

    namespace: str
    name: str


def key(job: GangJob) -> GroupKey | None:
    """The group of the gang; None if it has none, or has done its work."""
    rolling = job.spec.rolling
    if rolling is None or job.status.phase is GangPhase.SUCCEEDED:
        return None
    return GroupKey(job.metadata.namespace, rolling.group)


def replica(now: float, job: GangJob, pods: tuple[Pod, ...], listening_since: float) -> Replica:
    """What other gangs of its group need to know of this one."""
    look = believed(Gang(now, job, Observed(pods, listening_since=listening_since)))
    return Replica(job.metadata.name, look.status.phase, available_at(look))


def available_at(gang: Gang) -> float | None:
    """When the gang became available, or will if nothing changes; None while it isn't, and that can't be told."""
    rolling = gang.spec.rolling
    if rolling is None or gang.status.phase is not GangPhase.RUNNING:
        return None
    done = finished(gang)
    needed = (gang.pods.get(holder) for place, holder in gang.holders.items() if place not in done)
    if not all(pod is not None and _is_ready(pod) for pod in needed):
        return None
    return gang.status.phase_time + rolling.min_ready_seconds


def _is_ready(pod: Pod) -> bool:
    """Whether its endpoints get requests, as its kubelet says. A pod on this machine has no kubelet that says it."""
    shown = next((state for kind, state, _ in pod.conditions if kind == "Ready"), "True")
    return shown == "True" and not pod.deleting and not pod.terminated
