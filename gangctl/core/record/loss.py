"""What a restart loses: the steps beyond the restore point, and the time that they had taken.

The rule: the steps are those that the attempt which ran last is known to have made (others may have been gathered
since, and held or suspended); their time is reckoned from the pace of the rank that got furthest. Never is a loss
guessed where progress isn't reported: it is unknown then. Never is it counted twice: each start settles it.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.status import RestorePoint, Status
from gangctl.core.facts.faults import failed_attempt
from gangctl.core.facts.gang import Gang


def steps(gang: Gang, point: RestorePoint | None) -> int | None:
    """Steps that the attempt which ran last had made beyond the restore point; None where progress is unknown."""
    attempt = _last_started(gang)
    made = [
        heard.report.progress.step
        for heard in gang.observed.heard
        if heard.report.progress is not None and heard.report.progress.attempt == attempt
    ]
    if gang.status.progress is not None and gang.status.progress.attempt == attempt:
        made.append(gang.status.progress.step)
    return max(0, max(made) - (0 if point is None else point.step)) if made else None


def seconds(gang: Gang, lost: int | None) -> float | None:
    """How long the attempt which ran last had trained for so many steps; None where its pace isn't known."""
    if not lost:
        return None if lost is None else 0.0
    pace = _pace(gang)
    return None if pace is None else round(lost * pace, 3)


def noted(status: Status, lost: float | None) -> Status:
    """The status in whose account so many seconds of training have to be done again."""
    if not lost:
        return status
    spent = changed(status.spent, lost_progress=round(status.spent.lost_progress + lost, 3))
    return changed(status, spent=spent)


def _last_started(gang: Gang) -> int:
    return gang.status.started_attempt or failed_attempt(gang)  # An older version didn't store it.


def _pace(gang: Gang) -> float | None:
    """Seconds a step in the attempt which ran last, between the first and the newest step that were reported."""
    attempt, status = _last_started(gang), gang.status
    found = [
        (progress.step - progress.first_step, (progress.first_age_ms - progress.age_ms) / 1000)
        for heard in gang.observed.heard
        if (progress := heard.report.progress) is not None
        and progress.attempt == attempt
        and progress.first_step is not None
        and progress.first_age_ms is not None
    ]
    first, last = status.first_step, status.progress
    if first is not None and last is not None and first.attempt == last.attempt == attempt:
        found.append((last.step - first.step, last.time - first.time))  # Its rank may be gone by now.
    made, took = max(found, default=(0, 0.0))
    return took / made if made > 0 and took >= 0 else None
