"""The newest call of each rank of a member, and which rank is furthest behind the others. Pure.

    behind    = the rank that counts with the lowest step, if another has reached a higher one; of equal ones the
                longest silent
    counts(r) = r has reported two steps, or r is no further behind than the widest gap of the ranks that have

Whether that is too far, or for too long, is not decided here: ranks that go together are a step apart for a moment.
Nothing is known of a rank that has not called in this attempt. One that has called once, or that calls only when it
saves, must not count as behind: it may leave the reports of steps to another rank.
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
        self._first: dict[int, int] = {}
        self._paced: set[int] = set()

    def add(self, attempt: int, call: Call) -> None:
        """Take one call. Another attempt begins anew."""
        if attempt != self._attempt:
            self._attempt, self._ranks, self._first, self._paced = attempt, {}, {}, set()
        self._ranks[call.rank] = call
        if call.phase == "Step" and call.step > self._first.setdefault(call.rank, call.step):
            self._paced.add(call.rank)

    def behind(self, attempt: int, every: int | None = None) -> Call | None:
        """The rank that is furthest behind in the attempt; None if none is.

        Args:
            attempt: of which that is asked.
            every: the widest gap between two steps that a rank has reported; None while it is unknown.
        """
        if attempt != self._attempt or not self._ranks:
            return None
        reached = max(one.step for one in self._ranks.values())
        near = 0 if every is None else reached - every
        found = [one for one in self._ranks.values() if one.rank in self._paced or one.step >= near]
        last = min(found, key=lambda one: (one.step, one.at))
        return last if last.step < reached else None
