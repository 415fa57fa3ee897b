"""The story of a gang against time: what it and its members did from its creation to its end, or to now.

The rule: a moment that isn't in the status is unknown, and must not be guessed. The status keeps the last incidents
with their phases, the start of the attempt that a submission or a resume led to, when it was last suspended, and of the
rest at most when it began (the ledger). Times of a clock that was set back are painted over those before.

A member has a row if an incident names it. Unknown are what it did in an incident that doesn't name it, and whether it
had a rank where the role has spares, or before the gang was resumed (maybe with other roles). A member that has
finished must not be shown as running.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentLevel
from gangctl.api.roles import layout
from gangctl.api.status import ENDED, GangPhase, Spent, Status
from gangctl.core.facts.gang import holders, settled_at
from gangctl.core.facts.progress import attempt_with_workers, recorded_places
from gangctl.core.record.conditions import goodput, missing_share, spent_until, total
from gangctl.core.record.incidents import KEPT
from gangctl.story import words
from gangctl.story.bars import Bar, Mark, MarkKind, Row, Strip, merged, painted
from gangctl.story.document import gang_document
from gangctl.story.incidents import IncidentStory, incident_story
from gangctl.story.phases import LOOKS, PHASES, Activity
from gangctl.story.words import took
from gangctl.words.text import counted, moment

EARLIER: Final = 100
"""Restarts without details that are marked: the newest."""
MOST_MEMBERS: Final = 12
"""Members with a row of their own."""
SPENT: Final = {
    "training": "training",
    "start_up": "start-up",
    "recovery": "recovery",
    "pending": "pending",
    "suspended": "suspended",
    "held": "held",
}
"""Where time is spent, in words."""
_RESTING: Final = ("pending", "suspended", "held")
_PARTS: Final = {"Cause": "at fault", "Replaced": "replaced", "Slowest": "waited for"}
"""In the order of interest."""
_NOT_RAN: Final = {"Stop", "Replace"}
"""Phases of members that a member without a worker has, too."""
_OF_ATTEMPTS: Final = {Activity.STARTING, Activity.RUNNING, Activity.LOST}


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """When the workers of an attempt were started."""

    attempt: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A gang from its creation to its end, or to the time of the look, as far as its status shows."""

    gang: Mapping[str, str]
    """Name, namespace and UID."""
    phase: str
    attempt: int
    begin: float
    end: float
    """At least ``begin``."""
    complete: bool
    """True if the gang has ended, or was stopped without a controller."""
    sentences: tuple[str, ...]
    """The whole in words, each a sentence with its full stop."""
    goodput: float | None = None
    """0 to 1; None for a gang that never reported a step."""
    spent: Spent
    attempts: tuple[AttemptStart, ...]
    """By time. Of some attempts it is unknown when they began."""
    rows: tuple[Row, ...]
    """The gang first, then members of interest in their order, then the others as one."""
    incidents: tuple[IncidentStory, ...]
    """Oldest first."""

    @property
    def name(self) -> str:
        return self.gang["name"]

    @property
    def activities(self) -> tuple[Activity, ...]:
        """Those that occur, in the order of a legend."""
        found = {bar.kind for row in self.rows for bar in row.bars}
        found |= {bar.kind for one in self.incidents for bar in one.phases if bar.seconds > 0}
        return tuple(activity for activity in LOOKS if activity in found)


def story(job: GangJob, now: float, *, is_stopped: bool = False) -> Story:
    """Return the story of a gang.

    Args:
        job: The gang.
        now: Seconds since the epoch.
        is_stopped: Its processes were ended at that time, which the status doesn't know.
    """
    status, spent = job.status, spent_until(job.status, now)
    complete = is_stopped or status.phase in ENDED
    phase = words.STOPPED if is_stopped else str(status.phase) or "New"
    incidents = tuple(incident_story(job, one, now) for one in reversed(status.incidents))
    turns = [*_first(job), *_others(job, incidents)]
    begin, end = _limits(job, turns, now)
    strip = _sized(status, merged(_painted(job, turns, begin, end)))
    strip = tuple(replace(bar, goes_on=bar.goes_on and not is_stopped) for bar in strip)
    marks = sorted(_marks(status, turns, begin, end), key=lambda mark: mark.time)
    gang = Row("gang", len(layout(job.spec.roles).members), strip, tuple(marks))
    return Story(
        gang=gang_document(job),
        phase=phase,
        attempt=status.attempt,
        begin=begin,
        end=end,
        complete=complete,
        sentences=(_whole(status, gang, phase, complete=complete), *_sentences(status, gang, spent)),
        goodput=goodput(spent),
        spent=spent,
        attempts=tuple(_attempts(status, turns, begin, end)),
        rows=(gang, *_member_rows(job, gang, incidents)),
        incidents=incidents,
    )


