"""Progress: steps, and who is behind, holds the others up or is slow.

Progress: how far the ranks of an attempt have got, and at what pace.

    highest_step(a) = the highest step that any rank reported in attempt a, or that the status has of it
    first_step      = the earliest first step that any rank reported in the running attempt; once stored, it stays
    pace(a)         = seconds per step of the rank that made most steps after its first, in attempt a

Where nothing was reported the answer is None: progress must not be guessed.

Finished: which members' workers have ended for good, because all their work is done.

    finished(p)   the status records it, or each process of the place p ended with 0 before any stop, in the newest
                  attempt that had workers: as a report of a pod of its member says, or the last words of one

A member that has finished stays so whatever becomes of its pod; the next attempt takes it along. An end with 0 after a
stop (a directive, a SIGTERM to the supervisor, fencing) must not count: that worker was interrupted. Where
``successPolicy`` is Never, no member finishes: each end is a fault.

The rank of a member that is furthest behind its other ranks, as the member's sidecar tells.

    left_behind(m) = another rank of m has made a step beyond the one that this rank's next report is due for

A rank that has ended is not behind: it reports no more. Which rank that is, is asked of the ends that its supervisor
reports, since the sidecar doesn't know of them.

Who holds the others up, where no rank of a gang makes progress: told by the stacks of all members, compared.

In a synchronous job every rank stops at the next collective that one of them doesn't join. Steps rarely tell which: all
have made the same. So, for the members of a process group at work, the first rule that applies::

    stopped    a process of exactly one member was stopped by a signal
    outside    in exactly one member fewer processes are in a collective than in each of the others
    elsewhere  exactly one member is at another line than all others, which are at the same one, and are two or more

A member whose stacks could not be read, or lack the frames that would tell, is at no known line: it is never the one,
and no other is while it isn't known whether that member is in the collective. What doesn't tell must suspect no member.
Of a pod with many processes few frames of each are told, so lines are compared as far as they are known of all. Where
several process groups have a member that holds the others up, one waits for another, and it isn't known which.

Slow members: their own part of a step takes longer than that of the others, for a long time.

    own(m)   = median of the last 50 steps of m's slowest rank, without waiting for others, in this attempt
    typical  = median of own over the members of the role
    spread   = 1.4826 * median of abs(own - typical), and at least 1 ms, which is how exact a report is
    slow(m) <=> own(m) - typical > max(SHARE * typical, DEVIATIONS * spread)
    while the status tells of slow members: more than 5 % and 4.5 deviations are enough, so that it doesn't flap

Nothing is said where all are slow at once, where fewer than FEW members of the role have filled their window, or where
more than one of MANY is slow: that is uneven work (the stages of a pipeline), not a device. A member must not be judged
by what it did in an earlier attempt, or before it was replaced.

The success policy: a gang has succeeded once every member that the policy counts has finished, in whatever phase that
shows, whatever its teardown looked like and whatever became of its pods. The roles must be those that ran.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from statistics import median
from typing import Final, NamedTuple

from gangctl.api.gangjob import NeverSucceeds, Roles
from gangctl.api.names import MAX_MEMBERS, member_name
from gangctl.api.roles import roles_hash
from gangctl.api.status import Finished, FinishedRole, FirstStep, GangPhase, ProgressStatus, Status
from gangctl.core.facts.gang import Gang, once, started_processes
from gangctl.core.facts.world import Heard
from gangctl.words import faults
from gangctl.words.message import Message
from gangsidecar.wire import End, RankBehind, from_ranges, to_ranges

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
    firsts = [
        (heard.ago(one.first_age_ms), one.first_step or 0, one.first_step)
        for heard in gang.by_progress.get(status.attempt, ())
        if (one := heard.report.progress) is not None and one.first_age_ms is not None
    ]
    if not firsts:
        return stored
    time, _, step = min(firsts, key=itemgetter(0, 1))
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


# The rank of a member that is furthest behind its other ranks, as the member's sidecar tells


def rank_furthest_behind(heard: Heard) -> RankBehind | None:
    """The rank with the lowest step of those that go on; None if all have made the same, or if that isn't known."""
    progress = heard.report.progress
    last = None if progress is None or progress.uncounted else progress.behind
    if progress is None or last is None or last.step >= progress.step:
        return None
    ended = any((end.attempt, end.rank) == (progress.attempt, last.rank) for end in heard.report.ends)
    return None if ended else last


def rank_behind(heard: Heard) -> RankBehind | None:
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
ELLIPSIS: Final = "..."
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
    if len(seen) == 1:
        return None
    worlds = ({member: seen[member] for member in seen if member in world} for world in gang.worlds.values())
    found = [_compared(world) for world in worlds if len(world) > 1]
    found = [one for one in found if one.member] or found
    return found[0] if len(found) == 1 else HeldUp("", faults.stacks_unclear())


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
        is_short |= not is_in and any(one[-1:] == (ELLIPSIS,) and len(one) <= ENOUGH_FRAMES for one in frames)
        first = first or next((one for one in frames if one), ())
    return _Seen(STOPPED in text, inside, () if is_short else tuple(one for one in first if one != ELLIPSIS))


