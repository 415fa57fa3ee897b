"""Lineage: which checkpoints belong to the gang's history.

    exists(s, a) = s <= R for every attempt b > a that started from step R

A restart from step R undoes what came after R: what an earlier attempt saved beyond it no longer exists, in no tier and
in no report, and must not be mixed with what a later attempt saves as the same step. So all parts that exist of one
step are of one history. Only entries that can still matter are kept: attempts and steps both grow. If there are too
many, the two oldest become one that denies more, never less.
"""

from __future__ import annotations

import math
from typing import Final

from gangctl.api.checkpoint_status import LineageEntry

KEPT: Final = 32
"""So many restarts, each from a newer step than the one before, are told apart."""
_BEGINNING: Final = -1

Lineage = tuple[LineageEntry, ...]


def exists(lineage: Lineage, step: int, attempt: int) -> bool:
    """Whether a checkpoint of ``step`` that ``attempt`` has written is part of the history."""
    return step <= last_step(lineage, attempt)


def last_step(lineage: Lineage, attempt: int) -> float:
    """The last step of ``attempt`` that no later attempt has undone; infinite if all of them stand."""
    return min((_depth(entry.step) for entry in lineage if entry.attempt > attempt), default=math.inf)


def extended(lineage: Lineage, attempt: int, step: int | None) -> Lineage:
    """The lineage after ``attempt`` has started from ``step`` (None: from the beginning)."""
    kept = [entry for entry in lineage if _depth(entry.step) < _depth(step)]
    kept.append(LineageEntry(attempt=attempt, step=step))
    while len(kept) > KEPT:
        first, second = kept[:2]
        kept[:2] = [LineageEntry(attempt=second.attempt, step=first.step)]
    return tuple(kept)


def began_at(lineage: Lineage) -> int:
    """The newest attempt that started from the beginning; 0 if that is not known any more."""
    return max((entry.attempt for entry in lineage if entry.step is None), default=0)


def _depth(step: int | None) -> int:
    return _BEGINNING if step is None else step