@dataclass(frozen=True, slots=True)
class _Turn:
    """How one attempt came about."""

    attempt: int
    begin: float | None
    """When it began to be prepared; None if that is unknown."""
    bars: tuple[Bar, ...]
    """Its preparation, as far as that is known."""
    runs: float | None
    """The time from which its workers are known to have run; None if they didn't, or it is unknown."""
    incident: Incident | None = None


def _painted(job: GangJob, turns: Sequence[_Turn], begin: float, end: float) -> Strip:
    strip: Strip = (Bar(Activity.UNKNOWN, begin, end),)
    for turn, following in pairwise([*turns, None]):
        assert turn is not None
        for bar in (*_lost(turn, strip), *turn.bars, *_after(job.status, turn, following, end)):
            strip = painted(strip, bar)
    for bar in _now(job.status, turns, end):
        strip = painted(strip, bar)
    return strip


def _sized(status: Status, strip: Strip) -> Strip:
    """The strip with the size of each attempt, as incidents keep it; one that follows none has the present size."""
    size, trained, wanted = status.size, {Activity.RUNNING, Activity.LOST}, sum(one.desired for one in status.roles)
    shares = {one.attempt: 1 - one.missing_members / wanted for one in status.incidents if wanted}
    if size is None:
        return strip
    now = 1 - missing_share(status)
    return tuple(
        replace(bar, share=shares.get(bar.attempt, now if bar.attempt >= size.attempt else 1.0))
        if bar.kind in trained
        else bar
        for bar in strip
    )


def _first(job: GangJob) -> Iterator[_Turn]:
    """The first attempt, if the incident that ended it is kept, or it goes on."""
    if min((one.attempt for one in job.status.incidents), default=job.status.attempt + 1) == 2:  # noqa: PLR2004
        yield _begun(job, 1, job.metadata.creation_timestamp or None)


def _others(job: GangJob, stories: Sequence[IncidentStory]) -> list[_Turn]:
    """Attempts that an incident or a resume led to, in their order."""
    status = job.status
    found = [_of_incident(*both) for both in zip(status.incidents, reversed(stories), strict=True)]
    incidents = {one.attempt for one in status.incidents}
    oldest = min(incidents, default=status.attempt)
    resumed = {entry.attempt: entry.time for entry in status.ledger if entry.attempt >= oldest}
    if status.resumed_attempt > 1:
        resumed.setdefault(status.resumed_attempt, -1.0)
    for attempt, time in resumed.items():
        if attempt not in incidents and attempt > 1:
            found.append(_begun(job, attempt, None if time < 0 else time))
    return sorted(found, key=lambda turn: turn.attempt)


def _of_incident(incident: Incident, its: IncidentStory) -> _Turn:
    runs = max((bar.end for bar in its.phases), default=incident.time)
    restarted = incident.outcome == "Restarted"
    return _Turn(incident.attempt, its.begin, its.phases, runs if restarted else None, incident)


def _begun(job: GangJob, attempt: int, since: float | None) -> _Turn:
    """An attempt that was prepared with new pods, not because of an incident."""
    status = job.status
    start = status.start_time if attempt == max(1, status.resumed_attempt) else None
    step = _first_step(status, attempt)
    bars = []
    if start is not None and since is not None:
        bars.append(Bar(Activity.WAITING, since, max(since, start), attempt))
    if start is not None and step is not None:
        bars.append(Bar(Activity.STARTING, start, max(start, step), attempt))
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
    if before is not None and before.kind in {Activity.RUNNING, Activity.UNKNOWN}:
        begin = max(before.begin, turn.begin - max(0.0, incident.lost_seconds))
        yield Bar(Activity.LOST, begin, max(begin, turn.begin), incident.attempt - 1)


def _after(status: Status, turn: _Turn, following: _Turn | None, end: float) -> Iterator[Bar]:
    """The time from an attempt's preparation to the next attempt, or to now, as far as it is known."""
    incident, is_last = turn.incident, following is None
    until = end if following is None else following.begin
    if until is None or turn.attempt != (status.attempt if following is None else following.attempt - 1):
        return
    # Before a resume stands a suspension, whose time is unknown.
    is_followed = following is not None and following.incident is not None
    if incident is not None and incident.outcome in {"Held", "Suspended"}:
        is_held = incident.outcome == "Held"
        if is_last or is_followed or not is_held:
            kind = Activity.HELD if is_held else Activity.SUSPENDED
            since = settled_at(incident)
            yield Bar(kind, since, max(since, until), turn.attempt, goes_on=is_last)
    elif turn.runs is not None and (is_followed or (is_last and not _was_suspended(status))):
        yield Bar(Activity.RUNNING, turn.runs, max(turn.runs, until), turn.attempt, goes_on=is_last)


