"""Which changes of phase and attempt the lifecycle's table allows."""

from __future__ import annotations

from gangctl.api.status import Status
from gangctl.core.lifecycle.table import TRANSITIONS, Advance

EDGES = {(source, row.target, row.attempt is Advance.NEXT) for row in TRANSITIONS for source in row.sources}


def is_allowed(before: Status, after: Status) -> bool:
    """Whether a row of the table leads from one stored status to the next."""
    if (before.phase, before.attempt) == (after.phase, after.attempt):
        return True
    raised = after.attempt - before.attempt
    return raised in {0, 1} and (before.phase, after.phase, bool(raised)) in EDGES
