"""The story of one incident: what was seen and decided, its phases, members and waits, what it cost.

There is one for the terminal, the picture, the page and JSON. Everything comes from the status and from the spans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, Output, Stacks
from gangctl.core.record.incidents import advice
from gangctl.story import words
from gangctl.story.bars import Bar
from gangctl.story.phases import LOOKS, PHASES, Activity
from gangctl.story.spans import MEMBER, Span, incident_spans, is_complete

TRACES: Final = "OTEL_UI_URL"
"""The environment variable with the address of Jaeger's pages."""


@dataclass(frozen=True, slots=True)
class MemberStory:
    """One activity of a member that matters in an incident."""

    member: str
    part: str
    """As in the status."""
    did: Bar
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentStory:
    """One incident. Fields that aren't described here are as in the status."""

    attempt: int
    begin: float
    """The time of the fault."""
    end: float | None = None
    """None while it goes on."""
    milliseconds: int | None = None
    """None while it goes on."""
    complete: bool
    """True if nothing can be added or corrected any more."""
    outcome: str
    reason: str
    cause: str
    """The fault that was seen, without a full stop."""
    evidence: tuple[str, ...] = ()
    """More that was seen: node, device, other members, where a process hung."""
    decision: str
    """Rule, level and charge in words, without a full stop."""
    level: str
    charged: bool | None = None
    """None while that isn't decided."""
    cost: str = ""
    """The result for the gang, as the end of a sentence; empty while the incident is not over."""
    restored_step: int | None = None
    lost_steps: int | None = None
    lost_steps_at_most: int | None = None
    lost_seconds: float | None = None
    phases: tuple[Bar, ...]
    """One after the other; some may have taken no time."""
    members: tuple[MemberStory, ...] = ()
    waits: tuple[str, ...] = ()
    """The longest wait of each phase, with its duration."""
    start: str = ""
    """How the processes were started, in a sentence."""
    advice: str = ""
    """Sentences about workers that did not stop in time."""
    output: Output | None = None
    stacks: Stacks | None = None
    trace_id: str
    url: str = ""
    """Jaeger's page of the trace, if its address is set."""

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return max((bar.end for bar in self.phases), default=self.begin) - self.begin

    @property
    def goes_on(self) -> bool:
        """True if it was not over at the time of the look."""
        return self.end is None

    @property
    def result(self) -> str:
        """The outcome in words: of a restart, only when the incident is over."""
        return "not over yet" if self.goes_on and self.outcome in {"Open", "Restarted"} else self.outcome.lower()

    @property
    def restored(self) -> str:
        """The restore point of the attempt in words; empty if the attempt did not start."""
        if self.outcome != "Restarted":
            return ""
        return "the beginning" if self.restored_step is None else f"step {self.restored_step}"

    @property
    def summary(self) -> str:
        """How long it took, what it cost and what it was."""
        parts = [f"{words.took(self.seconds)}{' so far' if self.goes_on else ''}"]
        if self.restored:
            parts.append(f"from {self.restored}")
        elif not self.goes_on:
            parts.append(self.outcome.lower())
        if self.lost_steps is not None:
            parts.append(f"{words.lost_steps(self.lost_steps, self.lost_steps_at_most)} lost")
        return ", ".join([*parts, self.cause])


def incident_story(job: GangJob, incident: Incident, now: float, traces: str = "") -> IncidentStory:
    """Return the story of an incident of this gang.

    Args:
        job: The gang.
        incident: One of its status.
        now: Seconds since the epoch.
        traces: Address of Jaeger's pages, or empty.
    """
    root, *below = incident_spans(job, incident)
    phases = tuple(
        _bar(span, incident, now)
        for span in below
        if span.parent_id == root.span_id and not span.name.startswith(MEMBER)
    )
    members = tuple(_members(below, incident, now))
    return IncidentStory(
        attempt=incident.attempt,
        begin=root.begin,
        end=root.end,
        milliseconds=None if root.end is None else round((root.end - root.begin) * 1000),
        complete=is_complete(job, incident, now),
        outcome=incident.outcome,
        reason=incident.cause.reason,
        cause=words.cause(incident),
        evidence=tuple(words.evidence(incident)),
        decision=words.decision(incident),
        level=str(incident.level),
        charged=incident.charged if incident.settled else None,
        cost=words.cost(incident),
        restored_step=incident.restored_step,
        lost_steps=incident.lost_steps,
        lost_steps_at_most=incident.lost_steps_at_most,
        lost_seconds=incident.lost_seconds,
        phases=phases,
        members=members,
        waits=tuple(_waits(members)),
        start=words.start(incident),
        advice=advice(incident) or "",
        output=incident.output,
        stacks=incident.stacks,
        trace_id=root.trace_id,
        url=f"{traces}/trace/{quote(root.trace_id, safe='')}" if traces else "",
    )


def _bar(span: Span, incident: Incident, now: float) -> Bar:
    end = max(span.begin, now if span.end is None else span.end)
    return Bar(Activity(span.name.removeprefix(MEMBER)), span.begin, end, incident.attempt, goes_on=span.end is None)


def _members(spans: Sequence[Span], incident: Incident, now: float) -> Iterator[MemberStory]:
    for span in spans:
        found = dict(span.attributes)
        if span.name.startswith(MEMBER):
            member, part, node = (str(found.get(key, "")) for key in ("gang.member", "gang.part", "k8s.node.name"))
            yield MemberStory(member, part, _bar(span, incident, now), node)


def _waits(members: Sequence[MemberStory]) -> Iterator[str]:
    """The member that was ready last in each phase."""
    for phase in PHASES:
        last = max((one for one in members if one.did.kind is phase), key=lambda one: one.did.end, default=None)
        if last is not None:
            node = f" on {last.node}" if phase is Activity.REPLACE and last.node else ""
            yield f"{LOOKS[phase].wait.format(f'{last.member}{node}')} ({words.took(last.did.seconds)})"


def is_address(text: str, forbidden: str = ' <>"?#') -> bool:
    """Return whether it is an http or https address, to which the path of a trace can be added."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_url and text.isascii() and text.isprintable() and not set(text) & set(forbidden)
