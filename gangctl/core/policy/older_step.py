"""The older step: when a gang gives its newest checkpoint up for the one before, which a corrupt one would block.

    due = the failures in a row from this restore point, without a step beyond it, are fallbackAfter

Where no rank reports steps, an attempt that ends sooner than ``STEADY_SECONDS`` and leaves no newer checkpoint has made
none. That is a guess: it takes two at least, and costs one step back, once in a row of failures. It must cost neither a
pod nor the job, as reported steps do (``ladder.py``). Where most members could not see the restore point, it says
nothing.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.checkpoint_status import RestorePoint
from gangctl.api.incident import Cause
from gangctl.core.facts.faults import is_unseen_by_most
from gangctl.core.facts.gang import Gang
from gangctl.core.policy.ladder import failures, has_progressed, is_over
from gangctl.core.policy.restart_backoff import in_a_row

GUESSED: Final = 2
"""One short attempt without a checkpoint says nothing of a step."""


def is_due(gang: Gang, cause: Cause, newest: RestorePoint) -> bool:
    """Whether this failure is the one after which an older step is tried; that step gets as many chances.

    Args:
        gang: it had a restore point.
        cause: of the failure, which is charged.
        newest: the newest step that every rank can load now.
    """
    checkpoint = gang.spec.checkpoint
    if checkpoint is None:
        return False
    if has_progressed(gang) is None and not is_unseen_by_most(gang):
        return _unreported(gang, cause, newest) == max(checkpoint.fallback_after, GUESSED)
    return failures(gang) == checkpoint.fallback_after


def _unreported(gang: Gang, cause: Cause, newest: RestorePoint) -> int:
    """Failures in a row, this one included, that seem to have made no step; 0 if that isn't known, or was acted on."""
    point = gang.status.restore_point
    if point is None or newest.step > point.step or is_over(gang):
        return 0
    counted, row = 1, in_a_row(gang, cause) - 1
    for entry in reversed(gang.status.ledger):
        if row <= 0 or entry.progressed is not None:
            break
        if entry.restored_step != point.step:
            return 0
        counted += entry.charged
        row -= entry.failure  # Disruptions lie between the failures of a row.
    else:
        return 0 if row > 0 else counted  # Where the begin of the row is forgotten, so is whether a step was given up.
    return counted
