"""Progress: steps, hangs, and who holds the others up or is slow.

Progress: how far the ranks of an attempt have got, and at what pace.

    highest_step(a) = the highest step that any rank reported in attempt a, or that the status has of it
    first_step      = the earliest first step that any rank reported in the running attempt; once stored, it stays
    pace(a)         = seconds per step of the rank that made most steps after its first, in attempt a

Where nothing was reported the answer is None: progress must not be guessed.

Hangs: no rank reports progress for too long, or one rank doesn't while the others leave it behind.

    hangs_at  = max(newest progress of any rank, begin of the attempt, begin of listening, known) + timeout of its phase
    timeout   = as ``spec.progress`` has it for this phase; that of phase Step is adaptive where the spec says so
    known     = since when a member that has reported a step in this attempt is connected; where none of them is,
                since when every member is: the one that reports may be the silent one
    behind(m) = the status has a higher step than m's next report is due for, since SETTLED_SECONDS, and m is connected
    behind_at = max(m's newest progress, begin of listening, begin of m's connection) + timeout of m's phase
    left(r)   = another rank of r's pod has made a step that r's next report is due for, and its member is connected
    left_at   = max(r's newest progress, begin of listening, begin of its member's connection) + timeout of r's phase
    hung      = a report that arrived then or later shows no newer progress: of any member, of the one behind, of r's

Ranks and members are those that have not finished: one that has reports no more, and knows nothing of the others. A
silent member may be training, so its silence must not count, not even before it is noticed. Nor must what it says
first: steps that its framework made while the sidecar was away are not known to it. A job that doesn't report progress
must not count as hung unless a timeout is set. A rank that reports seldom is not behind: its own reports tell how far
they are apart. Roles of several process groups count steps each for itself, so none of them is behind another.

Adaptive: the timeout of a step, as far as the steps that were seen tell how long one may take.

    longest  = the longest gap between two reports of any rank in this attempt, or that the status has of any attempt
    deadline = min(timeoutSeconds, max(FLOOR_SECONDS, factor * longest))
    in force <=> a rank has shown ENOUGH gaps in this attempt, or the status says that one has,
                 and the attempt is past the highest step of all attempts before it; else timeoutSeconds

The longest gap must not be forgotten: a checkpoint or an evaluation may come once in some thousand steps, and a median,
or a window that it has left, would call the next one a hang. Nor must an attempt be judged while it repeats steps:
where a slow one was called a hang by mistake, it is among them, and the mistake must not be made again and again. A
gap counts as soon as it is heard; the status has it when it is over 10 % longer than what it has.

The rank of a member that is furthest behind its other ranks, as the member's sidecar tells.

    left_behind(m) = another rank of m has made a step beyond the one that this rank's next report is due for

A rank that has ended is not behind: it reports no more. Which rank that is, is asked of the ends that its supervisor
reports, since the sidecar doesn't know of them.

Who holds the others up, where no rank of a gang makes progress: told by the stacks of all members, compared.

In a synchronous job every rank stops at the next collective that one of them doesn't join. Steps rarely tell which: all
have made the same. So, for the members at work, the first rule that applies::

    stopped    a process of exactly one member was stopped by a signal
    outside    in exactly one member fewer processes are in a collective than in each of the others
    elsewhere  exactly one member is at another line than all others, which are at the same one, and are two or more

A member whose stacks could not be read, or lack the frames that would tell, is at no known line: it is never the one,
and no other is while it isn't known whether that member is in the collective. What doesn't tell must suspect no member.
Of a pod with many processes few frames of each are told, so lines are compared as far as they are known of all.

Slow members: their own part of a step takes longer than that of the others, for a long time.

    own(m)   = median of the last 50 steps of m's slowest rank, without waiting for others, in this attempt
    typical  = median of own over the members of the role
    spread   = 1.4826 * median of abs(own - typical), and at least 1 ms, which is how exact a report is
    slow(m) <=> own(m) - typical > max(SHARE * typical, DEVIATIONS * spread)
    while the status tells of slow members: more than 5 % and 4.5 deviations are enough, so that it doesn't flap

Nothing is said where all are slow at once, where fewer than FEW members of the role have filled their window, or where
more than one of MANY is slow: that is uneven work (the stages of a pipeline), not a device. A member must not be judged
by what it did in an earlier attempt, or before it was replaced.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from statistics import median
from typing import Final, NamedTuple

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.recovery import Adaptive
from gangctl.api.status import FirstStep, GangPhase, ProgressStatus, StepGaps
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.faults import failed_attempt
from gangctl.core.facts.finished import need_no_pod
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.layout import numbered
from gangctl.core.facts.world import Heard
from gangctl.words import faults
from gangctl.words.faults import deadline_computed
from gangctl.words.message import Message
from gangsidecar.wire import RankBehind

# Progress


def highest_step(gang: Gang, attempt: int) -> ProgressStatus | None:
    """The highest step of the attempt; None if no rank has reported one."""
    found, stored = gang.highest_steps.get(attempt), gang.status.progress
    if stored is not None and stored.attempt == attempt and (found is None or found.step <= stored.step):
        return stored
    return found


@once
def first_step(gang: Gang) -> FirstStep | None:
    """The first step of the running attempt, of the rank that was first; what is stored stays."""
    status = gang.status
    stored = status.first_step
    if status.phase is not GangPhase.RUNNING or (stored is not None and stored.attempt == status.attempt):
        return stored
    firsts = (
        (heard.ago(one.first_age_ms), one.first_step)
        for heard in gang.by_progress.get(status.attempt, ())
        if (one := heard.report.progress) is not None and one.first_age_ms is not None
    )
    earliest = min(firsts, key=lambda one: (one[0], one[1] or 0), default=None)
    if earliest is None:
        return stored
    time, step = earliest
    return FirstStep(attempt=status.attempt, step=step, time=time)


def pace(gang: Gang, attempt: int) -> float | None:
    """Seconds a step in the attempt, between the first and the newest step that were reported."""
    status = gang.status
    found = (
        (one.step - one.first_step, (one.first_age_ms - one.age_ms) / 1000)
        for heard in gang.by_progress.get(attempt, ())
        if (one := heard.report.progress) is not None and one.first_step is not None and one.first_age_ms is not None
    )
    made, took = max(found, default=(0, 0.0))
    first, last = status.first_step, status.progress
    began = None if first is None or first.attempt != attempt else first.step
    if first is not None and began is not None and last is not None and last.attempt == attempt:
        made, took = max((made, took), (last.step - began, last.time - first.time))  # Its rank may be gone by now.
    return took / made if made > 0 and took >= 0 else None


# Hangs


SETTLED_SECONDS: Final = 15.0
"""A step that a rank has made is heard sooner than this."""
LOOK_SECONDS: Final = 1.0
"""Supervisors report every 5 s, and no such report wakes the controller: it looks again after this time."""


def limit(gang: Gang, phase: str) -> float | None:
    """How long a gang may be silent in this phase of its training, in seconds; None: without limit."""
    progress = gang.spec.progress
    if progress.timeout_seconds is None:
        return None
    own = {
        "Startup": progress.startup_timeout_seconds,
        "Checkpoint": progress.checkpoint_timeout_seconds,
        "Evaluation": progress.evaluation_timeout_seconds,
    }.get(phase)
    if own is not None:
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
    seconds = limit(gang, _phase(newest))
    return newest is None or (seconds is not None and newest.step_time + seconds <= at + SETTLED_SECONDS)


def is_alone_behind(gang: Gang, member: str) -> bool:
    """Whether the member has made fewer steps than each of the others in the attempt that a hang has ended."""
    said = [one for one in gang.heard_by_member.values() if one.step_attempt == failed_attempt(gang)]
    own = [_lowest(one) for one in said if one.report.member == member]
    others = [_lowest(one) for one in said if one.report.member != member]
    return bool(own and others) and own[0] < min(others)


@once
def _all_hang_at(gang: Gang) -> float | None:
    """When no rank will have reported for too long."""
    if gang.spec.progress.timeout_seconds is None:
        return None
    newest, found = _newest(gang), _reported(gang)
    seconds = limit(gang, _phase(newest))
    if seconds is None:
        return None
    began = max(0.0 if newest is None else newest.step_time, gang.status.phase_time, gang.observed.listening_since)
    if reporting := [one for one in found if one.connected]:
        return min(_shown_at(gang, max(began, one.since) + seconds, one) for one in reporting)
    everyone = [gang.heard_by_member[member] for member in _at_work(gang) if member in gang.speaking]
    if not everyone or len(everyone) != len(_at_work(gang)):
        return None
    at = max(began, *(one.since for one in everyone)) + seconds
    return max(_shown_at(gang, at, one) for one in everyone)


def _shown_at(gang: Gang, at: float, one: Heard) -> float:
    """When a report of that member shows what is so at ``at``; until it arrives, when that is looked for."""
    return at if one.at >= at else max(at, gang.now + LOOK_SECONDS)


@once
def _behind(gang: Gang) -> tuple[float, Heard] | None:
    """When the first rank will have been behind for too long, and what it has said; None if none is behind."""
    reached, attempt = gang.status.progress, gang.status.attempt
    if gang.spec.progress.timeout_seconds is None or reached is None or reached.attempt != attempt:
        return None
    if len(numbered(gang.spec).groups) > 1:
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
        and (seconds := limit(gang, said.phase)) is not None
    ]
    return min(found, key=lambda each: each[0], default=None)


@once
def _left(gang: Gang) -> tuple[float, Heard, RankBehind] | None:
    """When the first rank will have been behind the others of its pod for too long; None if none is."""
    found = [
        (_shown_at(gang, max(one.ago(last.age_ms), gang.observed.listening_since, one.since) + seconds, one), one, last)
        for one in _reported(gang)
        if one.connected
        and (last := rank_left_behind(one)) is not None
        and (seconds := limit(gang, last.phase)) is not None
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


# The rank of a member that is furthest behind its other ranks, as the member's sidecar tells


def rank_furthest_behind(heard: Heard) -> RankBehind | None:
    """The rank with the lowest step of those that go on; None if all have made the same, or if that isn't known."""
    progress = heard.report.progress
    last = None if progress is None or progress.uncounted else progress.behind
    if progress is None or last is None or last.step >= progress.step:
        return None
    ended = any((end.attempt, end.rank) == (progress.attempt, last.rank) for end in heard.report.ends)
    return None if ended else last


