"""An incident in words, from the status alone: what failed, what was decided and why, what it cost, and the waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from gangctl.api.escaping import escaped
from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentMember, WarmStart
from gangctl.api.names import LOCAL_NODE
from gangctl.cli.printers.text import clean
from gangctl.core.policy.cause import describe
from gangctl.core.record.incidents import advice
from gangctl.explain.costs import cost
from gangctl.explain.durations import took
from gangctl.explain.rule_words import judged_by, level_words
from gangctl.explain.spans import PARENTS, Span

_WAITS: Final = {
    "Stop": "{} to stop ({})",
    "Replace": "the new pod of {} ({})",
    "Start": "{} to start ({})",
    "CheckpointLoad": "{} to load its checkpoint ({})",
    "FirstStep": "the first step of {} ({})",
}
"""In the order of time."""


def headline(job: GangJob, incident: Incident, spans: Sequence[Span], now: float) -> str:
    """The gang, the attempts, the outcome, the duration and the start of the incident."""
    root = spans[0]
    whole = took((now if root.end is None else root.end) - root.begin)
    how = f"{whole} so far" if root.end is None else whole
    at = datetime.fromtimestamp(root.begin, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    attempts = f"attempt {incident.attempt - 1} to {incident.attempt}"
    return clean(f"{job.metadata.name}: {attempts}, {_outcome(incident, root)}, {how}, {at}")


def paragraph(incident: Incident, spans: Sequence[Span], now: float) -> str:
    """Sentences for people; ``now`` in seconds since the epoch."""
    told = [_cause(incident), _decision(incident), _cost(incident), *_waits(incident, spans)]
    parts = [*told, starts(incident), advice(incident), *_unfinished(spans, now)]
    return " ".join(clean(part) for part in parts if part)


def _outcome(incident: Incident, root: Span) -> str:
    if root.end is not None or incident.outcome not in {"Open", "Restarted"}:
        return incident.outcome.lower()
    return "not over yet"


def _cause(incident: Incident) -> str:
    cause = incident.cause
    text = describe(cause).rstrip(".")
    node = cause.node if cause.node != LOCAL_NODE else None
    where = {f"on node {node}": node, f"device {cause.device}": cause.device}
    found = ", ".join([text, *(words for words, what in where.items() if what and what not in text)])
    others = [name for name in cause.tied if name != cause.member]
    return f"{found}; at the same moment also {', '.join(others)}." if others else f"{found}."


def _decision(incident: Incident) -> str:
    rule, level = judged_by(incident), f"level {level_words(incident.level, incident.outcome)}"
    if not incident.settled:
        return f"{rule}; so far {level}. The decision follows when every member is ready."
    return f"{rule}: {level}, {'charged' if incident.charged else 'not charged'} to the budget."


def _cost(incident: Incident) -> str:
    found = cost(incident)
    return f"The gang {found}." if found else ""


def _waits(incident: Incident, spans: Sequence[Span]) -> Iterator[str]:
    """The slowest member of each phase that is drawn, with the same duration."""
    drawn = {_key(span): (span.end or span.begin) - span.begin for span in spans}
    waits = []
    for phase, words in _WAITS.items():
        last = max((one for one in incident.members if one.phase == phase), key=_end, default=None)
        key = None if last is None else (PARENTS[phase][0], last.member, last.incarnation)
        if last is not None and key in drawn:
            node = f" on {last.node}" if phase == "Replace" and last.node else ""
            waits.append(words.format(f"{last.member}{node}", took(drawn[key])))
    if waits:
        yield f"The gang waited for {_listed(waits)}."


def starts(incident: Incident) -> str:
    """Whether the processes went on, or were forked as the role asks for; why not, if not. Empty if no role asks."""
    warm = incident.warm_start
    if warm is None:
        return ""
    count = warm.forked + warm.executed + warm.went_on
    if warm.went_on:
        text = f"Processes that went on with the new attempt: {warm.went_on} of {count}"
        text += f"; forked from a template: {warm.forked}" if warm.forked else ""
    elif warm.forked:
        text = f"Processes forked from a template: {warm.forked} of {count}"
    else:
        text = f"Of {count} processes, none went on or was forked"
    return f"{text}; {warm.member} executed its command{_because(warm)}." if warm.executed else f"{text}."


def printed(incident: Incident) -> list[str]:
    """What the worker at fault printed last, under a heading and after an empty line; empty if that isn't kept."""
    output = incident.output
    if output is None:
        return []
    said = (f"  {escaped(line)}" for line in output.text.splitlines())
    return ["", f"What {clean(output.member)} printed last:", *said]


def _because(warm: WarmStart) -> str:
    return f": {warm.obstacle}" if warm.obstacle else ""


def _unfinished(spans: Sequence[Span], now: float) -> Iterator[str]:
    """The phase that is not over, and for how long it has lasted."""
    for span in spans[1:]:
        if span.end is None:
            yield f"The incident is not over: {span.name} has lasted {took(now - span.begin)} so far."
            return


def _key(span: Span) -> tuple[object, ...]:
    attributes = dict(span.attributes)
    return span.name, attributes.get("gang.member"), attributes.get("gang.incarnation")


def _end(one: IncidentMember) -> int:
    return one.begin_milliseconds + one.milliseconds


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