def _was_suspended(status: Status) -> bool:
    """Return whether the gang ended while it was suspended. Since when it was is unknown then."""
    return status.phase in ENDED and status.start_time is None


def _now(status: Status, turns: Sequence[_Turn], end: float) -> Iterator[Bar]:
    """The phase that the gang is in, and what led to it without an incident."""
    since, last = status.phase_time, turns[-1] if turns else None
    is_begun = last is None or (last.incident is None and last.attempt == status.attempt)
    if is_begun and status.start_time is None and status.phase is not GangPhase.SUSPENDED:
        begin = since if last is None or last.begin is None else last.begin
        yield Bar(Activity.WAITING, begin, max(begin, end), status.attempt, goes_on=status.phase not in ENDED)
    if status.phase in {GangPhase.SUSPENDED, GangPhase.HELD}:
        kind = Activity.SUSPENDED if status.phase is GangPhase.SUSPENDED else Activity.HELD
        yield Bar(kind, since, max(since, end), status.attempt, goes_on=True)


def _limits(job: GangJob, turns: Sequence[_Turn], now: float) -> tuple[float, float]:
    """From the creation to the end or now. What a clock, or a restored backup, places outside of that still counts."""
    status = job.status
    moments = [turn.begin for turn in turns if turn.begin is not None]
    moments += [bar.end for turn in turns for bar in turn.bars if not bar.goes_on]
    times = (job.metadata.creation_timestamp, status.start_time, status.phase_time, status.completion_time)
    moments += [time for time in times if time]
    last = status.completion_time or status.phase_time if status.phase in ENDED else now
    begin = min(moments, default=now)
    return begin, max([last, begin, *moments])


def _attempts(status: Status, turns: Sequence[_Turn], begin: float, end: float) -> Iterator[AttemptStart]:
    """When workers were started: at the second write of a restart, or where the gang became active."""
    for turn in turns:
        time, incident = None, turn.incident
        if incident is not None:
            time = incident.settled_time if incident.outcome == "Restarted" else None
        elif turn.attempt == max(1, status.resumed_attempt):
            time = status.start_time
        if time is not None:
            yield AttemptStart(turn.attempt, _within(time, begin, end))


def _marks(status: Status, turns: Sequence[_Turn], begin: float, end: float) -> Iterator[Mark]:
    for turn in turns:
        for time, step in _restored(status, turn):
            label, point = ("start", "the beginning") if step is None else (str(step), f"step {step}")
            text = f"attempt {turn.attempt} starts from {point}"
            yield Mark(MarkKind.RESTORE, _within(time, begin, end), label, text)
    detailed = {turn.attempt for turn in turns}
    for entry in [entry for entry in status.ledger if entry.attempt not in detailed][-EARLIER:]:
        if begin <= entry.time <= end:
            who = f"; {entry.member} was at fault" if entry.member else ""
            yield Mark(MarkKind.FAULT, entry.time, "", f"the restart to attempt {entry.attempt} began{who}")


def _restored(status: Status, turn: _Turn) -> Iterator[tuple[float, int | None]]:
    """The times at which the attempt's ranks restored a step. A first attempt's is known only while it runs."""
    incident, point = turn.incident, status.restore_point
    if incident is not None:
        if incident.outcome == "Restarted" and incident.settled_time is not None:
            yield incident.settled_time, incident.restored_step
    elif status.start_time is not None and point is not None and turn.attempt == status.attempt:
        yield status.start_time, point.step


def _within(time: float, begin: float, end: float) -> float:
    return min(max(time, begin), end)


def _member_rows(job: GangJob, gang: Row, incidents: Sequence[IncidentStory]) -> Iterator[Row]:
    order = {name: at for at, name in enumerate(layout(job.spec.roles).members)}
    parts = _parts(job)
    chosen = sorted(parts, key=lambda name: tuple(-parts[name][part] for part in _PARTS))[:MOST_MEMBERS]
    for name in sorted(chosen, key=lambda name: (order.get(name, len(order)), name)):
        yield Row(name, 1, _strip(job, gang, incidents, name), _faults(job, gang, name), _text(parts[name]))
    others = len(order) - sum(name in order for name in chosen)
    if chosen and others > 0:
        yield Row(counted(others, "other"), others, merged(tuple(map(_other, gang.bars))), ())


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
    return ", ".join(
        f"{what} {'once' if parts[part] == 1 else f'{parts[part]} times'}"
        for part, what in _PARTS.items()
        if parts[part]
    )


