"""Growth: when a gang that runs with fewer members than are wanted is stopped, so that it starts with more.

    due(g)     <=> more members are ready for an allowed size beyond the present one, and now >= grows_at (``size.py``)
    grows(g)   <=> due(g), and saved(g) is beyond the restore point, and
                   saved(g) >= the newest step that a rank has reported, or saved(g) > what was saved when due(g) began
    saved(g)     = the newest step that a Shared tier has complete: what other ranks can load

The rule: it is a planned stop, with the planned grace for a last checkpoint, and not charged. It comes right after a
checkpoint, however long that takes, so that it costs no step that was made; where steps are fast, the grace is for
those that follow. The status has what was saved when it became due, and forgets it when the members go. Directories are
listed for it while the gang runs, once it is due. What must not happen: a stop without a member to grow by, or between
two checkpoints; nor once a rank has finished, which would do its work again. It takes turns with the other gangs of the
group, as each planned restart does (``rolling``).
"""

from collections import Counter

from gangctl.api.model import changed
from gangctl.api.status import Size, Status
from gangctl.core.facts.fitness import leaves_at_restart, ready
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.progress import finished_places, highest_step
from gangctl.core.policy import requests, restore, size
from gangctl.words import warnings
from gangctl.words.message import Message
from gangsidecar.wire import Scan


def grows(gang: Gang) -> bool:
    """Whether the gang is stopped now so that it grows."""
    saved, point, made = _saved(gang), gang.status.restore_point, highest_step(gang, gang.status.attempt)
    if not is_due(gang) or saved <= (0 if point is None else point.step) or requests.away(gang):
        return False
    after = _due_step(gang)
    return (made is not None and saved >= made.step) or (after is not None and saved > after)


def is_due(gang: Gang) -> bool:
    """Whether it is stopped after its next checkpoint."""
    return could_grow(gang) and gang.now >= size.grows_at(gang)


def noted(gang: Gang, status: Status) -> Status:
    """The status that knows what was saved when growth became due, or that it isn't due any more."""
    known, after = status.size, _due_step(gang)
    if known is None or is_due(gang) == (after is not None):
        return status
    if after is not None:
        return changed(status, size=changed(known, due_attempt=0, due_step=0))
    is_seen = restore.has_scan(gang) and not _is_scan_old(gang)
    size_due = changed(known, due_attempt=status.attempt, due_step=max(0, _saved(gang)))
    return changed(status, size=size_due) if is_seen else status


@once
def could_grow(gang: Gang) -> bool:
    """Whether enough members are ready for a larger size that is allowed, and no place has finished."""
    if not gang.is_smaller or finished_places(gang):
        return False
    present = size.present_sizes(gang)
    idle = [name for name in ready(gang) - gang.holding if leaves_at_restart(gang, gang.pods[name]) is None]
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
    again = gang.observed.scanned_at + restore.SCAN_SECONDS
    later = again if again > gang.now else gang.now + restore.SCAN_SECONDS
    return later if is_due(gang) else size.grows_at(gang)


def scan_due(gang: Gang) -> tuple[str, Scan] | None:
    """The pod to ask, by its UID, and the query for the directories that tells whether the newest step is saved."""
    scan = restore.wanted_scan(gang) if is_due(gang) and _is_scan_old(gang) else None
    there = [gang.pods[one].uid for one in gang.holders.values() if one in gang.speaking]
    turn = int(gang.now / restore.SCAN_SECONDS)  # One whose mount doesn't answer must not be the only one.
    return (there[turn % len(there)], scan) if scan is not None and there else None


def smaller(gang: Gang) -> Message | None:
    """Return that the gang runs with fewer members than are wanted, and when it will grow; None if it doesn't."""
    known = gang.status.size
    if known is None or not gang.is_smaller:
        return None
    due = size.grows_at(gang)
    then = "Members" if not could_grow(gang) else "Checkpoint" if gang.now >= due else "Time"
    return warnings.runs_smaller(known.reason, then, due if then == "Time" else 0.0)


def _saved(gang: Gang) -> int:
    """The newest step that other ranks can load; -1 if none is known."""
    if not restore.has_scan(gang):
        return -1
    found = restore.candidates(gang, gang.holders, gang.status.rejected_steps)
    return next((one.point.step for one in found if not one.near), -1)


def _due_step(gang: Gang) -> int | None:
    """What was saved when growth became due; None if that isn't known, or it isn't due."""
    known = gang.status.size
    return None if known is None or known.due_attempt != gang.status.attempt else known.due_step


def _is_scan_old(gang: Gang) -> bool:
    has_any = restore.wanted_scan(gang) is not None
    return has_any and gang.now >= gang.observed.scanned_at + restore.SCAN_SECONDS
