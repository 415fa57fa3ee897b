"""Keep what the worker did, within bounds: ends, checkpoints, progress, milestones, restart request, corruption.

Times are milliseconds of CLOCK_BOOTTIME; a report turns them into ages. The bounds, with those of the wire, keep a
report below :data:`wire.MAX_REPORT_BYTES`; what is cut must always be the oldest. Of checkpoints that is so for each
rank in each tier: one that is written each step must not push the newest of another out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from gangsidecar import wire
from gangsidecar.wire.frozen import frozen

Message = TypeVar("Message", wire.End, wire.Reached, wire.Request, wire.Corruption)
CheckpointReport = TypeVar("CheckpointReport", wire.Checkpoint, wire.Dropped)

END_ATTEMPTS = 2
MESSAGE = 240
REASON = 1024
CHECKPOINTS_PER_RANK = 32
"""In one tier: no restart goes further back."""
CHECKPOINT_BYTES = 32_000
RANKS = 64
"""The most ranks of one member that count."""


@frozen
class Seen(Generic[Message]):
    """A message of the worker, and when it was true; the ``age_ms`` inside has no meaning."""

    at: int
    message: Message

    def aged(self, now_ms: int) -> Message:
        """The message with its age at ``now_ms``."""
        return replace(self.message, age_ms=max(0, now_ms - self.at))


@frozen
class Steps:
    """The newest progress of one attempt."""

    attempt: int
    step: int
    at: int
    phase: str
    first_step: int | None = None
    first_at: int | None = None
    first_ms: int | None = None
    every: int | None = None
    uncounted: bool = False
    """No step is known of this attempt; ``at`` and ``first_at`` are those of signs of progress."""
    own_ms: int | None = None
    own_rank: int | None = None
    behind: wire.RankBehind | None = None
    """The ``age_ms`` inside has no meaning."""
    behind_at: int = 0


@frozen
class Latest(Seen[wire.Reached]):
    """The last rank that reached a milestone."""

    ranks: tuple[int | None, ...]
    """The ranks that have reached it in this attempt. Each counts once."""


@frozen
class History:
    """All of it. Ends are in the order in which they came; checkpoints newest step first."""

    ends: tuple[Seen[wire.End], ...] = ()
    checkpoints: tuple[wire.Checkpoint, ...] = ()
    dropped: tuple[wire.Dropped, ...] = ()
    """``checkpoints`` has none of these steps and ranks. Newest step first."""
    progress: Steps | None = None
    reached: tuple[Latest, ...] = ()
    restart: Seen[wire.Request] | None = None
    corruption: Seen[wire.Corruption] | None = None
    verified: tuple[wire.Verified, ...] = ()
    """Those of the newest attempt, newest step first."""


def add_end(history: History, at: int, end: wire.End) -> History:
    """Add an end; those of the newest two attempts are kept, of the newest attempt first."""
    message = end.message[:MESSAGE]
    ends = (*history.ends, Seen(at, replace(end, age_ms=0, message=message)))
    attempts = sorted({one.message.attempt for one in ends}, reverse=True)[:END_ATTEMPTS]
    newest = sorted(
        (one for one in ends if one.message.attempt in attempts), key=lambda one: (-one.message.attempt, one.at)
    )[: wire.MAX_ENDS]
    return replace(history, ends=tuple(sorted(newest, key=lambda one: one.at)))


def add_checkpoint(history: History, checkpoint: wire.Checkpoint) -> History:
    """Add a completed checkpoint in place of what the same rank had at this step of the tier; newest steps are kept."""
    place = _place(checkpoint)
    kept = (one for one in history.checkpoints if _place(one) != place)
    dropped = tuple(one for one in history.dropped if _place(one) != place)
    return replace(history, checkpoints=_bounded((*kept, checkpoint)), dropped=dropped)


def drop_checkpoint(history: History, dropped: wire.Dropped) -> History:
    """Forget one step of one rank, and remember that it was dropped: the controller may have recorded it."""
    place = _place(dropped)
    erased = (*(one for one in history.dropped if _place(one) != place), dropped)
    newest = [one for _, one in _by_turns(erased)][: wire.MAX_DROPPED]
    kept = tuple(one for one in history.checkpoints if _place(one) != place)
    return replace(history, checkpoints=kept, dropped=tuple(sorted(newest, key=_newest_first)))


def forget_later_steps(history: History, step: int | None) -> History:
    """Forget the checkpoints above the step that a restart goes back to: their future has not happened (None: all)."""
    last = -1 if step is None else step
    return replace(
        history,
        checkpoints=tuple(one for one in history.checkpoints if one.step <= last),
        dropped=tuple(one for one in history.dropped if one.step <= last),
    )


def add_progress(history: History, now_ms: int, progress: wire.Progress) -> History:
    """Fold one call into the progress of its attempt: highest step, newest call, first step."""
    if progress.uncounted:
        return _signed(history, now_ms - max(0, progress.age_ms), progress)
    at = now_ms - max(0, progress.age_ms)
    first_step, first_at = progress.first_step, at
    if first_step is not None and progress.first_age_ms is not None:
        first_at = now_ms - max(0, progress.first_age_ms)
    elif first_step is None and progress.phase == "Step":
        first_step = progress.step
    old = history.progress
    if old is None or old.attempt != progress.attempt:
        first = None if first_step is None else first_at
        steps = Steps(progress.attempt, progress.step, at, progress.phase, first_step, first, progress.first_ms)
        return replace(history, progress=_of_ranks(replace(steps, every=progress.every), now_ms, progress))
    if old.uncounted and first_step is not None:
        old = replace(old, uncounted=False, first_at=None)
    steps = replace(old, step=max(old.step, progress.step), every=_longest(old.every, progress.every))
    if at >= old.at:
        steps = replace(steps, at=at, phase=progress.phase)
    if first_step is not None and first_step == old.first_step:
        steps = replace(steps, first_ms=_longest(old.first_ms, progress.first_ms))
    if first_step is not None and (old.first_at is None or first_at < old.first_at):
        first_ms = steps.first_ms if first_step == old.first_step else progress.first_ms
        steps = replace(steps, first_step=first_step, first_at=first_at, first_ms=first_ms)
    return replace(history, progress=_of_ranks(steps, now_ms, progress))


def _of_ranks(steps: Steps, now_ms: int, progress: wire.Progress) -> Steps:
    """The newest word on the slowest rank counts, and on the one behind; what is read from the output has none."""
    behind = progress.behind
    if progress.own_ms is not None:
        steps = replace(steps, own_ms=progress.own_ms, own_rank=progress.own_rank)
    if behind is None:
        return replace(steps, behind=None, behind_at=0)
    return replace(steps, behind=replace(behind, age_ms=0), behind_at=now_ms - max(0, behind.age_ms))


def _signed(history: History, at: int, progress: wire.Progress) -> History:
    """A step was made, but not which. What is known of steps stays known."""
    old = history.progress
    if old is None or old.attempt != progress.attempt:
        return replace(history, progress=Steps(progress.attempt, 0, at, "Step", first_at=at, uncounted=True))
    if old.first_at is None:
        old = replace(old, uncounted=True, first_at=at)
    return replace(history, progress=replace(old, at=max(old.at, at), phase="Step"))


def add_reached(history: History, now_ms: int, reached: wire.Reached) -> History:
    """Of each milestone, keep the rank that was last: each rank's first report, and none after the first step.

    What comes later, or again, doesn't belong to the restart.
    """
    steps, of_attempt = history.progress, [one for one in history.reached if one.message.attempt == reached.attempt]
    if steps is not None and steps.attempt == reached.attempt and steps.first_step is not None:
        return history
    old = next((one for one in of_attempt if one.message.milestone is reached.milestone), None)
    ranks = () if old is None else old.ranks
    if reached.rank in ranks or len(ranks) == RANKS:
        return history
    newest = Latest(now_ms - max(0, reached.age_ms), replace(reached, age_ms=0), (*ranks, reached.rank))
    if old is not None and old.at > newest.at:
        newest = replace(old, ranks=newest.ranks)
    return replace(history, reached=(*(one for one in of_attempt if one is not old), newest))


def add_request(history: History, now_ms: int, request: wire.Request) -> History:
    """Keep the newest request for a restart."""
    at = now_ms - max(0, request.age_ms)
    asked = Seen(at, replace(request, age_ms=0, reason=request.reason[:REASON]))
    if history.restart is not None and history.restart.at > at:
        return history
    return replace(history, restart=asked)


def add_corruption(history: History, now_ms: int, found: wire.Corruption) -> History:
    """Keep the first of an attempt, with the lowest step of all: what is wrong since then is wrong for every rank."""
    old = history.corruption
    if old is not None and old.message.attempt == found.attempt:
        lowest = min(old.message.since_step, found.since_step)
        return replace(history, corruption=replace(old, message=replace(old.message, since_step=lowest)))
    kept = replace(found, age_ms=0, reason=found.reason[:REASON])
    return replace(history, corruption=Seen(now_ms - max(0, found.age_ms), kept))


def add_verified(history: History, verified: wire.Verified) -> History:
    """Add a step that was verified; the newest are kept."""
    steps = sorted({*history.verified, verified}, key=lambda one: -one.step)[: wire.MAX_VERIFIED]
    return replace(history, verified=tuple(steps))


def ends(history: History, now_ms: int) -> tuple[wire.End, ...]:
    return tuple(one.aged(now_ms) for one in history.ends)


def progress(history: History, now_ms: int) -> wire.Progress | None:
    steps = history.progress
    if steps is None:
        return None
    first_age = None if steps.first_at is None else max(0, now_ms - steps.first_at)
    age = max(0, now_ms - steps.at)
    now = wire.Progress(steps.attempt, steps.step, age, steps.phase, steps.first_step, first_age, steps.first_ms)
    now = replace(now, every=steps.every, uncounted=steps.uncounted, own_ms=steps.own_ms, own_rank=steps.own_rank)
    last = steps.behind
    return now if last is None else replace(now, behind=replace(last, age_ms=max(0, now_ms - steps.behind_at)))


def suspected_process(history: History, attempt: int) -> int | None:
    """The process of the rank that the others have left behind in this attempt; None if none is known."""
    steps = history.progress
    return None if steps is None or steps.attempt != attempt or steps.behind is None else steps.behind.pid


def reached_milestones(history: History, now_ms: int) -> tuple[wire.Reached, ...]:
    return tuple(one.aged(now_ms) for one in history.reached)


def request(history: History, now_ms: int) -> wire.Request | None:
    return None if history.restart is None else history.restart.aged(now_ms)


def corruption(history: History, now_ms: int) -> wire.Corruption | None:
    return None if history.corruption is None else history.corruption.aged(now_ms)


def _place(one: wire.Checkpoint | wire.Dropped) -> tuple[str, int, int]:
    return one.tier, one.step, one.rank


def _longest(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _newest_first(one: CheckpointReport) -> tuple[int, str, int]:
    return -one.step, one.tier, one.rank


def _by_turns(found: Iterable[CheckpointReport]) -> list[tuple[int, CheckpointReport]]:
    """The newest of each rank in each tier, then the second newest of each, and so on, with their turns."""
    turns: dict[tuple[str, int], int] = {}
    numbered = []
    for one in sorted(found, key=_newest_first):
        turn = turns[one.tier, one.rank] = turns.get((one.tier, one.rank), -1) + 1
        numbered.append((turn, one))
    return sorted(numbered, key=lambda each: each[0])


def _bounded(checkpoints: tuple[wire.Checkpoint, ...]) -> tuple[wire.Checkpoint, ...]:
    kept: list[wire.Checkpoint] = []
    size = 0
    for turn, one in _by_turns(checkpoints):
        size += 80 + len(json.dumps(one.path)) + len(json.dumps(one.tier))
        if size > CHECKPOINT_BYTES or len(kept) == wire.MAX_CHECKPOINTS or turn == CHECKPOINTS_PER_RANK:
            break
        kept.append(one)
    return tuple(sorted(kept, key=_newest_first))