def _strip(job: GangJob, gang: Row, incidents: Sequence[IncidentStory], name: str) -> Strip:
    runs = _runs(job, name)
    strip = tuple(
        replace(_other(bar), kind=Activity.UNKNOWN)
        if bar.kind in _OF_ATTEMPTS and not runs(bar.attempt)
        else _other(bar)
        for bar in gang.bars
    )
    for did in (member.did for one in incidents for member in one.members if member.member == name):
        strip = painted(strip, did)
    return merged(strip)


def _other(bar: Bar) -> Bar:
    """The gang's bar, as far as it is true for each member."""
    return replace(bar, kind=Activity.UNKNOWN if bar.kind in PHASES else bar.kind, share=1.0)


def _runs(job: GangJob, name: str) -> Callable[[int], bool]:
    """Return a test of whether the member is known to have run a worker in an attempt."""
    status, member = job.status, layout(job.spec.roles).members.get(name)
    seen = {
        one.attempt
        for one in status.incidents
        for part in one.members
        if part.member == name and part.phase not in _NOT_RAN
    }
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


def _faults(job: GangJob, gang: Row, name: str) -> tuple[Mark, ...]:
    begin, end = gang.bars[0].begin, gang.bars[-1].end
    found = [
        Mark(MarkKind.FAULT, _within(one.cause.time, begin, end), "", words.cause(one))
        for one in job.status.incidents
        if one.cause.member == name
    ]
    return tuple(sorted(found, key=lambda mark: mark.time))


def _whole(status: Status, gang: Row, phase: str, *, complete: bool) -> str:
    begin, end = gang.bars[0].begin, gang.bars[-1].end
    phase = "Not seen by a controller yet" if phase == "New" else phase
    attempt = f", attempt {status.attempt}" if status.attempt else ""
    so_far = "" if complete else " so far"
    return f"{phase}{attempt}, {took(end - begin)}{so_far}, from {moment(begin)} to {moment(end)}."


def _sentences(status: Status, gang: Row, spent: Spent) -> Iterator[str]:
    yield _worth(spent)
    restarts = status.restarts
    if restarts.counted or restarts.uncounted:
        charged = f"{counted(restarts.counted, 'restart')} charged to the budget, {restarts.uncounted} not charged"
        lost = sum(one.lost_steps or 0 for one in status.incidents)
        most = sum(one.lost_steps_at_most or one.lost_steps or 0 for one in status.incidents)
        unknown = any(one.lost_steps is None and one.outcome == "Restarted" for one in status.incidents)
        known, of = " as far as steps are known" * unknown, len(status.incidents)
        last = f" in the last {of}" if restarts.counted + restarts.uncounted > of else ""
        yield f"{charged}; {words.lost_steps(lost, most)} lost{last}{known}."
    if point := status.completed_step:
        yield f"The newest checkpoint that every rank has registered is step {point.step} ({point.tier})."
    if any(bar.kind is Activity.UNKNOWN for bar in gang.bars):
        kept = f"it keeps the last {KEPT} incidents, and of earlier suspensions no times"
        yield f"What the status doesn't tell is drawn as unknown: {kept}."


def _worth(spent: Spent) -> str:
    """A sentence about what the time was spent on."""
    share = goodput(spent)
    parts = [f"{took(seconds)} {what}" for field, what in SPENT.items() if (seconds := getattr(spent, field))]
    if share is None:
        # It is accounted as start-up and recovery, since no step ends these.
        active = spent.start_up + spent.recovery
        resting = [one for one in parts if one.endswith(_RESTING)]
        found = [*([f"{took(active)} active (starting, restarting or training)"] if active else []), *resting]
        where = f": {', '.join(found)}" if found else ""
        return f"No step was reported, so goodput is unknown{where}."
    less = [f"{took(spent.lost_progress)} of it lost"] if spent.lost_progress else []
    if spent.missing_members:
        less.append(f"{took(spent.missing_members)} of it for want of members")
    lost = f" ({', '.join(less)})" if less else ""
    return f"Goodput {share:.1%}: {', '.join([parts[0] + lost, *parts[1:]])}."
