"""The summary in a status: how many members are ready or have finished, and the highest step.

The rule: a summary decides nothing; it is brought up to date with each write, and now and then without another reason.
"""

from __future__ import annotations

from collections import Counter

from gangctl.api.changes import changed
from gangctl.api.status import RoleStatus, Status
from gangctl.core.facts.finished import finished
from gangctl.core.facts.gang import Gang, holders
from gangctl.core.facts.progress import highest_step


def summarised(gang: Gang, status: Status) -> Status:
    """The status with the counts for people brought up to date."""
    places, held = gang.places, holders(gang.spec, status)
    ready = Counter(places[place].role.name for place, holder in held.items() if holder in gang.speaking)
    done = Counter(places[place].role.name for place in finished(gang) if place in places)
    roles = tuple(
        RoleStatus(name=role.name, desired=role.replicas, ready=ready[role.name], succeeded=done[role.name])
        for role in gang.spec.roles
    )
    total = sum(role.replicas for role in gang.spec.roles)
    return changed(status, roles=roles, ready=f"{sum(ready.values())}/{total}", observed_time=gang.now)


def progressed(gang: Gang, status: Status) -> Status:
    """The status with the highest step that any rank has reported in this attempt."""
    best = highest_step(gang, gang.status.attempt)
    return status if best is None or best == status.progress else changed(status, progress=best)
