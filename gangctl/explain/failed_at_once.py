"""Attempts that failed at once, in a row: what a user has to hear before the budget is used up.

    at_once(attempt) = it ended within QUICK_SECONDS after its start, no step of it is known, and its end was charged

A script that can't work is tried as often as any other: whether the next attempt works is not known here. So this only
counts.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from gangctl.api.incident import Incident
from gangctl.api.status import Status

QUICK_SECONDS: Final = 60.0


def failed_at_once(status: Status) -> int:
    """The number of attempts in a row that failed at once, up to the newest incident, as far as the status tells."""
    count = 0
    for incident, before in zip_longest(status.incidents, status.incidents[1:]):
        if not _is_at_once(status, incident, before):
            break
        count += 1
    return count


def _is_at_once(status: Status, incident: Incident, before: Incident | None) -> bool:
    """Whether the attempt that this incident ended failed at once. ``before``: the one that led to that attempt."""
    attempt = incident.attempt - 1
    if incident.settled and not incident.charged:
        return False
    if status.progress is not None and status.progress.attempt == attempt:
        return False
    if before is None:
        began = status.start_time if attempt == 1 else None
    else:
        made_step = before.attempt != attempt or before.milliseconds.first_step is not None
        began = None if made_step else before.settled_time
    return began is not None and incident.time - began <= QUICK_SECONDS
