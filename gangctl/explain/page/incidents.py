"""Incidents on the page: what failed, what was decided, what it cost, and the phases as bars to scale."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentLevel
from gangctl.api.status import GangPhase
from gangctl.core.facts.trace_context import began, trace_of
from gangctl.core.policy.cause import describe
from gangctl.explain.lost_steps import lost_steps
from gangctl.explain.page.documents import IncidentShown, PhaseBar, Waited

MOST: Final = 10
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
    trace = trace_of(job, incident)
    return IncidentShown(
        attempt=incident.attempt,
        began=began(incident),
        outcome=incident.outcome,
        cause=describe(incident.cause),
        why=_why(incident),
        cost=_cost(incident),
        phases=(*_phases(incident), *(_open(job, incident) if newest else ())),
        waits=tuple(
            Waited(member=one.member, what=_WHAT[one.phase], milliseconds=one.milliseconds, node=one.node)
            for one in incident.members
        ),
        trace=trace,
        url=f"{traces}/trace/{quote(trace, safe='')}" if traces else "",
    )


def _phases(incident: Incident) -> tuple[PhaseBar, ...]:
    took = incident.milliseconds
    found = {
        "detect": took.detect,
        "stop": took.stop,
        "replace": took.replace,
        "back-off": took.back_off,
        "barrier": took.barrier,
        "start": took.start,
        "first step": took.first_step,
    }
    return tuple(PhaseBar(name=name, milliseconds=lasted) for name, lasted in found.items() if lasted is not None)


def _open(job: GangJob, incident: Incident) -> tuple[PhaseBar, ...]:
    """The phase of the last incident that goes on, if one does."""
    status, took = job.status, incident.milliseconds
    has_steps = status.first_step is not None and status.first_step.attempt < incident.attempt
    match incident.outcome:
        case "Open":
            return (PhaseBar(name="stop" if took.stop is None else _before_barrier(incident)),)
        case "Restarted" if status.phase is not GangPhase.RUNNING or status.attempt != incident.attempt:
            return ()
        case "Restarted" if took.start is None:
            return (PhaseBar(name="start"),)
        case "Restarted" if has_steps and took.first_step is None:
            return (PhaseBar(name="first step"),)
        case _:
            return ()


def _before_barrier(incident: Incident) -> str:
    replaces = incident.level in {IncidentLevel.POD, IncidentLevel.GANG}
    return "replace" if replaces and incident.milliseconds.replace is None else "barrier"


def _why(incident: Incident) -> str:
    cause = incident.cause
    rule = f"Rule {cause.rule} of podFailurePolicy matched" if cause.rule else "No rule of podFailurePolicy matched"
    if incident.planned:
        rule = "The stop was planned, with time for a last checkpoint"
    if not incident.settled:
        return f"{rule}; so far level {incident.level}"
    return f"{rule}: level {incident.level}, {'charged' if incident.charged else 'not charged'} to the budget"


def _cost(incident: Incident) -> str:
    if incident.outcome != "Restarted":
        return ""
    step, lost, most = incident.restored_step, incident.lost_steps, incident.lost_steps_at_most
    point = "restarted from the beginning" if step is None else f"restarted from step {step}"
    if lost is None:
        return f"{point}; the number of lost steps is unknown"
    if not (most or lost):
        return f"{point}; no step was lost"
    seconds = "" if incident.lost_seconds is None else f", {incident.lost_seconds:.1f} s of training"
    return f"{point}; {lost_steps(lost, most)} lost{seconds}"
