"""Finished: which members' workers have ended for good, because all their work is done.

    finished(p)   the status records it, or each process of the place p ended with 0 before any stop, in the newest
                  attempt that had workers: as a report of a pod of its member says, or the last words of one

A member that has finished stays so whatever becomes of its pod; the next attempt takes it along. An end with 0 after a
stop (a directive, a SIGTERM to the supervisor, fencing) must not count: that worker was interrupted. Where
``successPolicy`` is Never, no member finishes: each end is a fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from gangctl.api.finished import Finished, FinishedRole
from gangctl.api.gangjob import NeverSucceeds
from gangctl.api.names import MAX_MEMBERS, member_name
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import Gang, once, processes_of
from gangsidecar.wire import End, from_ranges, to_ranges


def attempt_with_workers(status: Status) -> int:
    """The newest attempt that had workers; 0 if there was none since the gang was resumed.

    Later ones were held or suspended before they began.
    """
    newest = status.attempt if status.phase is GangPhase.RUNNING else status.started_attempt
    return newest if newest >= status.resumed_attempt else 0


@once
def finished(gang: Gang) -> frozenset[str]:
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
        if member in done and len(done[member]) == processes_of(gang.places[place].role)
    }
    return recorded_places(gang.status, attempt) | shown


@once
def need_no_pod(gang: Gang) -> frozenset[str]:
    """Members that have finished the attempt that runs. The next attempt needs them again."""
    if gang.status.phase is not GangPhase.RUNNING:
        return frozenset()
    return frozenset(gang.holders.get(place, place) for place in finished(gang))


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


def record(gang: Gang) -> Finished | None:
    """What the status is to record; None if no member has finished."""
    done = finished(gang)
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
