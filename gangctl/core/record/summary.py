"""The summary in a status: how many members are ready or have finished, and the highest step.

The rule: a summary decides nothing; it is brought up to date with each write, and now and then without another reason.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.status import RoleStatus, Status
from gangctl.core.facts import adaptive
from gangctl.core.facts.finished import finished
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.layout import layout
from gangctl.core.facts.progress import first_step, highest_step


def summarised(gang: Gang, status: Status) -> Status:
    """The status with the counts for people brought up to date."""
    held, done = {entry.place: entry.member for entry in status.ranks}, finished(gang)
    roles = tuple(
        RoleStatus(
            name=role,
            desired=len(places),
            ready=len(gang.speaking & places.difference(held).union(held[place] for place in held if place in places)),
            succeeded=len(done & places),
        )
        for role, places in layout(gang.spec.roles).places_of.items()
    )
    ready, total = sum(role.ready for role in roles), sum(role.desired for role in roles)
    return changed(status, roles=roles, ready=f"{ready}/{total}", observed_time=gang.now)


def progressed(gang: Gang, status: Status) -> Status:
    """The status with the highest step that any rank has reported in this attempt, its first one, and the gaps."""
    best, first = highest_step(gang, gang.status.attempt) or status.progress, first_step(gang)
    seen = adaptive.remembered(gang)
    if (best, first, seen) == (status.progress, status.first_step, status.step_gaps):
        return status
    return changed(status, progress=best, first_step=first, step_gaps=seen)