def rank_left_behind(heard: Heard) -> RankBehind | None:
    """The same if it is further behind than its next report is due; None while that isn't known."""
    progress, last = heard.report.progress, rank_furthest_behind(heard)
    if progress is None or last is None or progress.every is None:
        return None
    return last if progress.step > last.step + progress.every else None


# Who holds the others up, where no rank of a gang makes progress


COLLECTIVE: Final = re.compile(
    r"/(torch/distributed/(?!elastic|launcher|run\.py)|horovod/|mpi4py/|deepspeed/comm/|torch_xla/|multihost_utils\.py)"
    r"|\b(nccl[A-Z]|gloo::|PMPI_|MPI_)"
)
"""A frame in the communication between ranks, by its file or by its function."""
STOPPED: Final = ": stopped by a signal"
CUT: Final = re.compile(r"^and [0-9]+ more processes$", re.MULTILINE)
"""There was no room for all of them, so they can't be counted."""
MARK: Final = "..."
"""There was no room for the frames that follow."""
ENOUGH_FRAMES: Final = 10
"""A process that is in no collective by its innermost frames, and these are so many, is in none."""


class HeldUp(NamedTuple):
    """What the stacks say."""

    member: str
    """The one that holds the others up; empty if they don't tell."""
    text: Message


class _Seen(NamedTuple):
    stopped: bool
    inside: int
    """So many of its processes are in a collective."""
    line: tuple[str, ...]
    """Frames of its first process that runs Python; empty if they are not known."""


