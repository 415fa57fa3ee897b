"""Turns an incident of a status into the spans of its trace, for the exporter, the terminal and tests. Pure.

The rule: spans depend on the status alone, so a new leader finishes the trace that the old one began, with the same ids
and times. Phases follow one another by their durations, and a member's span is cut to its phase, so a span must not be
outside its parent, whatever the clocks do:

    begin(phase k) = began(incident) + sum of the durations of the phases before k

Every status must be accepted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentMember
from gangctl.api.names import pod_name
from gangctl.api.status import GangPhase
from gangctl.core.facts.trace_context import (
    began,
    follows_at_once,
    in_seconds,
    is_trace_id,
    root_span_id,
    settled_at,
    trace_of,
)
from gangctl.explain.span_attributes import Attributes, Value, known, root_attributes

ROOT: Final = "gang.restart"
QUIET_SECONDS: Final = 300.0
"""A gang that has never reported a step, and reports none for this long after a restart, counts as one without steps:
its restarts end when the last worker was started. A first step that comes later is not in the trace."""
STORED_SECONDS: Final = 30.0
"""A first step that came in time may be stored this much later; the root waits for it."""
AFTER_WINDOW_SECONDS: Final = 1.0
"""A decision within the evidence window may be stored this much after it."""
PARENTS: Final = {
    "Stop": ("member.stop", "stop"),
    "Replace": ("member.replace", "replace"),
    "Start": ("member.start", "start"),
    "CheckpointLoad": ("member.checkpoint_load", "first_step"),
    "FirstStep": ("member.first_step", "first_step"),
}
"""What a member did -> the name of its span, and the phase that is its parent."""
_ENDED: Final = frozenset({GangPhase.SUSPENDED, GangPhase.HELD, GangPhase.SUCCEEDED, GangPhase.FAILED})

_PHASES: Final = ("detect", "stop", "replace", "back_off", "barrier", "start", "first_step")
EVIDENCE: Final = "evidence"
"""What stands in place of the barrier where the job ended or is held: that waited for stronger evidence alone."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are seconds since the epoch, on the clock of the controller that opened the incident."""

    name: str
    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str
    """Empty for the root."""
    begin: float
    end: float | None
    """None while it goes on."""
    attributes: Attributes = ()
    link: str = ""
    """The trace of the incident before, if this one followed it directly; else empty."""
    failed: str = ""
    """Why it failed; empty if it did not."""


def incident_spans(job: GangJob, incident: Incident) -> tuple[Span, ...]:
    """The incident's trace: root first, then depth first, siblings by time."""
    trace = trace_of(job, incident)
    phases = _phases(job, incident, trace)
    linked = incident.linked_trace_id
    root = Span(
        ROOT,
        trace,
        root_span_id(trace),
        "",
        began(incident),
        _end(job, incident, phases),
        root_attributes(job, incident),
        link=linked if is_trace_id(linked) and linked != trace else "",
        failed=_failure(incident) if incident.outcome in {"Failed", "Held"} else "",
    )
    parents = {phase.name: phase for phase in phases}
    below: dict[str, dict[str, Span]] = {}
    for one in incident.members:
        name = PARENTS[one.phase][1]
        if name == "first_step" and name not in parents:
            continue  # It was stored after the trace was complete: at the attempt's end, or with a late first step.
        parent = parents.get(name, root)
        span = _member(job, incident, one, parent)
        below.setdefault(parent.span_id, {}).setdefault(span.span_id, span)
    found = [root]
    for first in sorted([*phases, *below.get(root.span_id, {}).values()], key=_order):
        found += [first, *sorted(below.get(first.span_id, {}).values(), key=_order)]
    return tuple(found)


def is_complete(job: GangJob, incident: Incident, now: float) -> bool:
    """Whether the incident is final, so that its root may be exported. ``now``: seconds since the epoch.

    It is final when stronger evidence cannot correct it any more and its end is known: it ended the job or is held; it
    reached the first step; the next attempt or the gang's end came before that; or the gang reports no steps
    (:data:`QUIET_SECONDS`).
    """
    settled = settled_at(incident)
    if now <= settled + job.spec.recovery.evidence_window_seconds + AFTER_WINDOW_SECONDS:
        return False
    if _is_over(job, incident):
        return True
    if incident.outcome != "Restarted" or _rest(job, incident):
        return False
    return _first_step(job, incident) is not None or now > settled + _quiet(job) + STORED_SECONDS


def _phases(job: GangJob, incident: Incident, trace: str) -> list[Span]:
    """The phases that took place, in order; the last one has no end while the incident goes on."""
    at, found = began(incident), []
    for name in _PHASES:
        milliseconds = getattr(incident.milliseconds, name)
        if name == "first_step":
            milliseconds = _first_step(job, incident)
        if milliseconds is not None:
            end = at + in_seconds(milliseconds)
            shown = EVIDENCE if name == "barrier" and incident.outcome in {"Failed", "Held"} else name
            found.append(Span(shown, trace, _span_id(trace, shown), root_span_id(trace), at, end))
            at = end
    rest = _rest(job, incident)
    if not rest:
        return found
    span_id = _span_id(trace, rest)
    if not _is_over(job, incident):
        return [*found, Span(rest, trace, span_id, root_span_id(trace), at, None)]
    if incident.outcome not in {"Open", "Restarted"}:
        ended = incident.settled_time if incident.settled_time is not None else at
        return [*found, Span(rest, trace, span_id, root_span_id(trace), at, max(at, ended))]
    after = _after(job, incident)
    if after is None:
        return found
    failed = f"attempt {after.attempt} came first"
    return [*found, Span(rest, trace, span_id, root_span_id(trace), at, max(at, began(after)), failed=failed)]


