"""One gang on the page, at one moment."""

from __future__ import annotations

from functools import partial
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob
from gangctl.api.status import Spent, Status
from gangctl.core.facts.world import Observed
from gangctl.core.record.conditions import goodput, hangs, spent_until, total
from gangctl.core.record.snapshot import snapshot
from gangctl.explain.page import members
from gangctl.explain.page.documents import ConditionShown, GangPage, Spending, within
from gangctl.explain.page.gangs import current_step
from gangctl.explain.page.incidents import incidents
from gangctl.explain.timeline.document import svg
from gangctl.explain.timeline.telling import timeline

MOST_CONDITIONS: Final = 6
_SPENT: Final = {
    "training": "training",
    "start_up": "start-up",
    "recovery": "recovery",
    "suspended": "suspended",
    "pending": "pending",
    "held": "held",
}


def gang(now: float, job: GangJob, observed: Observed, traces: str) -> GangPage:
    """The document of a gang.

    Args:
        now: seconds since the epoch.
        job: the gang as it is stored.
        observed: what the controller sees of it.
        traces: address of Jaeger's pages, or empty.
    """
    seen = snapshot(now, job, observed)
    status = seen.status
    spent = spent_until(status, now)
    kept = goodput(spent)
    last = status.incidents[0] if status.incidents else None
    nodes = {pod.member: pod.node for pod in observed.pods}
    cells, hidden = members.cells(seen.members)
    page = partial(
        GangPage,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase or "New",
        hangs=hangs(status),
        since=status.phase_time,
        created=job.metadata.creation_timestamp,
        over=status.completion_time,
        message=status.message,
        ready=status.ready,
        attempt=status.attempt,
        counted=status.restarts.counted,
        uncounted=status.restarts.uncounted,
        step=current_step(status),
        restore=_restore(status),
        goodput=None if kept is None else round(100 * kept),
        spent=() if kept is None else _spent(spent),
        conditions=_conditions(status),
        counts=members.counts(seen.members),
        interest=members.interest(seen.members, last, nodes),
        incidents=incidents(changed(job, status=status), traces),
    )
    shown = within(page(hidden=len(seen.members)), cells)
    return page(cells=shown, hidden=hidden + sum(one.members for one in cells[len(shown) :]))


def drawing(now: float, job: GangJob, observed: Observed) -> str:
    """The timeline of a gang as an SVG file, with what the controller knows now. ``now``: seconds since the epoch."""
    return svg(timeline(changed(job, status=snapshot(now, job, observed).status), now))


def _conditions(status: Status) -> tuple[ConditionShown, ...]:
    """Those that are true and tell more than the gang's message and each other."""
    told = {one.message: one for one in reversed(status.conditions) if one.status != "False"}
    told.pop(status.message, None)
    shown = tuple(told.values())[-MOST_CONDITIONS:]
    return tuple(ConditionShown(type=one.type, reason=one.reason, message=one.message) for one in reversed(shown))


def _restore(status: Status) -> str:
    point = status.restore_point
    return "" if point is None else f"step {point.step} of tier {point.tier}"


def _spent(spent: Spent) -> tuple[Spending, ...]:
    whole = total(spent) or 1.0
    found = ((words, round(100 * getattr(spent, name) / whole)) for name, words in _SPENT.items())
    return tuple(Spending(what=words, percent=percent) for words, percent in found if percent)
