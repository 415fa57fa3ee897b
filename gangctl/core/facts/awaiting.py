"""What a status keeps of pods that are given up though they may run a worker.

The rule: every such pod is waited for, one by one or, where they are too many to be named, as all up to an incarnation.
A pod that was given up must never be forgotten before it is stopped, terminated or lost (``barrier.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gangctl.api.changes import changed
from gangctl.api.status import Awaited, AwaitedAll, Status

MAX_AWAITED: Final = 100
"""Above this number, ``awaited_all`` stands for the pods: the size of a status is bounded."""


class GivenUp(NamedTuple):
    """A pod that is given up though it may run a worker: it becomes an entry of ``status.awaited``."""

    member: str
    incarnation: int
    pod: str
    """Its UID; empty if it was never seen."""
    node: str = ""
    vanished_time: float | None = None


def awaiting(status: Status, given_up: Iterable[GivenUp | None]) -> Status:
    """Return the status that also waits for these pods: one by one, or for all up to an incarnation if too many.

    An entry is known by all of its names, since the UID of a pod that was never seen is empty.
    """
    found = [one for one in given_up if one is not None]
    if len(found) > MAX_AWAITED:
        return awaiting_as_one(status, max([one.incarnation for one in found]))
    known = {(entry.member, entry.incarnation, entry.pod) for entry in status.awaited}
    more = {one[:3]: one for one in found if one[:3] not in known}
    if len(known) + len(more) > MAX_AWAITED:
        return awaiting_as_one(status, max((one.incarnation for one in more.values()), default=-1))
    entries = (
        Awaited(
            member=one.member,
            incarnation=one.incarnation,
            pod=one.pod,
            node=one.node,
            vanished_time=one.vanished_time,
        )
        for one in more.values()
    )
    return changed(status, awaited=(*status.awaited, *entries))


def awaiting_as_one(status: Status, newest: int = -1) -> Status:
    """Return the status that waits for all pods up to an incarnation, in place of those that it names."""
    newest = max([newest, *(entry.incarnation for entry in status.awaited)])
    if newest < 0:
        return status
    before = -1 if status.awaited_all is None else status.awaited_all.incarnation
    return changed(status, awaited=(), awaited_all=AwaitedAll(incarnation=max(before, newest)))
