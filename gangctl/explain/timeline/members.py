"""The rows of a timeline below the gang: members of interest, and the others as one.

The rule: a member has a row if an incident names it. What the status doesn't tell of it is unknown: what it did in an
incident that doesn't name it, and whether it had a rank where the role has spares, or before the gang was resumed
(maybe with other roles). A member that has finished must not be shown as running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import IncidentMember
from gangctl.api.status import GangPhase
from gangctl.core.facts.finished import attempt_with_workers, recorded_places
from gangctl.core.facts.gang import holders
from gangctl.core.facts.layout import layout
from gangctl.core.policy.cause import describe
from gangctl.explain.spans import incident_spans
from gangctl.explain.timeline.history import History, as_bar
from gangctl.explain.timeline.model import PHASES, Bar, Kind, Mark, MarkKind, Row
from gangctl.explain.timeline.strip import Strip, merged, painted

MOST: Final = 12
"""Members with a row of their own."""
_PARTS: Final = {"Cause": "at fault", "Replaced": "replaced", "Slowest": "waited for"}
"""In the order of interest."""
_OF_ATTEMPTS: Final = {Kind.STARTING, Kind.RUNNING, Kind.LOST}


def members(job: GangJob, known: History, now: float) -> Iterator[Row]:
    """The rows. ``known``: the gang's; ``now``: seconds since the epoch."""
    order = {name: at for at, name in enumerate(layout(job.spec.roles).members)}
    parts = _parts(job)
    chosen = sorted(parts, key=lambda name: tuple(-parts[name][part] for part in _PARTS))[:MOST]
    for name in sorted(chosen, key=lambda name: (order.get(name, len(order)), name)):
        yield Row(name, 1, _strip(job, known, now, name), _marks(job, known, name), _text(parts[name]))
    others = len(order) - sum(name in order for name in chosen)
    if chosen and others > 0:
        bars = merged(tuple(_other(bar) for bar in known.strip))
        yield Row(f"{others} other{'s' * (others > 1)}", others, bars)


def _parts(job: GangJob) -> dict[str, Counter[str]]:
    """Member -> in how many incidents it had which part; the newest incidents first."""
    found: dict[str, Counter[str]] = {}
    for one in job.status.incidents:
        named = {(member.member, member.part) for member in one.members}
        named |= {(one.cause.member, "Cause")} if one.cause.member else set()
        for name, part in sorted(named):
            found.setdefault(name, Counter())[part] += 1
    return found


def _text(parts: Mapping[str, int]) -> str:
    told = [
        f"{words} {'once' if parts[part] == 1 else f'{parts[part]} times'}"
        for part, words in _PARTS.items()
        if parts[part]
    ]
    return ", ".join(told)


def _strip(job: GangJob, known: History, now: float, name: str) -> Strip:
    runs = _runs(job, name)
    strip = tuple(
        replace(_other(bar), kind=Kind.UNKNOWN) if bar.kind in _OF_ATTEMPTS and not runs(bar.attempt) else _other(bar)
        for bar in known.strip
    )
    for incident in reversed(job.status.incidents):
        for span in incident_spans(job, incident):
            if dict(span.attributes).get("gang.member") == name and span.parent_id:
                strip = painted(strip, as_bar(span, incident, now))
    return merged(strip)


def _other(bar: Bar) -> Bar:
    """A bar of the gang, as far as it holds of a member of which nothing else is known."""
    return replace(bar, kind=Kind.UNKNOWN) if bar.kind in PHASES else bar


def _runs(job: GangJob, name: str) -> Callable[[int], bool]:
    """In which attempts the member is known to have run a worker."""
    status, member = job.status, layout(job.spec.roles).members.get(name)
    seen = {one.attempt for one in status.incidents for part in one.members if part.member == name and _ran(part)}
    seen |= {one.attempt - 1 for one in status.incidents if one.cause.member == name and one.cause.rank is not None}
    finished = 0 if status.phase is GangPhase.SUCCEEDED else attempt_with_workers(status)
    if finished and name in recorded_places(status, finished):
        seen.discard(finished)
    else:
        finished = 0
    if status.phase is GangPhase.RUNNING and name in holders(job.spec, status).values() and not finished:
        seen.add(status.attempt)
    always = member is not None and member.role.spares == 0
    return lambda attempt: attempt in seen or (always and attempt >= status.resumed_attempt and attempt != finished)


def _ran(member: IncidentMember) -> bool:
    return member.phase in {"Start", "CheckpointLoad", "FirstStep"}


def _marks(job: GangJob, known: History, name: str) -> tuple[Mark, ...]:
    found = [
        Mark(MarkKind.FAULT, min(max(one.cause.time, known.begin), known.end), "", describe(one.cause).rstrip("."))
        for one in job.status.incidents
        if one.cause.member == name
    ]
    return tuple(sorted(found, key=lambda mark: mark.time))
