"""What the whole gang did when, as far as the status tells.

The rule: a moment that isn't in the status is unknown, and must not be guessed. The status keeps the last incidents
with their phases, the start of the attempt that a submission or a resume led to, when it was last suspended, and of the
rest at most when it began (the ledger). Times of a clock that was set back are painted over those before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentLevel
from gangctl.api.status import ENDED, GangPhase, Status
from gangctl.core.facts.trace_context import began, settled_at
from gangctl.core.record.conditions import total
from gangctl.explain.spans import Span, incident_spans
from gangctl.explain.timeline.model import Bar, Beginning, Kind, Mark, MarkKind
from gangctl.explain.timeline.strip import Strip, merged, painted

EARLIER: Final = 100
"""So many restarts without details are marked, the newest."""


@dataclass(frozen=True, slots=True)
class History:
    """The gang as one strip."""

    begin: float
    end: float
    strip: Strip
    attempts: tuple[Beginning, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """How one attempt came about."""

    attempt: int
    begin: float | None
    """When it began to be prepared; None if that is unknown."""
    bars: tuple[Bar, ...]
    """What is known of its preparation."""
    runs: float | None
    """From when on its workers are known to have run; None if they didn't, or it is unknown."""
    incident: Incident | None = None


def history(job: GangJob, now: float) -> History:
    """The history of the gang. ``now``: seconds since the epoch."""
    status = job.status
    turns = [*_first(job), *_others(job, now)]
    begin, end = _limits(job, turns, now)
    strip: Strip = (Bar(Kind.UNKNOWN, begin, end),)
    for turn, following in pairwise([*turns, None]):
        assert turn is not None
        for bar in (*_lost(turn, strip), *turn.bars, *_after(status, turn, following, end)):
            strip = painted(strip, bar)
    for bar in _now(status, turns, end):
        strip = painted(strip, bar)
    marks = sorted(_marks(status, turns, begin, end), key=lambda mark: mark.time)
    return History(begin, end, merged(strip), tuple(_attempts(status, turns, begin, end)), tuple(marks))


def phases(job: GangJob, incident: Incident, now: float) -> tuple[Bar, ...]:
    """The phases of an incident that took place, each begun where the one before it ended."""
    spans = incident_spans(job, incident)
    return tuple(as_bar(span, incident, now) for span in spans[1:] if span.parent_id == spans[0].span_id)


def as_bar(span: Span, incident: Incident, now: float) -> Bar:
    """A span of an incident as a bar."""
    kind = Kind(span.name.removeprefix("member."))
    end = max(span.begin, now if span.end is None else span.end)
    return Bar(kind, span.begin, end, incident.attempt, goes_on=span.end is None)


def _first(job: GangJob) -> Iterator[_Turn]:
    """The first attempt, if the incident that ended it is kept, or it goes on."""
    if min((one.attempt for one in job.status.incidents), default=job.status.attempt + 1) == 2:  # noqa: PLR2004
        yield _begun(job, 1, job.metadata.creation_timestamp or None)


def _others(job: GangJob, now: float) -> list[_Turn]:
    """Attempts that an incident or a resume led to, in their order."""
    status = job.status
    found = [_of_incident(job, one, now) for one in status.incidents]
    incidents = {one.attempt for one in status.incidents}
    oldest = min(incidents, default=status.attempt)
    resumed = {entry.attempt: entry.time for entry in status.ledger if entry.attempt >= oldest}
    if status.resumed_attempt > 1:
        resumed.setdefault(status.resumed_attempt, -1.0)
    for attempt, time in resumed.items():
        if attempt not in incidents and attempt > 1:
            found.append(_begun(job, attempt, None if time < 0 else time))
    return sorted(found, key=lambda turn: turn.attempt)


def _of_incident(job: GangJob, incident: Incident, now: float) -> _Turn:
    bars = phases(job, incident, now)
    runs = max((bar.end for bar in bars), default=incident.time)
    restarted = incident.outcome == "Restarted"
    return _Turn(incident.attempt, began(incident), bars, runs if restarted else None, incident)


def _begun(job: GangJob, attempt: int, since: float | None) -> _Turn:
    """An attempt that was prepared with new pods, not because of an incident."""
    status = job.status
    start = status.start_time if attempt == max(1, status.resumed_attempt) else None
    step = _first_step(status, attempt)
    bars = []
    if start is not None and since is not None:
        bars.append(Bar(Kind.WAITING, since, max(since, start), attempt))
    if start is not None and step is not None:
        bars.append(Bar(Kind.STARTING, start, max(start, step), attempt))
    return _Turn(attempt, since if since is not None else start, tuple(bars), step if step is not None else start)


def _first_step(status: Status, attempt: int) -> float | None:
    """When an attempt that no incident led to made its first step; None if that is unknown.

    The status keeps that of the newest attempt. Of the first one it follows from what time was spent on, as long as
    nothing but the first start was start-up or pending: then the first step came when both were over.
    """
    first, spent = status.first_step, status.spent
    if first is not None and first.attempt == attempt:
        return first.time
    kept_pods = all(one.level in {IncidentLevel.PROCESS, IncidentLevel.CONTAINER} for one in status.incidents)
    if attempt > 1 or status.resumed_attempt or not kept_pods or not spent.training:
        return None
    step = status.accounted_time - total(spent) + spent.pending + spent.start_up
    return step if status.start_time is None or step >= status.start_time else None


