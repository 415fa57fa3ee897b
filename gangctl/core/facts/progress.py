"""Progress: how far the ranks of an attempt have got, and at what pace.

    highest_step(a) = the highest step that any rank reported in attempt a, or that the status has of it
    first_step      = the earliest first step that any rank reported in the running attempt; once stored, it stays
    pace(a)         = seconds per step of the rank that made most steps after its first, in attempt a

Where nothing was reported the answer is None: progress must not be guessed.
"""

from __future__ import annotations

from gangctl.api.status import FirstStep, GangPhase, ProgressStatus
from gangctl.core.facts.gang import Gang, once


def highest_step(gang: Gang, attempt: int) -> ProgressStatus | None:
    """The highest step of the attempt; None if no rank has reported one."""
    found, stored = gang.highest_steps.get(attempt), gang.status.progress
    if stored is not None and stored.attempt == attempt and (found is None or found.step <= stored.step):
        return stored
    return found


@once
def first_step(gang: Gang) -> FirstStep | None:
    """The first step of the running attempt, of the rank that was first; what is stored stays."""
    status = gang.status
    stored = status.first_step
    if status.phase is not GangPhase.RUNNING or (stored is not None and stored.attempt == status.attempt):
        return stored
    firsts = (
        (heard.ago(one.first_age_ms), one.first_step)
        for heard in gang.by_progress.get(status.attempt, ())
        if (one := heard.report.progress) is not None and one.first_age_ms is not None
    )
    earliest = min(firsts, key=lambda one: (one[0], one[1] or 0), default=None)
    if earliest is None:
        return stored
    time, step = earliest
    return FirstStep(attempt=status.attempt, step=step, time=time)


def pace(gang: Gang, attempt: int) -> float | None:
    """Seconds a step in the attempt, between the first and the newest step that were reported."""
    status = gang.status
    found = (
        (one.step - one.first_step, (one.first_age_ms - one.age_ms) / 1000)
        for heard in gang.by_progress.get(attempt, ())
        if (one := heard.report.progress) is not None and one.first_step is not None and one.first_age_ms is not None
    )
    made, took = max(found, default=(0, 0.0))
    first, last = status.first_step, status.progress
    began = None if first is None or first.attempt != attempt else first.step
    if first is not None and began is not None and last is not None and last.attempt == attempt:
        made, took = max((made, took), (last.step - began, last.time - first.time))  # Its rank may be gone by now.
    return took / made if made > 0 and took >= 0 else None
