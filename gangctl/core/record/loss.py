"""What a restart loses: the steps beyond the restore point, and the time that they took.

    steps   = highest_step(the attempt that started last) - step of the restore point
    at_most = steps + gap - 1, where its ranks report only each ``gap``-th step: those made since are not known
    gap     = the widest gap between two steps that one of its ranks has reported; with its first report alone, from
              the step that it began at, if that is not more than MOST_SELDOM: it may have loaded something else
    seconds = steps * pace(that attempt)

A loss must not be guessed: where progress isn't reported, it is unknown, and where it is seldom reported, the steps
must not be told as all. Where the job declares no tier, its script may find checkpoints by itself, so it is unknown as
well. It must not count twice: each start settles it.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.changes import changed
from gangctl.api.checkpoint_status import RestorePoint
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.progress import highest_step, pace

MOST_SELDOM: Final = 1000
"""Steps between two reports of a framework that reports very seldom."""


def steps(gang: Gang, point: RestorePoint | None) -> int | None:
    """Steps that the attempt which ran last had made beyond the restore point; None where that is unknown."""
    if point is None and (gang.spec.checkpoint is None or not gang.spec.checkpoint.tiers):
        return None
    made = highest_step(gang, gang.status.started_attempt)
    return None if made is None else max(0, made.step - (0 if point is None else point.step))


def at_most(gang: Gang, lost: int | None) -> int | None:
    """How many steps may be lost where ``lost`` have been reported; None where that is all, or unknown."""
    attempt = gang.status.started_attempt
    if lost is None:
        return None
    heard = [one for pod in gang.by_progress.get(attempt, ()) if (one := pod.report.progress) is not None]
    gap = max((one.every for one in heard if one.every is not None), default=None)
    if gap is None:
        point, firsts = gang.status.restore_point, [one.step for one in heard if one.first_step == one.step]
        gap = max(firsts, default=0) - (0 if point is None else point.step)
        gap = gap if gap <= MOST_SELDOM else 1
    return lost + gap - 1 if gap > 1 else None


def seconds(gang: Gang, lost: int | None) -> float | None:
    """How long the attempt which ran last had trained for so many steps; None where its pace isn't known."""
    if not lost:
        return None if lost is None else 0.0
    each = pace(gang, gang.status.started_attempt)
    return None if each is None else round(lost * each, 3)


def noted(status: Status, lost: float | None) -> Status:
    """The status in whose account so many seconds of training have to be done again."""
    if not lost:
        return status
    spent = changed(status.spent, lost_progress=round(status.spent.lost_progress + lost, 3))
    return changed(status, spent=spent)
