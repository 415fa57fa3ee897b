"""The newest call of each rank of a member, and which rank is furthest behind the others. Pure.

    behind = the rank with the lowest step, if another rank has reached a higher one; of equal ones the longest silent

Whether that is too far, or for too long, is not decided here: ranks that go together are a step apart for a moment.
Nothing is known of a rank that has not called in this attempt.
"""

from __future__ import annotations

from typing import NamedTuple


class Call(NamedTuple):
    """What a rank has reported."""

    rank: int
    step: int
    phase: str
    at: float
    """In seconds, on the clock of the event loop."""
    pid: int | None = None


class RankCalls:
    """The ranks that have called in the newest attempt."""

    def __init__(self) -> None:
        self._attempt = 0
        self._ranks: dict[int, Call] = {}

    def add(self, attempt: int, call: Call) -> None:
        """Take one call. Another attempt begins anew."""
        if attempt != self._attempt:
            self._attempt, self._ranks = attempt, {}
        self._ranks[call.rank] = call

    def behind(self, attempt: int) -> Call | None:
        """The rank that is furthest behind in the attempt; None if none is."""
        if attempt != self._attempt or not self._ranks:
            return None
        last = min(self._ranks.values(), key=lambda one: (one.step, one.at))
        return last if any(one.step > last.step for one in self._ranks.values()) else None