def _frames(section: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in section.splitlines()[1:])


# Slow members


SLOW_SHARE: Final = 0.10
DEVIATIONS: Final = 6.0
SHARE_TO_STAY: Final = 0.05
DEVIATIONS_TO_STAY: Final = 4.5
MIN_RANKS: Final = 4
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
    done, heard, places, attempt = need_no_pod(gang), gang.heard_by_member, gang.places, gang.status.attempt
    for place, member in gang.holders.items():
        one = heard.get(member)
        if one is None or not one.connected or one.step_attempt != attempt or member in done:
            continue
        progress = one.report.progress
        if progress is not None and progress.own_ms is not None and progress.own_rank is not None:
            roles[places[place].role.name].append((progress.own_ms, progress.own_rank, member))
    return sorted((one for told in roles.values() for one in outliers(told, stays=stays)), reverse=True)


def outliers(told: list[tuple[int, int, str]], *, stays: bool = False) -> list[Slow]:
    """The slow ones of a role. ``told``: own milliseconds a step, rank and name of each member."""
    if len(told) < MIN_RANKS:
        return []
    share, deviations = (SHARE_TO_STAY, DEVIATIONS_TO_STAY) if stays else (SLOW_SHARE, DEVIATIONS)
    typical = median([own for own, _, _ in told])
    spread = max(_EXACT_MS, _NORMAL * median([abs(own - typical) for own, _, _ in told]))
    limit = typical + max(share * typical, deviations * spread)
    found = [
        Slow(own / typical - 1 if typical else 0.0, member, rank, own, typical)
        for own, rank, member in told
        if own > limit
    ]
    return found if len(found) <= max(1, len(told) // MANY) else []


# Finished


def attempt_with_workers(status: Status) -> int:
    """The newest attempt that had workers; 0 if there was none since the gang was resumed.

    Later ones were held or suspended before they began.
    """
    newest = status.attempt if status.phase is GangPhase.RUNNING else status.started_attempt
    return newest if newest >= status.resumed_attempt else 0


@once
def finished_places(gang: Gang) -> frozenset[str]:
    """Places whose worker has finished in the newest attempt that had workers."""
    attempt = attempt_with_workers(gang.status)
    if attempt < 1 or isinstance(gang.spec.success_policy, NeverSucceeds):
        return frozenset()
    done: defaultdict[str, set[int]] = defaultdict(set)
    for member, end in _ends(gang):
        if end.attempt == attempt and end.exit_code == 0 and not end.stopped:
            done[member].add(end.local_rank)
    shown = {
        place
        for place, member in (gang.holders.items() if done else ())
        if member in done and len(done[member]) == started_processes(gang.places[place].role)
    }
    return recorded_places(gang.status, attempt) | shown


def has_succeeded(gang: Gang) -> bool:
    """Whether every member that the policy counts has finished in the newest attempt that had workers."""
    policy = gang.spec.success_policy
    if not finished_places(gang):
        return False
    counting = [
        place
        for place, member in gang.places.items()
        if not isinstance(policy, Roles) or member.role.name in policy.roles
    ]
    done = bool(counting) and finished_places(gang).issuperset(counting)
    return done and roles_hash(gang.spec.roles) == gang.status.roles_hash


@once
def need_no_pod(gang: Gang) -> frozenset[str]:
    """Members that have finished the attempt that runs. The next attempt needs them again."""
    if gang.status.phase is not GangPhase.RUNNING:
        return frozenset()
    return frozenset(gang.holders.get(place, place) for place in finished_places(gang))


def recorded_places(status: Status, attempt: int) -> frozenset[str]:
    record = status.finished
    return frozenset() if record is None or record.attempt != attempt else _places(record.roles)


@lru_cache(512)
def _places(roles: tuple[FinishedRole, ...]) -> frozenset[str]:
    """The places that a record names. They are the same from decision to decision."""
    return frozenset(
        member_name(role.name, index) for role in roles for index in from_ranges(role.indexes, MAX_MEMBERS)
    )


def finished_record(gang: Gang) -> Finished | None:
    """The finished members as the status records them; None if no member has finished."""
    done = finished_places(gang)
    if not done:
        return None
    indexes: dict[str, list[int]] = {}
    for place, member in gang.places.items():
        if place in done:
            indexes.setdefault(member.role.name, []).append(member.index)
    roles = tuple(FinishedRole(name=name, indexes=to_ranges(found)) for name, found in indexes.items())
    return Finished(attempt=attempt_with_workers(gang.status), time=gang.now, roles=roles)


def _ends(gang: Gang) -> Iterator[tuple[str, End]]:
    for heard in gang.heard.values():
        if not heard.is_quiet:
            for end in heard.report.ends:
                yield heard.report.member, end
    for pod in gang.observed.pods:
        if pod.last_words is not None:
            for end in pod.last_words.ends:
                yield pod.member, end
