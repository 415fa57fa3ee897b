"""What a supervisor remembers for the controller, in bounds: ends, checkpoints, progress, loading, a request.

Pure, like :mod:`gangsidecar.machine` whose state holds it. Times are CLOCK_BOOTTIME milliseconds; a report turns them
into ages. The bounds keep a report below 64 KiB; what is cut is always the oldest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from . import wire

ENDS = 64
"""As many as one pod has processes."""
END_ATTEMPTS = 2
MESSAGE = 240
REASON = 1024
CHECKPOINTS = 256
CHECKPOINTS_PER_RANK = 32
"""In one tier: further back no restart will go."""
CHECKPOINT_BYTES = 40_000
LOADS = 64
"""Ranks of one member that are heard."""


@dataclass(frozen=True)
class Ended:
    """An end and when it was seen; the ``age_ms`` inside has no meaning."""

    at: int
    end: wire.End


@dataclass(frozen=True)
class Pace:
    """The newest progress of one attempt."""

    attempt: int
    step: int
    at: int
    phase: str
    first_step: int | None = None
    first_at: int | None = None
    first_ms: int | None = None


@dataclass(frozen=True)
class Load:
    """When the rank that was ready last had loaded the restore point; the ``age_ms`` inside has no meaning."""

    at: int
    loaded: wire.Loaded
    ranks: tuple[int | None, ...]
    """Who has said so in this attempt. A rank is heard once."""


@dataclass(frozen=True)
class Asked:
    """A framework's request and when it was made; the ``age_ms`` inside has no meaning."""

    at: int
    request: wire.Request


@dataclass(frozen=True)
class Evidence:
    """All of it. Ends are in the order in which they came; checkpoints newest step first."""

    ends: tuple[Ended, ...] = ()
    checkpoints: tuple[wire.Checkpoint, ...] = ()
    pace: Pace | None = None
    load: Load | None = None
    asked: Asked | None = None


def add_end(evidence: Evidence, at: int, end: wire.End) -> Evidence:
    """Add an end; those of the newest two attempts are kept, of the newest attempt first."""
    message = end.message[:MESSAGE]
    ends = (*evidence.ends, Ended(at, replace(end, age_ms=0, message=message)))
    attempts = sorted({one.end.attempt for one in ends}, reverse=True)[:END_ATTEMPTS]
    newest = sorted((one for one in ends if one.end.attempt in attempts), key=lambda one: (-one.end.attempt, one.at))[
        :ENDS
    ]
    return replace(evidence, ends=tuple(sorted(newest, key=lambda one: one.at)))


def add_checkpoint(evidence: Evidence, checkpoint: wire.Checkpoint) -> Evidence:
    """Add a completed checkpoint in place of what the same rank had at this step of the tier; newest steps are kept."""
    kept = (one for one in evidence.checkpoints if _place(one) != _place(checkpoint))
    return replace(evidence, checkpoints=_bounded((*kept, checkpoint)))


def drop_checkpoint(evidence: Evidence, dropped: wire.Dropped) -> Evidence:
    """Forget one step of one rank."""
    place = (dropped.tier, dropped.step, dropped.rank)
    return replace(evidence, checkpoints=tuple(one for one in evidence.checkpoints if _place(one) != place))


def restored(evidence: Evidence, step: int | None) -> Evidence:
    """Forget the checkpoints above the step that a restart goes back to: their future has not happened (None: all)."""
    kept = () if step is None else tuple(one for one in evidence.checkpoints if one.step <= step)
    return replace(evidence, checkpoints=kept)