def _lost(turn: _Turn, strip: Strip) -> Iterator[Bar]:
    """The end of the training before the fault that has to be done again, cut to what the attempt is known to be."""
    incident = turn.incident
    if incident is None or turn.begin is None or not incident.lost_seconds:
        return
    before = next((bar for bar in reversed(strip) if bar.begin < turn.begin), None)
    if before is not None and before.kind in {Kind.RUNNING, Kind.UNKNOWN}:
        begin = max(before.begin, turn.begin - max(0.0, incident.lost_seconds))
        yield Bar(Kind.LOST, begin, max(begin, turn.begin), incident.attempt - 1)


def _after(status: Status, turn: _Turn, following: _Turn | None, end: float) -> Iterator[Bar]:
    """What an attempt did until the next one began, or until now, as far as that is known."""
    incident, is_last = turn.incident, following is None
    until = end if following is None else following.begin
    if until is None or turn.attempt != (status.attempt if following is None else following.attempt - 1):
        return
    # Before a resume stands a suspension, whose time is unknown.
    is_followed = following is not None and following.incident is not None
    if incident is not None and incident.outcome in {"Held", "Suspended"}:
        is_held = incident.outcome == "Held"
        if is_last or is_followed or not is_held:
            kind = Kind.HELD if is_held else Kind.SUSPENDED
            since = settled_at(incident)
            yield Bar(kind, since, max(since, until), turn.attempt, goes_on=is_last)
    elif turn.runs is not None and (is_followed or (is_last and not _was_suspended(status))):
        yield Bar(Kind.RUNNING, turn.runs, max(turn.runs, until), turn.attempt, goes_on=is_last)


def _was_suspended(status: Status) -> bool:
    """Whether the gang ended while it was suspended: then it is unknown since when."""
    return status.phase in ENDED and status.start_time is None


def _now(status: Status, turns: list[_Turn], end: float) -> Iterator[Bar]:
    """The phase that the gang is in, and what led to it without an incident."""
    since, last = status.phase_time, turns[-1] if turns else None
    is_begun = last is None or (last.incident is None and last.attempt == status.attempt)
    if is_begun and status.start_time is None and status.phase is not GangPhase.SUSPENDED:
        begin = since if last is None or last.begin is None else last.begin
        yield Bar(Kind.WAITING, begin, max(begin, end), status.attempt, goes_on=status.phase not in ENDED)
    if status.phase in {GangPhase.SUSPENDED, GangPhase.HELD}:
        kind = Kind.SUSPENDED if status.phase is GangPhase.SUSPENDED else Kind.HELD
        yield Bar(kind, since, max(since, end), status.attempt, goes_on=True)


def _limits(job: GangJob, turns: list[_Turn], now: float) -> tuple[float, float]:
    """From the creation to the end or now. What a clock, or a restored backup, places outside of that still counts."""
    status = job.status
    known = [turn.begin for turn in turns if turn.begin is not None]
    known += [bar.end for turn in turns for bar in turn.bars if not bar.goes_on]
    times = (job.metadata.creation_timestamp, status.start_time, status.phase_time, status.completion_time)
    known += [time for time in times if time]
    last = status.completion_time or status.phase_time if status.phase in ENDED else now
    begin = min(known, default=now)
    return begin, max([last, begin, *known])


def _attempts(status: Status, turns: list[_Turn], begin: float, end: float) -> Iterator[Beginning]:
    """When workers were started: at the second write of a restart, or where the gang became active."""
    for turn in turns:
        time, incident = None, turn.incident
        if incident is not None:
            time = incident.settled_time if incident.outcome == "Restarted" else None
        elif turn.attempt == max(1, status.resumed_attempt):
            time = status.start_time
        if time is not None:
            yield Beginning(turn.attempt, _within(time, begin, end))


def _marks(status: Status, turns: list[_Turn], begin: float, end: float) -> Iterator[Mark]:
    for turn in turns:
        for time, step in _restored(status, turn):
            label, point = ("start", "the beginning") if step is None else (str(step), f"step {step}")
            text = f"attempt {turn.attempt} starts from {point}"
            yield Mark(MarkKind.RESTORE, _within(time, begin, end), label, text)
    known = {turn.attempt for turn in turns}
    for entry in [entry for entry in status.ledger if entry.attempt not in known][-EARLIER:]:
        if begin <= entry.time <= end:
            who = f"; {entry.member} was at fault" if entry.member else ""
            yield Mark(MarkKind.FAULT, entry.time, "", f"the restart to attempt {entry.attempt} began{who}")


def _restored(status: Status, turn: _Turn) -> Iterator[tuple[float, int | None]]:
    """When the attempt's ranks restored which step. Of a first attempt only what it still runs from is known."""
    incident, point = turn.incident, status.restore_point
    if incident is not None:
        if incident.outcome == "Restarted" and incident.settled_time is not None:
            yield incident.settled_time, incident.restored_step
    elif status.start_time is not None and point is not None and turn.attempt == status.attempt:
        yield status.start_time, point.step


def _within(time: float, begin: float, end: float) -> float:
    return min(max(time, begin), end)