def _rest(job: GangJob, incident: Incident) -> str:
    """The phase that has begun and whose duration is not known; empty if there is none."""
    times = incident.milliseconds
    if incident.outcome != "Restarted":
        return "stop" if times.stop is None else ""
    if times.start is None:
        return "" if times.first_step is not None else "start"
    return "first_step" if times.first_step is None and _has_steps(job, incident) else ""


def _first_step(job: GangJob, incident: Incident) -> int | None:
    """How long the first step took, in milliseconds; None if it came when the root could have been exported already."""
    times = incident.milliseconds
    if times.first_step is None:
        return None
    soon = in_seconds(times.start or 0) + in_seconds(times.first_step) <= _quiet(job)
    return times.first_step if soon or _had_steps(job, incident) else None


def _quiet(job: GangJob) -> float:
    return min(QUIET_SECONDS, job.spec.progress.startup_timeout_seconds)


def _is_over(job: GangJob, incident: Incident) -> bool:
    """Whether nothing can be added to the incident: the gang ended, or the incident's attempt did."""
    status = job.status
    return (
        incident.outcome not in {"Open", "Restarted"}
        or status.attempt > incident.attempt
        or any(one.attempt > incident.attempt for one in status.incidents)
        or status.phase in _ENDED
    )


def _has_steps(job: GangJob, incident: Incident) -> bool:
    """Whether the gang reports its steps, as far as that was known in the incident's attempt.

    Later knowledge does not count: a trace that was complete without a first step stays complete.
    """
    if _had_steps(job, incident):
        return True
    settled = settled_at(incident)
    after = _after(job, incident)
    if after is not None:
        return not follows_at_once(incident, after.time) and after.linked_trace_id == trace_of(job, incident)
    return any(
        one is not None
        and (one.attempt < incident.attempt or (one.attempt == incident.attempt and one.time <= settled + _quiet(job)))
        for one in (job.status.first_step, job.status.progress)
    )


def _had_steps(job: GangJob, incident: Incident) -> bool:
    """Whether the gang reported steps before the incident, as far as settled incidents tell.

    Later incidents do not change what settled ones tell.
    """
    before = (one for one in job.status.incidents if one.attempt < incident.attempt)
    return incident.lost_steps is not None or any(
        one.lost_steps is not None or one.milliseconds.first_step is not None for one in before
    )


def _after(job: GangJob, incident: Incident) -> Incident | None:
    """The incident that ended the attempt that this one led to."""
    return next((one for one in job.status.incidents if one.attempt == incident.attempt + 1), None)


def _end(job: GangJob, incident: Incident, phases: list[Span]) -> float | None:
    """The root's end."""
    if phases[-1].end is None if phases else incident.outcome == "Open" and not _is_over(job, incident):
        return None
    return max((phase.end for phase in phases if phase.end is not None), default=began(incident))


def _member(job: GangJob, incident: Incident, one: IncidentMember, parent: Span) -> Span:
    """A member's span, cut to its parent."""
    name = PARENTS[one.phase][0]
    began_at = began(incident) + in_seconds(one.begin_milliseconds)
    begin, end = _within(parent, began_at), _within(parent, began_at + in_seconds(one.milliseconds))
    attributes: list[tuple[str, Value | None]] = [
        ("gang.member", one.member),
        ("gang.incarnation", one.incarnation),
        ("gang.part", one.part),
        ("k8s.pod.name", pod_name(job.metadata.name, one.member, one.incarnation)),
        ("k8s.node.name", one.node or None),
        ("gang.device", one.device),
    ]
    at_fault = one.part == "Cause" and not incident.planned
    return Span(
        name,
        parent.trace_id,
        _span_id(parent.trace_id, name, one.member, one.incarnation),
        parent.span_id,
        begin,
        end,
        known(attributes),
        failed=_failure(incident) if at_fault else "",
    )


def _within(parent: Span, time: float) -> float:
    return max(parent.begin, time if parent.end is None else min(parent.end, time))


def _failure(incident: Incident) -> str:
    return incident.cause.seen() or incident.cause.reason


def _order(span: Span) -> tuple[float, int, float, str]:
    """By time. Phases that took no time keep their order, as do members that began together."""
    name = "barrier" if span.name == EVIDENCE else span.name
    place = _PHASES.index(name) if name in _PHASES else len(_PHASES)
    return span.begin, place, span.begin if span.end is None else span.end, span.span_id


def _span_id(trace: str, name: str, member: str = "", incarnation: int = 0) -> str:
    return hashlib.sha256(f"{trace}/{name}/{member}/{incarnation}".encode()).hexdigest()[:16]
