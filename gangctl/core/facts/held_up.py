"""Who holds the others up, where no rank of a gang makes progress: told by the stacks of all members, compared.

In a synchronous job every rank stops at the next collective that one of them doesn't join. Steps rarely tell which: all
have made the same. So, for the members at work, the first rule that applies::

    stopped    a process of exactly one member was stopped by a signal
    outside    in exactly one member fewer processes are in a collective than in each of the others
    elsewhere  exactly one member is at another line than all others, which are at the same one, and are two or more

A member whose stacks could not be read, or lack the frames that would tell, is at no known line: it is never the one,
and no other is while it isn't known whether that member is in the collective. What doesn't tell must suspect no member.
Of a pod with many processes few frames of each are told, so lines are compared as far as they are known of all.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from gangctl.core.facts.finished import need_no_pod
from gangctl.core.facts.gang import Gang
from gangctl.words import faults
from gangctl.words.message import Message

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
ENOUGH: Final = 10
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
        seen[member] = _seen(report.stacks.text)
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


def _seen(text: str) -> _Seen:
    inside, first, is_short = 0, tuple[str, ...](), CUT.search(text) is not None
    for process in re.split(r"^process ", text, flags=re.MULTILINE):
        sections = re.split(r"^  (?! )", process, flags=re.MULTILINE)
        frames = [_frames(one) for one in sections if one.startswith("Python")]
        is_in = any(COLLECTIVE.search(frame) for one in frames for frame in one)
        inside += is_in
        is_short |= not is_in and any(one[-1:] == (MARK,) and len(one) <= ENOUGH for one in frames)
        first = first or next((one for one in frames if one), ())
    return _Seen(STOPPED in text, inside, () if is_short else tuple(one for one in first if one != MARK))


def _frames(section: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in section.splitlines()[1:])
