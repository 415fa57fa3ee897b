"""The list of gangs: those that have not ended first, then the others, the newest first."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, Status
from gangctl.explain.page.documents import GangList, Row

MOST_ROWS: Final = 150


def listed(jobs: Iterable[GangJob], unreadable: int = 0) -> GangList:
    """The list of these gangs, at most :data:`MOST_ROWS` of them. ``unreadable``: how many others can't be read."""
    found = tuple(jobs)
    shown = nsmallest(MOST_ROWS, found, key=_order)
    return GangList(total=len(found), unreadable=unreadable, rows=tuple(map(_row, shown)))


def current_step(status: Status) -> int | None:
    """The highest step of this attempt."""
    progress = status.progress
    return None if progress is None or progress.attempt != status.attempt else progress.step


def _order(job: GangJob) -> tuple[bool, float, str, str]:
    ended = job.status.phase in ENDED
    newest_first = -(job.status.completion_time or 0.0) if ended else 0.0
    return ended, newest_first, job.metadata.namespace, job.metadata.name


def _row(job: GangJob) -> Row:
    status = job.status
    return Row(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase or "New",
        ready=status.ready,
        attempt=status.attempt,
        restarts=status.restarts.counted + status.restarts.uncounted,
        step=current_step(status),
        created=job.metadata.creation_timestamp,
        over=status.completion_time,
        reason=status.incidents[0].cause.reason if status.incidents else "",
    )
