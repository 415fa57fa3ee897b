"""Hangs: when a gang counts as hung, and the deadline that follows from the steps that were seen.

A gang hangs if no rank reports progress for too long, or if one rank doesn't while the others leave it behind.

    hangs_at  = max over ranks of (max(its newest progress, begin, begin of listening) + timeout of its phase),
                and known + timeout of the phase of the rank that has made the newest progress
    begin     = when the last role of the attempt was started; while a role waits for others, nothing is counted
    timeout   = as ``spec.progress`` has it for this phase; that of phase Step is adaptive where the spec says so
    known     = since when a member that has reported a step in this attempt is connected; where none of them is,
                since when every member is: the one that reports may be the silent one
    behind(m) = the status has a higher step than m's next report is due for, since SETTLED_SECONDS, and m is connected
    behind_at = max(m's newest progress, begin of listening, begin of m's connection) + timeout of m's phase
    left(r)   = another rank of r's pod has made a step that r's next report is due for, and its member is connected
    left_at   = max(r's newest progress, begin of listening, begin of its member's connection) + timeout of r's phase
    hung      = a report that arrived then or later shows no newer progress: of any member, of the one behind, of r's

Ranks and members are those that have not finished: one that has reports no more, and knows nothing of the others. Where
only such have reported, those that are left never do, so their silence doesn't count. A silent member may be training,
so its silence must not count, not even before it is noticed. Nor must what it says first: steps that its framework made
while the sidecar was away are not known to it. A job that doesn't report progress must not count as hung unless a
timeout is set. A rank that reports seldom is not behind: its own reports tell how far they are apart. Roles of several
process groups count steps each for itself, so none of them is behind another.

Adaptive: the timeout of a step, as far as the steps that were seen tell how long one may take.

    longest  = the longest gap between two reports of any rank in this attempt, or that the status has of any attempt
    deadline = min(timeoutSeconds, max(FLOOR_SECONDS, factor * longest))
    in force <=> a rank has shown ENOUGH gaps in this attempt, or the status says that one has,
                 and the attempt is past the highest step of all attempts before it; else timeoutSeconds

The longest gap must not be forgotten: a checkpoint or an evaluation may come once in some thousand steps, and a median,
or a window that it has left, would call the next one a hang. Nor must an attempt be judged while it repeats steps:
where a slow one was called a hang by mistake, it is among them, and the mistake must not be made again and again. A
gap counts as soon as it is heard; the status has it when it is over 10 % longer than what it has.
"""

import math
from typing import Final, NamedTuple

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.recovery import Adaptive
from gangctl.api.status import StepGaps
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.faults import failed_attempt
from gangctl.core.facts.gang import Gang, may_start_since, once
from gangctl.core.facts.order import roles_that_wait
from gangctl.core.facts.progress import highest_step, need_no_pod, rank_behind, rank_furthest_behind
from gangctl.core.facts.world import Heard
from gangctl.words import faults
from gangctl.words.faults import deadline_computed
from gangsidecar.wire import RankBehind

# Hangs


SETTLED_SECONDS: Final = 15.0
"""A step that a rank has made is heard sooner than this."""
LOOK_SECONDS: Final = 1.0
"""Supervisors report every 5 s, and no such report wakes the controller: it looks again after this time."""


def silence_limit(gang: Gang, phase: str) -> float | None:
    """The seconds for which a gang may be silent in this phase of its training; None: without limit."""
    progress = gang.spec.progress
    if progress.timeout_seconds is None:
        return None
    if (own := progress.timeout_of(phase)) is not None:
        return own
    shorter = adaptive_deadline(gang)
    return progress.timeout_seconds if shorter is None else shorter.seconds


def hangs_at(gang: Gang) -> float | None:
    """When the gang counts as hung if nothing else is heard before; None = never."""
    behind, left = _behind(gang), _left(gang)
    times = [_all_hang_at(gang), None if behind is None else behind[0], None if left is None else left[0]]
    return min((time for time in times if time is not None), default=None)


def hang(gang: Gang) -> Fault | None:
    """The fault of a gang that hangs: the member that is furthest behind is named, until stacks tell more."""
    at = _all_hang_at(gang)
    if at is not None and gang.now >= at:
        last = min(_reported(gang), key=lambda one: (_lowest(one), one.step_time), default=None)
        member = _at_work(gang)[0] if last is None else last.report.member
        rank = None if last is None else rank_furthest_behind(last)
        text = faults.all_hang(_last(last), _why(gang, _phase(_newest(gang))))
        return _fault(gang, member, at, text, rank)
    left = _left(gang)
    if left is not None and gang.now >= left[0]:
        at, one, rank = left
        text = faults.rank_left_behind(rank.pid, rank.step, one.step or 0, _why(gang, rank.phase))
        return _fault(gang, one.report.member, at, text, rank)
    behind = _behind(gang)
    if behind is not None and gang.now >= behind[0]:
        at, one = behind
        reached = gang.status.progress.step if gang.status.progress is not None else 0
        text = faults.member_left_behind(_last(one), reached, _why(gang, _phase(one)))
        return _fault(gang, one.report.member, at, text)
    return None


