"""An incident in words, from the status alone: what failed, what was decided and why, what it cost, the waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Incident, IncidentLevel, IncidentMember
from gangctl.cli.text import clean, took
from gangctl.core.policy.cause import describe
from gangctl.telemetry.spans import PARENTS, Span

_LEVELS: Final = {
    IncidentLevel.PROCESS: "every worker starts again inside its pod",
    IncidentLevel.CONTAINER: "the member's container starts again, and every worker",
    IncidentLevel.POD: "a pod is replaced, the other workers start again inside theirs",
    IncidentLevel.GANG: "every pod is replaced",
}
_OUTCOMES: Final = {
    "Failed": "The gang failed.",
    "Held": "The gang was held: its pods stay for a look.",
    "Succeeded": "The gang had succeeded by then.",
    "Suspended": "The gang was suspended.",
}
_WAITS: Final = {
    "Stop": "{} to stop ({})",
    "Replace": "the new pod of {} ({})",
    "Start": "{} to start ({})",
    "CheckpointLoad": "{} to load its checkpoint ({})",
    "FirstStep": "the first step of {} ({})",
}
"""In the order of time."""


def headline(job: GangJob, incident: Incident, spans: Sequence[Span], now: float) -> str:
    """The gang, from which attempt to which, how it ended, how long it took, and when it began."""
    root = spans[0]
    whole = took((now if root.end is None else root.end) - root.begin)
    how = f"{whole} so far" if root.end is None else whole
    at = datetime.fromtimestamp(root.begin, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    attempts = f"attempt {incident.attempt - 1} to {incident.attempt}"
    return clean(f"{job.metadata.name}: {attempts}, {_outcome(incident, root)}, {how}, {at}")


def paragraph(incident: Incident, spans: Sequence[Span], now: float) -> str:
    """Sentences for people; ``now`` in seconds since the epoch."""
    parts = [_cause(incident), _decision(incident), _cost(incident), *_waits(incident, spans), *_unfinished(spans, now)]
    return " ".join(clean(part) for part in parts if part)


def _outcome(incident: Incident, root: Span) -> str:
    if root.end is not None or incident.outcome not in {"Open", "Restarted"}:
        return incident.outcome.lower()
    return "not over yet"


def _cause(incident: Incident) -> str:
    cause = incident.cause
    text = describe(cause).rstrip(".")
    where = {f"on node {cause.node}": cause.node, f"device {cause.device}": cause.device}
    found = ", ".join([text, *(words for words, what in where.items() if what and what not in text)])
    others = [name for name in cause.tied if name != cause.member]
    return f"{found}; so did {', '.join(others)} in the same moment." if others else f"{found}."


def _decision(incident: Incident) -> str:
    cause, level = incident.cause, f"level {incident.level} ({_LEVELS[incident.level]})"
    rule = f"Rule {cause.rule} of podFailurePolicy decided" if cause.rule else "No rule of podFailurePolicy named it"
    if incident.planned:
        rule = "It was planned, so workers had time for a last checkpoint"
    if not incident.settled:
        return f"{rule}; so far {level}, the rest is decided when every member is ready."
    return f"{rule}: {level}, {'charged' if incident.charged else 'not charged'} to the budget."


def _cost(incident: Incident) -> str:
    if incident.outcome != "Restarted":
        return _OUTCOMES.get(incident.outcome, "")
    step = incident.restored_step
    point = "It began again from the start" if step is None else f"It began again from step {step}"
    steps, seconds = incident.lost_steps, incident.lost_seconds
    if steps is None:
        return f"{point}; how many steps were lost isn't known."
    if steps == 0:
        return f"{point}; no step was lost."
    spent = "" if seconds is None else f", {took(seconds)} of training"
    return f"{point}; {steps} step{'s were' if steps > 1 else ' was'} lost{spent}."


def _waits(incident: Incident, spans: Sequence[Span]) -> Iterator[str]:
    """For whom everybody waited, phase by phase: whose end was the last. How long is said as it is drawn."""
    drawn = {_key(span): (span.end or span.begin) - span.begin for span in spans}
    waits = []
    for phase, words in _WAITS.items():
        last = max((one for one in incident.members if one.phase == phase), key=_end, default=None)
        if last is not None:
            node = f" on {last.node}" if phase == "Replace" and last.node else ""
            waits.append(
                words.format(f"{last.member}{node}", took(drawn[PARENTS[phase][0], last.member, last.incarnation]))
            )
    if waits:
        yield f"Everybody waited for {_listed(waits)}."


def _unfinished(spans: Sequence[Span], now: float) -> Iterator[str]:
    """What goes on now: the phase, for how long."""
    for span in spans[1:]:
        if span.end is None:
            yield f"It is not over yet: {span.name} has gone on for {took(now - span.begin)}."
            return


def _key(span: Span) -> tuple[object, ...]:
    told = dict(span.attributes)
    return span.name, told.get("gang.member"), told.get("gang.incarnation")


def _end(one: IncidentMember) -> int:
    return one.begin_milliseconds + one.milliseconds


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
