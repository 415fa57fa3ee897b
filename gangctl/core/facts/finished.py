"""Finished members, and available gangs of a group.

Finished: which members' workers have ended for good, because all their work is done.

    finished(p)   the status records it, or each process of the place p ended with 0 before any stop, in the newest
                  attempt that had workers: as a report of a pod of its member says, or the last words of one

A member that has finished stays so whatever becomes of its pod; the next attempt takes it along. An end with 0 after a
stop (a directive, a SIGTERM to the supervisor, fencing) must not count: that worker was interrupted. Where
``successPolicy`` is Never, no member finishes: each end is a fault.

Groups: which gangs are replicas of one service, and since when each is available. Frozen values.

    available_at(g) = when the last role of g's attempt began + minReadySeconds, while all roles run and each required
                      pod is ready; None else

A pod's condition Ready may be that of the attempt before: a kubelet sees a closed port when it probes next. So a gang
must not count as available before minReadySeconds are over, whatever its pods show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gangctl.api.gangjob import GangJob, NeverSucceeds
from gangctl.api.names import MAX_MEMBERS, member_name
from gangctl.api.status import Finished, FinishedRole, GangPhase, Status
from gangctl.core.facts.gang import Gang, clamp_times, may_start_since, once, started_processes, waiting_roles
from gangctl.core.facts.world import Observed, Pod, Replica
from gangsidecar.wire import End, from_ranges, to_ranges

# Finished


def attempt_with_workers(status: Status) -> int:
    """The newest attempt that had workers; 0 if there was none since the gang was resumed.

    Later ones were held or suspended before they began.
    """
    newest = status.attempt if status.phase is GangPhase.RUNNING else status.started_attempt
    return newest if newest >= status.resumed_attempt else 0


@once
def finished_places(gang: Gang) -> frozenset[str]:
    """Places whose worker has finished in the newest attempt that had workers."""
    attempt = attempt_with_workers(gang.status)
    if attempt < 1 or isinstance(gang.spec.success_policy, NeverSucceeds):
        return frozenset()
    done: defaultdict[str, set[int]] = defaultdict(set)
    for member, end in _ends(gang):
        if end.attempt == attempt and end.exit_code == 0 and not end.stopped:
            done[member].add(end.local_rank)
    shown = {
        place
        for place, member in (gang.holders.items() if done else ())
        if member in done and len(done[member]) == started_processes(gang.places[place].role)
    }
    return recorded_places(gang.status, attempt) | shown


@once
def need_no_pod(gang: Gang) -> frozenset[str]:
    """Members that have finished the attempt that runs. The next attempt needs them again."""
    if gang.status.phase is not GangPhase.RUNNING:
        return frozenset()
    return frozenset(gang.holders.get(place, place) for place in finished_places(gang))


def recorded_places(status: Status, attempt: int) -> frozenset[str]:
    """Places that the status records for this attempt."""
    record = status.finished
    return frozenset() if record is None or record.attempt != attempt else _places(record.roles)


@lru_cache(512)
def _places(roles: tuple[FinishedRole, ...]) -> frozenset[str]:
    """The places that a record names. They are the same from decision to decision."""
    return frozenset(
        member_name(role.name, index) for role in roles for index in from_ranges(role.indexes, MAX_MEMBERS)
    )


def finished_record(gang: Gang) -> Finished | None:
    """The finished members as the status records them; None if no member has finished."""
    done = finished_places(gang)
    if not done:
        return None
    indexes: dict[str, list[int]] = {}
    for place, member in gang.places.items():
        if place in done:
            indexes.setdefault(member.role.name, []).append(member.index)
    roles = tuple(FinishedRole(name=name, indexes=to_ranges(found)) for name, found in indexes.items())
    return Finished(attempt=attempt_with_workers(gang.status), time=gang.now, roles=roles)


def _ends(gang: Gang) -> Iterator[tuple[str, End]]:
    for heard in gang.heard.values():
        if not heard.is_quiet:
            for end in heard.report.ends:
                yield heard.report.member, end
    for pod in gang.observed.pods:
        if pod.last_words is not None:
            for end in pod.last_words.ends:
                yield pod.member, end


# Groups


class GroupKey(NamedTuple):
    """What the gangs of one group have in common."""

    namespace: str
    name: str


def key(job: GangJob) -> GroupKey | None:
    """The group in which the gang takes turns; None if it has none, or has done its work."""
    group = job.spec.replica_group
    if group is None or job.spec.rolling is None or job.status.phase is GangPhase.SUCCEEDED:
        return None
    return GroupKey(job.metadata.namespace, group.name)


def replica_state(now: float, job: GangJob, pods: tuple[Pod, ...], listening_since: float) -> Replica:
    """What other gangs of its group need to know of this one."""
    look = clamp_times(Gang(now, job, Observed(pods, listening_since=listening_since)))
    return Replica(job.metadata.name, look.status.phase, available_at(look))


def available_at(gang: Gang) -> float | None:
    """When the gang became available, or will if nothing changes; None while it isn't, and that can't be told."""
    rolling = gang.spec.rolling
    if rolling is None or gang.status.phase is not GangPhase.RUNNING:
        return None
    done = finished_places(gang)
    needed = (gang.pods.get(holder) for place, holder in gang.holders.items() if place not in done)
    if waiting_roles(gang.spec, gang.status) or not all(pod is not None and pod.is_ready for pod in needed):
        return None
    return may_start_since(gang.status) + rolling.min_ready_seconds