def was_of_all(gang: Gang, at: float) -> bool:
    """Whether no rank of the attempt that a hang has ended made progress for long before that moment."""
    attempt = failed_attempt(gang)
    said = [one for one in gang.heard_by_member.values() if one.step_attempt == attempt]
    newest = max(said, key=lambda one: one.step_time, default=None)
    seconds = silence_limit(gang, _phase(newest))
    return newest is None or (seconds is not None and newest.step_time + seconds <= at + SETTLED_SECONDS)


def is_alone_behind(gang: Gang, member: str) -> bool:
    """Whether the member has made fewer steps than each of its process group in the attempt that a hang has ended."""
    heard, attempt = gang.heard_by_member, failed_attempt(gang)
    world = gang.world_of(member)
    made = {name: _lowest(heard[name]) for name in world if name in heard and heard[name].step_attempt == attempt}
    own = made.pop(member, None)
    return own is not None and bool(made) and own < min(made.values())


@once
def _all_hang_at(gang: Gang) -> float | None:
    """When no rank will have reported for too long."""
    if gang.spec.progress.timeout_seconds is None or roles_that_wait(gang):
        return None
    newest, found = _newest(gang), _reported(gang)
    seconds = silence_limit(gang, _phase(newest))
    if seconds is None or (not found and _have_only_finished_reported(gang)):
        return None
    began = max(may_start_since(gang.status), gang.observed.listening_since)
    limits = {phase: silence_limit(gang, phase) or seconds for phase in {_phase(one) for one in found}}
    # One may save for long while the others, which have reported later, wait for it.
    last = max([max(one.step_time, began) + limits[_phase(one)] for one in found], default=0.0)
    if reporting := [one for one in found if one.connected]:
        return min([_shown_at(gang, max(last, one.since + seconds), one) for one in reporting])
    everyone = [gang.heard_by_member[member] for member in _at_work(gang) if member in gang.speaking]
    if not everyone or len(everyone) != len(_at_work(gang)):
        return None
    at = max(began, *(one.since for one in everyone)) + seconds
    return max(_shown_at(gang, at, one) for one in everyone)


def _have_only_finished_reported(gang: Gang) -> bool:
    """Whether this attempt has made progress, as those have reported that have finished since."""
    made, attempt = gang.status.progress, gang.status.attempt
    heard = [one for one in gang.heard_by_member.values() if one.step_attempt == attempt]
    return bool(need_no_pod(gang)) and (bool(heard) or (made is not None and made.attempt == attempt))


def _shown_at(gang: Gang, at: float, one: Heard) -> float:
    """When a report of that member shows what is so at ``at``; until it arrives, when that is looked for."""
    return at if one.at >= at else max(at, gang.now + LOOK_SECONDS)


@once
def _behind(gang: Gang) -> tuple[float, Heard] | None:
    """When the first rank will have been behind for too long, and what it has said; None if none is behind."""
    reached, attempt = gang.status.progress, gang.status.attempt
    if gang.spec.progress.timeout_seconds is None or reached is None or reached.attempt != attempt:
        return None
    if len(gang.worlds.keys() - {""}) > 1:
        return None
    settled = reached.time + SETTLED_SECONDS
    found = [
        (
            _shown_at(gang, max(max(one.step_time, gang.observed.listening_since, one.since) + seconds, settled), one),
            one,
        )
        for one in _reported(gang)
        if (said := one.report.progress) is not None
        and one.connected
        and not said.uncounted
        and said.every is not None
        and reached.step > said.step + said.every
        and (seconds := silence_limit(gang, said.phase)) is not None
    ]
    return min(found, key=lambda each: each[0], default=None)


@once
def _left(gang: Gang) -> tuple[float, Heard, RankBehind] | None:
    """When the first rank will have been behind the others of its pod for too long; None if none is."""
    found = [
        (_shown_at(gang, max(one.ago(last.age_ms), gang.observed.listening_since, one.since) + seconds, one), one, last)
        for one in _reported(gang)
        if one.connected
        and (said := one.report.progress) is not None
        and said.behind is not None
        and (last := rank_behind(one)) is not None
        and (seconds := silence_limit(gang, last.phase)) is not None
    ]
    return min(found, key=lambda each: each[0], default=None)


def _lowest(heard: Heard) -> int:
    last = rank_furthest_behind(heard)
    return (heard.step or 0) if last is None else last.step