def held_up(gang: Gang, attempt: int) -> HeldUp | None:
    """Compare what the members' workers did in this attempt; None while some are unknown, or where it is one alone."""
    done = need_no_pod(gang)
    seen: dict[str, _Seen] = {}
    for member in gang.holders.values():
        report = gang.report(member)
        if member in done:
            continue
        if report is None or report.stacks is None or report.stacks.attempt != attempt:
            return None
        seen[member] = _seen_of_held_up(report.stacks.text)
    return _compared(seen) if len(seen) > 1 else None


def _compared(seen: dict[str, _Seen]) -> HeldUp:
    stopped = [member for member, one in seen.items() if one.stopped]
    if len(stopped) == 1:
        return HeldUp(stopped[0], faults.stopped_by_signal())
    known = not stopped and all(one.line for one in seen.values())
    most = max(one.inside for one in seen.values())
    outside = [member for member, one in seen.items() if one.inside < most]
    if known and len(outside) == 1:
        where = _own(seen[outside[0]].line)
        return HeldUp(outside[0], faults.outside_collective(where))
    told = min(len(one.line) for one in seen.values())
    places = Counter(one.line[:told] for one in seen.values())
    (line, most_at), *others = places.most_common()
    if known and not outside and most_at > 1 and [count for _, count in others] == [1]:
        member = next(member for member, one in seen.items() if one.line[:told] != line)
        return HeldUp(member, faults.elsewhere(_own(seen[member].line), _own(line)))
    if known and outside:
        return HeldUp("", faults.many_outside_collective(outside))
    return HeldUp("", faults.stacks_unclear())