def add_progress(evidence: Evidence, now_ms: int, progress: wire.Progress) -> Evidence:
    """Fold one call into the progress of its attempt: highest step, newest call, first step."""
    at = now_ms - max(0, progress.age_ms)
    first_step, first_at = progress.first_step, at
    if first_step is not None and progress.first_age_ms is not None:
        first_at = now_ms - max(0, progress.first_age_ms)
    elif first_step is None and progress.phase == "Step":
        first_step = progress.step
    old = evidence.pace
    if old is None or old.attempt != progress.attempt:
        first = None if first_step is None else first_at
        pace = Pace(progress.attempt, progress.step, at, progress.phase, first_step, first, progress.first_ms)
        return replace(evidence, pace=pace)
    pace = replace(old, step=max(old.step, progress.step))
    if at >= old.at:
        pace = replace(pace, at=at, phase=progress.phase)
    if first_step is not None and first_step == old.first_step:
        pace = replace(pace, first_ms=_longest(old.first_ms, progress.first_ms))
    if first_step is not None and (old.first_at is None or first_at < old.first_at):
        first_ms = pace.first_ms if first_step == old.first_step else progress.first_ms
        pace = replace(pace, first_step=first_step, first_at=first_at, first_ms=first_ms)
    return replace(evidence, pace=pace)


def add_loaded(evidence: Evidence, now_ms: int, loaded: wire.Loaded) -> Evidence:
    """Keep the rank that was ready last: each rank's first word, and none after the member's first step.

    What is loaded later, or again, is no part of the restart.
    """
    load, pace = evidence.load, evidence.pace
    if pace is not None and pace.attempt == loaded.attempt and pace.first_step is not None:
        return evidence
    at, said = now_ms - max(0, loaded.age_ms), replace(loaded, age_ms=0)
    if load is None or load.loaded.attempt != loaded.attempt:
        return replace(evidence, load=Load(at, said, (loaded.rank,)))
    if loaded.rank in load.ranks or len(load.ranks) == LOADS:
        return evidence
    ranks = (*load.ranks, loaded.rank)
    return replace(evidence, load=Load(at, said, ranks) if at >= load.at else replace(load, ranks=ranks))


def add_request(evidence: Evidence, now_ms: int, request: wire.Request) -> Evidence:
    """Keep the newest request for a restart."""
    at = now_ms - max(0, request.age_ms)
    asked = Asked(at, replace(request, age_ms=0, reason=request.reason[:REASON]))
    if evidence.asked is not None and evidence.asked.at > at:
        return evidence
    return replace(evidence, asked=asked)


def ends(evidence: Evidence, now_ms: int) -> tuple[wire.End, ...]:
    """The ends with their ages at ``now_ms``."""
    return tuple(replace(one.end, age_ms=max(0, now_ms - one.at)) for one in evidence.ends)


def progress(evidence: Evidence, now_ms: int) -> wire.Progress | None:
    """The progress with its ages at ``now_ms``."""
    pace = evidence.pace
    if pace is None:
        return None
    first_age = None if pace.first_at is None else max(0, now_ms - pace.first_at)
    age = max(0, now_ms - pace.at)
    return wire.Progress(pace.attempt, pace.step, age, pace.phase, pace.first_step, first_age, pace.first_ms)


def loaded(evidence: Evidence, now_ms: int) -> wire.Loaded | None:
    """The loading of the restore point with its age at ``now_ms``."""
    load = evidence.load
    return None if load is None else replace(load.loaded, age_ms=max(0, now_ms - load.at))


def request(evidence: Evidence, now_ms: int) -> wire.Request | None:
    """The request with its age at ``now_ms``."""
    asked = evidence.asked
    return None if asked is None else replace(asked.request, age_ms=max(0, now_ms - asked.at))


def _place(checkpoint: wire.Checkpoint) -> tuple[str, int, int]:
    return checkpoint.tier, checkpoint.step, checkpoint.rank


def _longest(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _bounded(checkpoints: tuple[wire.Checkpoint, ...]) -> tuple[wire.Checkpoint, ...]:
    kept: list[wire.Checkpoint] = []
    of_rank: dict[tuple[str, int], int] = {}
    size = 0
    for one in sorted(checkpoints, key=lambda one: (-one.step, one.tier, one.rank)):
        key = one.tier, one.rank
        of_rank[key] = of_rank.get(key, 0) + 1
        size += 80 + len(json.dumps(one.path)) + len(json.dumps(one.tier))
        if size > CHECKPOINT_BYTES or len(kept) == CHECKPOINTS:
            break
        if of_rank[key] <= CHECKPOINTS_PER_RANK:
            kept.append(one)
    return tuple(kept)