def _fault(gang: Gang, member: str, at: float, message: str, last: RankBehind | None = None) -> Fault:
    rank = None if last is None else last.rank
    return Fault(Reason.HANG, member, at, gang.incarnation(member), rank=rank, message=message)


def _last(one: Heard | None) -> str:
    if one is None:
        return faults.last_step(reported=False)
    last = rank_furthest_behind(one)
    return faults.last_step(one.step) if last is None else faults.last_step(last.step, last.pid)


def _why(gang: Gang, phase: str) -> str:
    """Why a rank that was silent so long in this phase is late, where the user didn't say it himself."""
    found = adaptive_deadline(gang) if phase == "Step" else None
    return "" if found is None else found.text


def _phase(heard: Heard | None) -> str:
    progress = None if heard is None else heard.report.progress
    return "Startup" if progress is None else progress.phase


def _newest(gang: Gang) -> Heard | None:
    """The newest word of progress of any rank at work; the first of equal ones."""
    return max(_reported(gang), key=lambda one: one.step_time, default=None)


@once
def _at_work(gang: Gang) -> list[str]:
    """The members that run a place and have not finished, in order."""
    done = need_no_pod(gang)
    return [member for member in gang.holders.values() if member not in done]


@once
def _reported(gang: Gang) -> list[Heard]:
    """The newest word of every member at work that has reported progress in this attempt."""
    heard, attempt = gang.heard_by_member, gang.status.attempt
    return [one for member in _at_work(gang) if (one := heard.get(member)) is not None and one.step_attempt == attempt]


# Adaptive


ENOUGH: Final = 8
"""With fewer gaps, the start of the training with its caches and compilations would be all that is known."""
FLOOR_SECONDS: Final = 15.0
"""A sidecar passes on steps once a second, and a busy controller reads a message 5 s later (docs/limits.md, Size)."""
GROWTH: Final = 1.1
"""What is stored is exact enough: it must not cost a write for each step."""


class Deadline(NamedTuple):
    """A deadline that is in force in place of timeoutSeconds."""

    seconds: float
    text: str
    """How it comes about."""


def adaptive_deadline(gang: Gang) -> Deadline | None:
    """The deadline in force between two steps; None while it is timeoutSeconds."""
    adaptive, found = gang.spec.progress.adaptive, _seen(gang)
    made = None if adaptive is None else highest_step(gang, gang.status.attempt)
    return None if made is None or adaptive is None else _computed(gang.job, adaptive, found, made.step)


def stored_deadline(job: GangJob) -> Deadline | None:
    """The same as far as the status tells, which a controller brings up to date now and then."""
    adaptive, found, made = job.spec.progress.adaptive, job.status.step_gaps, job.status.progress
    if adaptive is None or found is None or made is None or made.attempt != job.status.attempt:
        return None
    return _computed(job, adaptive, found, made.step)


def step_gaps(gang: Gang) -> StepGaps | None:
    """What the status should have of the gaps."""
    if gang.spec.progress.adaptive is None:
        return None
    old, new = gang.status.step_gaps or StepGaps(), _seen(gang)
    same = (old.attempt, old.reached_step) == (new.attempt, new.reached_step)
    return gang.status.step_gaps if same and new.longest_milliseconds <= old.longest_milliseconds * GROWTH else new


@once
def _seen(gang: Gang) -> StepGaps:
    status = gang.status
    old, before = status.step_gaps or StepGaps(), status.progress
    reached = [old.reached_step, None if before is None or before.attempt >= status.attempt else before.step]
    found = [heard.gaps for heard in gang.heard.values() if heard.gaps.attempt == status.attempt]
    enough = old.attempt == status.attempt or max((one.seen for one in found), default=0) >= ENOUGH
    longest = max((one.longest for one in found), default=0.0) if enough else 0.0
    return StepGaps(
        attempt=status.attempt if enough else old.attempt,
        longest_milliseconds=max(old.longest_milliseconds, math.ceil(longest * 1000)),
        reached_step=max((step for step in reached if step is not None), default=None),
    )


def _computed(job: GangJob, adaptive: Adaptive, found: StepGaps, step: int) -> Deadline | None:
    longest, most = found.longest_milliseconds / 1000, job.spec.progress.timeout_seconds
    repeats = found.reached_step is not None and step <= found.reached_step
    if most is None or found.attempt != job.status.attempt or repeats:
        return None
    seconds = max(FLOOR_SECONDS, adaptive.factor * longest)
    if seconds >= most:
        return None
    floor = FLOOR_SECONDS if seconds == FLOOR_SECONDS else None
    return Deadline(seconds, deadline_computed(seconds, adaptive.factor, longest, floor))