def _own(line: tuple[str, ...]) -> str:
    """The innermost frame that is not of a library, if there is one."""
    return next((frame for frame in line if "/lib/python" not in frame and "(<" not in frame), line[0])


def _seen_of_held_up(text: str) -> _Seen:
    inside, first, is_short = 0, tuple[str, ...](), CUT.search(text) is not None
    for process in re.split(r"^process ", text, flags=re.MULTILINE):
        sections = re.split(r"^  (?! )", process, flags=re.MULTILINE)
        frames = [_frames(one) for one in sections if one.startswith("Python")]
        is_in = any(COLLECTIVE.search(frame) for one in frames for frame in one)
        inside += is_in
        is_short |= not is_in and any(one[-1:] == (MARK,) and len(one) <= ENOUGH_FRAMES for one in frames)
        first = first or next((one for one in frames if one), ())
    return _Seen(STOPPED in text, inside, () if is_short else tuple(one for one in first if one != MARK))


def _frames(section: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in section.splitlines()[1:])


# Slow members


SHARE: Final = 0.10
DEVIATIONS: Final = 6.0
SHARE_TO_STAY: Final = 0.05
DEVIATIONS_TO_STAY: Final = 4.5
FEW: Final = 4
MANY: Final = 32
_NORMAL: Final = 1.4826
"""Makes the median of deviations comparable to a standard deviation."""
_EXACT_MS: Final = 1.0


class Slow(NamedTuple):
    """A slow member."""

    excess: float
    """By how much of the typical time it is slower: 0.15 is 15 %."""
    member: str
    rank: int
    own_ms: int
    typical_ms: float


def slow_members(gang: Gang, *, stays: bool = False) -> list[Slow]:
    """The slow members, the slowest first. ``stays``: the status tells of slow members already."""
    roles = defaultdict[str, list[tuple[int, int, str]]](list)
    done = need_no_pod(gang)
    for place, member in gang.holders.items():
        heard = gang.heard_by_member.get(member)
        if heard is None or not heard.connected or heard.step_attempt != gang.status.attempt or member in done:
            continue
        progress = heard.report.progress
        if progress is not None and progress.own_ms is not None and progress.own_rank is not None:
            roles[gang.places[place].role.name].append((progress.own_ms, progress.own_rank, member))
    return sorted((one for told in roles.values() for one in outliers(told, stays=stays)), reverse=True)


def outliers(told: list[tuple[int, int, str]], *, stays: bool = False) -> list[Slow]:
    """The slow ones of a role. ``told``: own milliseconds a step, rank and name of each member."""
    if len(told) < FEW:
        return []
    share, deviations = (SHARE_TO_STAY, DEVIATIONS_TO_STAY) if stays else (SHARE, DEVIATIONS)
    typical = median([own for own, _, _ in told])
    spread = max(_EXACT_MS, _NORMAL * median([abs(own - typical) for own, _, _ in told]))
    limit = typical + max(share * typical, deviations * spread)
    found = [
        Slow(own / typical - 1 if typical else 0.0, member, rank, own, typical)
        for own, rank, member in told
        if own > limit
    ]
    return found if len(found) <= max(1, len(told) // MANY) else []
