"""Turns an incident of a status into the spans of its trace, for the exporter, the terminal and tests. Pure.

The rule: spans depend on the status alone, so a new leader finishes the trace that the old one began, with the same ids
and times. Phases follow one another by their durations, and a member's span is cut to its phase, so a span must not be
outside its parent, whatever the clocks do:

    begin(phase k) = began(incident) + sum of the durations of the phases before k

Every status must be accepted.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentMember
from gangctl.api.model import rfc3339
from gangctl.api.names import pod_name
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import (
    began,
    follows_at_once,
    in_seconds,
    is_trace_id,
    root_span_id,
    settled_at,
    trace_of,
)
from gangctl.story.document import document
from gangctl.story.phases import PHASES, Activity, activity_of, phase_named, phase_of

ROOT: Final = "gang.restart"
MEMBER: Final = "member."
"""Begins the names of members' spans."""
QUIET_SECONDS: Final = 300.0
"""A gang that has never reported a step, and reports none for this long after a restart, counts as one without steps:
its restarts end when the last worker was started. A first step that comes later is not in the trace."""
STORED_SECONDS: Final = 30.0
"""A first step that came in time may be stored this much later; the root waits for it."""
AFTER_WINDOW_SECONDS: Final = 1.0
"""A decision within the evidence window may be stored this much after it."""
_ENDED: Final = frozenset({GangPhase.SUSPENDED, GangPhase.HELD, GangPhase.SUCCEEDED, GangPhase.FAILED})

Value = str | int | float | bool
Attributes = tuple[tuple[str, Value], ...]


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


@document.register
def _document(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {"name": span.name, "spanID": span.span_id}
    if span.parent_id:
        made["parentSpanID"] = span.parent_id
    made["begin"] = rfc3339(span.begin)
    if span.end is not None:
        made |= {"end": rfc3339(span.end), "milliseconds": round((span.end - span.begin) * 1000)}
    if span.link:
        made["linkedTraceID"] = span.link
    if span.failed:
        made["failed"] = span.failed
    return made | {"attributes": dict(span.attributes)}


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
        _attributes(job, incident),
        link=linked if is_trace_id(linked) and linked != trace else "",
        failed=_failure(incident) if incident.outcome in {"Failed", "Held"} else "",
    )
    parents = {phase.name: phase for phase in phases}
    below: dict[str, dict[str, Span]] = {}
    for one in incident.members:
        name = phase_of(activity_of(one))
        if name is Activity.FIRST_STEP and name not in parents:
            continue  # It was stored after the trace was complete: at the attempt's end, or with a late first step.
        parent = parents.get(name, root)
        span = _member(job, incident, one, parent)
        below.setdefault(parent.span_id, {}).setdefault(span.span_id, span)
    found = [root]
    for first in sorted([*phases, *below.get(root.span_id, {}).values()], key=_order):
        found += [first, *sorted(below.get(first.span_id, {}).values(), key=_order)]
    return tuple(found)


def is_complete(job: GangJob, incident: Incident, now: float) -> bool:
    """Return whether the incident is final, so that its root may be exported. ``now``: seconds since the epoch.

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

    def span(name: str, end: float | None, failed: str = "") -> Span:
        return Span(str(name), trace, _span_id(trace, name), root_span_id(trace), at, end, failed=failed)

    at, found = began(incident), []
    for stored, milliseconds in incident.milliseconds:
        phase = phase_named(stored, incident)
        took = _first_step(job, incident) if phase is Activity.FIRST_STEP else milliseconds
        if took is not None:
            found.append(span(phase, at + in_seconds(took)))
            at += in_seconds(took)
    rest = _rest(job, incident)
    if not rest:
        return found
    if not _is_over(job, incident):
        return [*found, span(rest, None)]
    if incident.outcome not in {"Open", "Restarted"}:
        return [*found, span(rest, at if incident.settled_time is None else max(at, incident.settled_time))]
    after = _after(job, incident)
    return (
        found if after is None else [*found, span(rest, max(at, began(after)), f"attempt {after.attempt} came first")]
    )


def _rest(job: GangJob, incident: Incident) -> Activity | None:
    """The phase that has begun and whose duration isn't known; None if there is none."""
    times = incident.milliseconds
    if incident.outcome != "Restarted":
        return Activity.STOP if times.stop is None else None
    if times.first_step is not None:
        return None
    if times.start is None:
        return Activity.START
    return Activity.FIRST_STEP if _has_steps(job, incident) else None


