"""Adaptive: the timeout of a step, as far as the steps that were seen tell how long one may take.

    longest  = the longest gap between two reports of any rank in this attempt, or that the status has of any attempt
    deadline = min(timeoutSeconds, max(FLOOR_SECONDS, factor * longest))
    in force <=> a rank has shown ENOUGH gaps in this attempt, or the status says that one has,
                 and the attempt is past the highest step of all attempts before it; else timeoutSeconds

The longest gap must not be forgotten: a checkpoint or an evaluation may come once in some thousand steps, and a median,
or a window that it has left, would call the next one a hang. Nor must an attempt be judged while it repeats steps:
where a slow one was called a hang by mistake, it is among them, and the mistake must not be made again and again. A
gap counts as soon as it is heard; the status has it when it is over 10 % longer than what it has.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gangctl.api.gangjob import GangJob
from gangctl.api.progress import Adaptive
from gangctl.api.step_gaps import StepGaps
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.progress import highest_step
from gangctl.words.faults import deadline_computed

ENOUGH: Final = 8
"""With fewer gaps, the start of the training with its caches and compilations would be all that is known."""
FLOOR_SECONDS: Final = 15.0
"""A sidecar passes on steps once a second, and a busy controller reads a message 5 s later (docs/limits.md, Size)."""
GROWTH: Final = 1.1
"""What is stored is exact enough: it must not cost a write for each step."""


class Deadline(NamedTuple):
    """A deadline that is in force in place of timeoutSeconds."""

    seconds: float
    text: str
    """How it comes about."""


def deadline(gang: Gang) -> Deadline | None:
    """The deadline in force between two steps; None while it is timeoutSeconds."""
    adaptive, found = gang.spec.progress.adaptive, _seen(gang)
    made = None if adaptive is None else highest_step(gang, gang.status.attempt)
    return None if made is None or adaptive is None else _computed(gang.job, adaptive, found, made.step)


def stored_deadline(job: GangJob) -> Deadline | None:
    """The same as far as the status tells, which a controller brings up to date now and then."""
    adaptive, found, made = job.spec.progress.adaptive, job.status.step_gaps, job.status.progress
    if adaptive is None or found is None or made is None or made.attempt != job.status.attempt:
        return None
    return _computed(job, adaptive, found, made.step)


def remembered(gang: Gang) -> StepGaps | None:
    """What the status should have of the gaps."""
    if gang.spec.progress.adaptive is None:
        return None
    old, new = gang.status.step_gaps or StepGaps(), _seen(gang)
    same = (old.attempt, old.reached_step) == (new.attempt, new.reached_step)
    return gang.status.step_gaps if same and new.longest_milliseconds <= old.longest_milliseconds * GROWTH else new


@once
def _seen(gang: Gang) -> StepGaps:
    status = gang.status
    old, before = status.step_gaps or StepGaps(), status.progress
    reached = [old.reached_step, None if before is None or before.attempt >= status.attempt else before.step]
    found = [heard.gaps for heard in gang.heard.values() if heard.gaps.attempt == status.attempt]
    enough = old.attempt == status.attempt or max((one.seen for one in found), default=0) >= ENOUGH
    longest = max((one.longest for one in found), default=0.0) if enough else 0.0
    return StepGaps(
        attempt=status.attempt if enough else old.attempt,
        longest_milliseconds=max(old.longest_milliseconds, math.ceil(longest * 1000)),
        reached_step=max((step for step in reached if step is not None), default=None),
    )


def _computed(job: GangJob, adaptive: Adaptive, found: StepGaps, step: int) -> Deadline | None:
    longest, most = found.longest_milliseconds / 1000, job.spec.progress.timeout_seconds
    repeats = found.reached_step is not None and step <= found.reached_step
    if most is None or found.attempt != job.status.attempt or repeats:
        return None
    seconds = max(FLOOR_SECONDS, adaptive.factor * longest)
    if seconds >= most:
        return None
    floor = FLOOR_SECONDS if seconds == FLOOR_SECONDS else None
    return Deadline(seconds, deadline_computed(seconds, adaptive.factor, longest, floor))
