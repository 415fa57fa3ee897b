"""Makes the timeline of a gang, and tells it in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.status import ENDED, GangPhase, Spent, Status
from gangctl.core.facts.layout import layout
from gangctl.core.facts.trace_context import began
from gangctl.core.policy.cause import describe
from gangctl.core.record.conditions import goodput, spent_until
from gangctl.core.record.incidents import KEPT
from gangctl.explain.durations import took
from gangctl.explain.lost_steps import lost_steps
from gangctl.explain.timeline.history import history, phases
from gangctl.explain.timeline.members import members
from gangctl.explain.timeline.model import Episode, Kind, Row, Timeline
from gangctl.words.text import counted, moment

_SPENT: Final = (
    ("training", "training"),
    ("start_up", "start-up"),
    ("recovery", "recovery"),
    ("pending", "pending"),
    ("suspended", "suspended"),
    ("held", "held"),
)
_RESTING: Final = frozenset({"pending", "suspended", "held"})


def timeline(job: GangJob, now: float) -> Timeline:
    """The timeline. ``now``: seconds since the epoch."""
    status, metadata = job.status, job.metadata
    known = history(job, now)
    gang = Row("gang", len(layout(job.spec.roles).members), known.strip, known.marks)
    spent = spent_until(status, now)
    return Timeline(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        phase=str(status.phase) or "New",
        attempt=status.attempt,
        begin=known.begin,
        end=known.end,
        goes_on=status.phase not in ENDED,
        rows=(gang, *members(job, known, now)),
        attempts=known.attempts,
        incidents=tuple(_episode(job, one, now) for one in reversed(status.incidents)),
        spent=spent,
        goodput=goodput(spent),
        sentences=tuple(_sentences(status, gang, spent, known.begin, known.end)),
    )


def _episode(job: GangJob, incident: Incident, now: float) -> Episode:
    return Episode(
        attempt=incident.attempt,
        begin=began(incident),
        phases=phases(job, incident, now),
        cause=describe(incident.cause).rstrip("."),
        outcome=incident.outcome,
        level=str(incident.level),
        charged=incident.charged if incident.settled else None,
        restored_step=incident.restored_step,
        lost_steps=incident.lost_steps,
        lost_steps_at_most=incident.lost_steps_at_most,
        lost_seconds=incident.lost_seconds,
    )


def _sentences(status: Status, gang: Row, spent: Spent, begin: float, end: float) -> Iterator[str]:
    phase = status.phase if status.phase is not GangPhase.NEW else "Not seen by a controller yet"
    whole = took(end - begin) if status.phase in ENDED else f"{took(end - begin)} so far"
    attempt = f", attempt {status.attempt}" if status.attempt else ""
    yield f"{phase}{attempt}, {whole}, from {moment(begin)} to {moment(end)}."
    yield _worth(spent)
    restarts = status.restarts
    if restarts.counted or restarts.uncounted:
        charged = f"{counted(restarts.counted, 'restart')} charged to the budget, {restarts.uncounted} not charged"
        lost = sum(one.lost_steps or 0 for one in status.incidents)
        most = sum(one.lost_steps_at_most or one.lost_steps or 0 for one in status.incidents)
        unknown = any(one.lost_steps is None and one.outcome == "Restarted" for one in status.incidents)
        yield f"{charged}; {lost_steps(lost, most)} lost{' as far as steps are known' if unknown else ''}."
    if point := status.completed_step:
        yield f"The newest checkpoint that every rank has registered is step {point.step} ({point.tier})."
    if any(bar.kind is Kind.UNKNOWN for bar in gang.bars):
        kept = f"it keeps the last {KEPT} incidents, and of earlier suspensions no times"
        yield f"What the status doesn't tell is drawn as unknown: {kept}."


def _worth(spent: Spent) -> str:
    """What the time was spent on."""
    share = goodput(spent)
    parts = [f"{took(seconds)} {words}" for field, words in _SPENT if (seconds := getattr(spent, field))]
    if share is None:
        # It is accounted as start-up and recovery, since no step ends these.
        active = spent.start_up + spent.recovery
        resting = [one for one in parts if one.rpartition(" ")[2] in _RESTING]
        found = [*([f"{took(active)} active (starting, restarting or training)"] if active else []), *resting]
        where = f": {', '.join(found)}" if found else ""
        return f"No step was reported, so goodput is unknown{where}."
    lost = f" ({took(spent.lost_progress)} of it lost)" if spent.lost_progress else ""
    return f"Goodput {share:.1%}: {', '.join([parts[0] + lost, *parts[1:]])}."
