"""The list of gangs: those that have not ended first, then the others, the newest first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from heapq import nsmallest
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, Status
from gangctl.core.record.conditions import hangs
from gangctl.explain.page.documents import GangList, Row, within

MOST_ROWS: Final = 150


def listed(jobs: Iterable[GangJob], unreadable: int = 0, unseen: int | None = None) -> GangList:
    """The list of these gangs, at most :data:`MOST_ROWS` of them, and fewer if their names are long.

    Args:
        jobs: the gangs that the viewer may see.
        unreadable: how many others can't be read.
        unseen: in how many namespaces it is not known whether the viewer may see gangs. None = it may see all gangs.
    """
    found = tuple(jobs)
    rows = map(_row, nsmallest(MOST_ROWS, found, key=_order))
    shown = partial(
        GangList, total=len(found), unreadable=unreadable, is_partial=unseen is not None, unseen=unseen or 0
    )
    return shown(rows=within(shown(), rows))


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
        hangs=hangs(status),
        ready=status.ready,
        attempt=status.attempt,
        restarts=status.restarts.counted + status.restarts.uncounted,
        step=current_step(status),
        created=job.metadata.creation_timestamp,
        over=status.completion_time,
        reason=status.incidents[0].cause.reason if status.incidents else "",
    )
