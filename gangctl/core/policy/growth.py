"""Growth: when a gang that runs with fewer members than are wanted is stopped, so that it starts with more.

    grows(g)   <=> more members are ready for an allowed size beyond the present one, now >= grows_at (``size.py``), and
                   saved(g) is beyond the restore point, and
                   saved(g) >= the newest step that a rank has reported, or now >= grows_at + growAfterSeconds
    saved(g)     = the newest step that a Shared tier has complete: what other ranks can load

The rule: it is a planned stop, with the planned grace for a last checkpoint, and not charged. It follows a checkpoint
of the newest step, so that it costs no step that was made; where none is seen to come in time, the grace is for that.
Directories are listed for it while the gang runs, once it could grow. What must not happen: a stop without a member to
grow by, or before a step of this attempt is saved; nor once a rank has finished, which would do its work again.
"""

from __future__ import annotations

from collections import Counter

from gangctl.api.model import changed
from gangctl.api.status import Size, Status
from gangctl.core.facts.fitness import ready
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.progress import finished_places, highest_step
from gangctl.core.policy import restore, size
from gangctl.words import warnings
from gangctl.words.message import Message
from gangsidecar.wire import Scan


def grows(gang: Gang) -> bool:
    """Whether the gang is stopped now so that it grows."""
    due = size.grows_at(gang)
    if not could_grow(gang) or gang.now < due:
        return False
    saved, point, made = _saved(gang), gang.status.restore_point, highest_step(gang, gang.status.attempt)
    if saved is None or saved <= (0 if point is None else point.step):
        return False
    return made is None or saved >= made.step or gang.now >= due + gang.spec.recovery.grow_after_seconds


@once
def could_grow(gang: Gang) -> bool:
    """Whether enough members are ready for a larger size that is allowed, and no place has finished."""
    if not gang.is_smaller or finished_places(gang):
        return False
    present, idle = size.present_sizes(gang), ready(gang) - gang.holding
    free = Counter(gang.members[name].role.name for name in idle)
    roles = size.elastic_roles(gang.spec)
    return any(size.largest_fit(one, present[one.name] + free[one.name]) > present[one.name] for one in roles)


def stopped_to_grow(gang: Gang, status: Status) -> Status:
    """The status that remembers that the gang is stopped for the next attempt to grow."""
    before = status.size or Size()
    stops = [*size.recent_stops(gang), gang.now][-size.MAX_STOPS :]
    return changed(status, size=changed(before, growing_attempt=status.attempt + 1, stops=tuple(stops)))


def looks_at(gang: Gang) -> float | None:
    """When to look again though nothing happens; None if the gang can't grow."""
    if not could_grow(gang):
        return None
    due = size.grows_at(gang)
    return due if gang.now < due else gang.now + restore.SCAN_SECONDS


def scan_due(gang: Gang) -> tuple[str, Scan] | None:
    """The pod to ask, by its UID, and the query for the directories that tells whether the newest step is saved."""
    scan = restore.wanted_scan(gang) if could_grow(gang) and gang.now >= size.grows_at(gang) else None
    asked = next((gang.pods[one].uid for one in gang.holders.values() if one in gang.speaking), None)
    is_old = gang.now >= gang.observed.scanned_at + restore.SCAN_SECONDS
    return (asked, scan) if scan is not None and asked is not None and is_old else None


def smaller(gang: Gang) -> Message | None:
    """Return that the gang runs with fewer members than are wanted, and when it will grow; None if it doesn't."""
    known = gang.status.size
    if known is None or not gang.is_smaller:
        return None
    due = size.grows_at(gang)
    then = "Members" if not could_grow(gang) else "Checkpoint" if gang.now >= due else "Time"
    return warnings.runs_smaller(known.reason, then, due if then == "Time" else 0.0)


def _saved(gang: Gang) -> int | None:
    if not restore.has_scan(gang):
        return None
    found = restore.candidates(gang, gang.holders, gang.status.rejected_steps)
    return next((one.point.step for one in found if not one.near), None)
