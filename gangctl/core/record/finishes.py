"""Who has finished, as the status remembers it.

The rule: each write of the status records who has finished by then; where nothing else is to be written, that alone is,
at most once a second. So success doesn't depend on a report that a hub may forget, or on a pod that may vanish. What is
recorded must not be taken back within its attempt, and must not count for another.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.changes import changed
from gangctl.api.status import Status
from gangctl.core.facts.finished import attempt_with_workers, finished, record, recorded_places
from gangctl.core.facts.gang import Gang

RECORD_SECONDS: Final = 1.0
"""From one write that only records who has finished to the next: 10,000 members finish within moments of each other."""


def recorded(gang: Gang, status: Status) -> Status:
    """The status with all that have finished by now; the same object if that is no news. A new attempt has none."""
    attempt = attempt_with_workers(status)
    if attempt != attempt_with_workers(gang.status):
        return status if status.finished is None else changed(status, finished=None)
    news = finished(gang) - recorded_places(status, attempt)
    return changed(status, finished=record(gang)) if news else status


def due_at(gang: Gang) -> float:
    """When the next write that only records it may be made."""
    last = gang.status.finished
    return 0.0 if last is None or last.time > gang.now else last.time + RECORD_SECONDS
