"""How long the steps of a member's slowest rank take, without its waiting for others. Pure.

    own(rank) = the median of what a rank reported of its last WINDOW steps in the attempt
    slowest   = the rank with the highest own(rank), of those that have filled their window

A garbage collection, a checkpoint or an evaluation is longer than a step, and so is the first step of an attempt: none
of them may count, so a median is taken. A rank must not be judged before its own window is full.
"""

from __future__ import annotations

from collections import deque

WINDOW = 50
"""Reports of one rank. A rank that becomes slower shows it when more than half of them are slow."""
_MIDDLE = (WINDOW - 1) // 2
"""Of a sorted window: the lower median. The module statistics would cost each sidecar a megabyte."""


class StepTimes:
    """What the ranks of a member reported in the newest attempt."""

    def __init__(self) -> None:
        self._attempt = 0
        self._ranks: dict[int, deque[int]] = {}

    def add(self, attempt: int, rank: int, milliseconds: int) -> None:
        """Take one step of a rank. Another attempt begins anew."""
        if attempt != self._attempt:
            self._attempt, self._ranks = attempt, {}
        self._ranks.setdefault(rank, deque(maxlen=WINDOW)).append(milliseconds)

    def slowest(self, attempt: int) -> tuple[int, int] | None:
        """Milliseconds a step of the slowest rank in the attempt, and this rank; None while no window is full."""
        if attempt != self._attempt:
            return None
        full = [(sorted(times)[_MIDDLE], rank) for rank, times in self._ranks.items() if len(times) == WINDOW]
        return max(full, default=None)