def _first_step(job: GangJob, incident: Incident) -> int | None:
    """How long the first step took, in milliseconds; None if it came when the root could have been exported already."""
    times = incident.milliseconds
    if times.first_step is None:
        return None
    soon = in_seconds(times.start or 0) + in_seconds(times.first_step) <= _quiet(job)
    return times.first_step if soon or _had_steps(job, incident) else None


def _quiet(job: GangJob) -> float:
    return min(QUIET_SECONDS, job.spec.progress.timeout_of("Startup") or QUIET_SECONDS)


def _is_over(job: GangJob, incident: Incident) -> bool:
    """Return whether nothing can be added to the incident: the gang ended, or the incident's attempt did."""
    status = job.status
    return (
        incident.outcome not in {"Open", "Restarted"}
        or status.attempt > incident.attempt
        or any(one.attempt > incident.attempt for one in status.incidents)
        or status.phase in _ENDED
    )


def _has_steps(job: GangJob, incident: Incident) -> bool:
    """Return whether the gang reports its steps, as far as that was known in the incident's attempt.

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
    """Return whether the gang reported steps before the incident, as far as settled incidents tell.

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
    if phases[-1].end is None if phases else incident.outcome == "Open" and not _is_over(job, incident):
        return None
    return max((phase.end for phase in phases if phase.end is not None), default=began(incident))


def _member(job: GangJob, incident: Incident, one: IncidentMember, parent: Span) -> Span:
    """A member's span, cut to its parent."""
    name = f"{MEMBER}{activity_of(one)}"
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
        _present(attributes),
        failed=_failure(incident) if at_fault else "",
    )


def _attributes(job: GangJob, incident: Incident) -> Attributes:
    cause, warm = incident.cause, incident.warm_start
    started: list[tuple[str, Value | None]] = []
    if warm is not None:
        started = [
            ("gang.start.forked", warm.forked),
            ("gang.start.executed", warm.executed),
            ("gang.start.went_on", warm.went_on or None),
            ("gang.start.obstacle", warm.obstacle or None),
        ]
    return _present(
        [
            ("gang.name", job.metadata.name),
            ("gang.namespace", job.metadata.namespace),
            ("gang.uid", job.metadata.uid),
            ("gang.attempt.from", incident.attempt - 1),
            ("gang.attempt.to", incident.attempt),
            ("gang.cause.reason", cause.reason),
            ("gang.cause.message", cause.seen() or None),
            ("gang.cause.member", cause.member or None),
            ("gang.cause.rank", cause.rank),
            ("gang.cause.exit_code", cause.exit_code),
            ("gang.cause.signal", cause.signal),
            ("gang.cause.node", cause.node),
            ("gang.cause.device", cause.device),
            ("gang.cause.rule", cause.rule),
            ("gang.level", str(incident.level)),
            ("gang.outcome", incident.outcome),
            ("gang.charged", incident.charged),
            ("gang.planned", incident.planned),
            ("gang.restored_step", incident.restored_step if incident.outcome == "Restarted" else None),
            ("gang.lost_steps", incident.lost_steps),
            ("gang.lost_steps_at_most", incident.lost_steps_at_most),
            ("gang.lost_seconds", incident.lost_seconds),
            *started,
        ]
    )


def _present(attributes: list[tuple[str, Value | None]]) -> Attributes:
    """Leave out attributes without a value."""
    return tuple((key, value) for key, value in attributes if value is not None)


def _within(parent: Span, time: float) -> float:
    return max(parent.begin, time if parent.end is None else min(parent.end, time))


def _failure(incident: Incident) -> str:
    return incident.cause.seen() or incident.cause.reason


def _order(span: Span) -> tuple[float, int, float, str]:
    """By time. Phases that took no time keep their order, as do members that began together."""
    place = len(PHASES) if span.name.startswith(MEMBER) else PHASES.index(Activity(span.name))
    return span.begin, place, span.begin if span.end is None else span.end, span.span_id


def _span_id(trace: str, name: str, member: str = "", incarnation: int = 0) -> str:
    return hashlib.sha256(f"{trace}/{name}/{member}/{incarnation}".encode()).hexdigest()[:16]
