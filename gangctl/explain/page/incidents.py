"""Incidents on the page: what failed, what was decided, what it cost, and the phases as bars to scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentMember
from gangctl.core.policy.cause import describe
from gangctl.explain.costs import cost
from gangctl.explain.page.documents import IncidentShown, PhaseBar, Waited
from gangctl.explain.rule_words import judged_by
from gangctl.explain.spans import Span, incident_spans

MOST: Final = 10
_PHASES: Final = {
    "detect": "detect",
    "stop": "stop",
    "replace": "replace",
    "back_off": "back-off",
    "barrier": "barrier",
    "evidence": "evidence",
    "start": "start",
    "first_step": "first step",
}
"""Name of the span -> what the page calls it."""
_WHAT: Final = {
    "Stop": "stopped after",
    "Replace": "had a new pod after",
    "Start": "started after",
    "CheckpointLoad": "loaded its checkpoint in",
    "FirstStep": "made its first step in",
}


def incidents(job: GangJob, traces: str) -> tuple[IncidentShown, ...]:
    """The incidents, newest first. ``traces``: address of Jaeger's pages, or empty."""
    return tuple(_shown(job, one, traces, newest=at == 0) for at, one in enumerate(job.status.incidents[:MOST]))


def _shown(job: GangJob, incident: Incident, traces: str, *, newest: bool) -> IncidentShown:
    output = incident.output if newest else None
    root, *below = incident_spans(job, incident)
    return IncidentShown(
        attempt=incident.attempt,
        began=root.begin,
        outcome=incident.outcome,
        cause=describe(incident.cause),
        output="" if output is None else output.text,
        why=_why(incident),
        cost=cost(incident) if incident.outcome == "Restarted" else "",
        phases=tuple(_bar(span) for span in below if span.parent_id == root.span_id and span.name in _PHASES),
        waits=tuple(_waits(incident)),
        trace=root.trace_id,
        url=f"{traces}/trace/{quote(root.trace_id, safe='')}" if traces else "",
    )


def _waits(incident: Incident) -> Iterator[Waited]:
    """The member that the others waited for in each phase."""
    for phase, what in _WHAT.items():
        last = max((one for one in incident.members if one.phase == phase), key=_end, default=None)
        if last is not None:
            yield Waited(member=last.member, what=what, milliseconds=last.milliseconds, node=last.node)


def _end(one: IncidentMember) -> int:
    return one.begin_milliseconds + one.milliseconds


def _bar(span: Span) -> PhaseBar:
    lasted = None if span.end is None else round((span.end - span.begin) * 1000)
    return PhaseBar(name=_PHASES[span.name], milliseconds=lasted)


def _why(incident: Incident) -> str:
    rule = judged_by(incident)
    if not incident.settled:
        return f"{rule}; so far level {incident.level}"
    return f"{rule}: level {incident.level}, {'charged' if incident.charged else 'not charged'} to the budget"
