"""Progress: how far the ranks of an attempt have got, and at what pace.

    highest_step(a) = the highest step that any rank reported in attempt a, or that the status has of it
    first_step      = the earliest first step that any rank reported in the running attempt; once stored, it stays
    pace(a)         = seconds per step of the rank that made most steps after its first, in attempt a

Where nothing was reported the answer is None: progress must not be guessed.
"""

from __future__ import annotations

from gangctl.api.status import GangPhase, ProgressStatus
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.world import Heard
from gangsidecar.wire import Progress


def reported(gang: Gang, attempt: int) -> list[tuple[Heard, Progress]]:
    """What the pods, earlier ones too, have reported of this attempt's progress."""
    return _reported(gang).get(attempt, [])


@once
def _reported(gang: Gang) -> dict[int, list[tuple[Heard, Progress]]]:
    """The same for every attempt."""
    found: dict[int, list[tuple[Heard, Progress]]] = {}
    for heard in gang.heard.values():
        progress = heard.report.progress
        if progress is not None:
            found.setdefault(progress.attempt, []).append((heard, progress))
    return found


def highest_step(gang: Gang, attempt: int) -> ProgressStatus | None:
    """The highest step of the attempt; None if no rank has reported one."""
    found, stored = _highest(gang).get(attempt), gang.status.progress
    if stored is not None and stored.attempt == attempt and (found is None or found.step <= stored.step):
        return stored
    return found


@once
def _highest(gang: Gang) -> dict[int, ProgressStatus]:
    """Attempt -> its highest step that was reported, and when it was made at the latest."""
    highest = {}
    for attempt, found in _reported(gang).items():
        step = max([one.step for _, one in found])
        time = max([heard.ago(one.age_ms) for heard, one in found if one.step == step])
        highest[attempt] = ProgressStatus(attempt=attempt, step=step, time=time)
    return highest


def first_step(gang: Gang) -> ProgressStatus | None:
    """The first step of the running attempt, of the rank that was first; what is stored stays."""
    status = gang.status
    stored = status.first_step
    if status.phase is not GangPhase.RUNNING or (stored is not None and stored.attempt == status.attempt):
        return stored
    firsts = [
        (heard.ago(one.first_age_ms), one.first_step)
        for heard, one in reported(gang, status.attempt)
        if one.first_step is not None and one.first_age_ms is not None
    ]
    if not firsts:
        return stored
    time, step = min(firsts)
    return ProgressStatus(attempt=status.attempt, step=step, time=time)


def pace(gang: Gang, attempt: int) -> float | None:
    """Seconds a step in the attempt, between the first and the newest step that were reported."""
    status = gang.status
    found = [
        (one.step - one.first_step, (one.first_age_ms - one.age_ms) / 1000)
        for _, one in reported(gang, attempt)
        if one.first_step is not None and one.first_age_ms is not None
    ]
    first, last = status.first_step, status.progress
    if first is not None and last is not None and first.attempt == last.attempt == attempt:
        found.append((last.step - first.step, last.time - first.time))  # Its rank may be gone by now.
    made, took = max(found, default=(0, 0.0))
    return took / made if made > 0 and took >= 0 else None
