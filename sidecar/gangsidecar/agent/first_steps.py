"""Whether the first step that a rank reports follows the restore point. Pure.

The rule: a framework may report every step or every tenth, so how far its first report may be from the restore point is
known only by its second one::

    every(rank)    = the widest gap between two of its reports in a row; unknown before the second
    strays(rank)   <=>   first < start,  or  every is known and first > start + max(1, every)
    start          = the step of the restore point; 0 if there is none

A framework that reports seldom must not be blamed for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Reported:
    """The steps of one rank."""

    first: int
    newest: int
    every: int = 0
    """The widest gap between two reports; 0 = unknown."""


@dataclass(frozen=True)
class FirstSteps:
    """The ranks of an attempt that have reported a step."""

    attempt: int = 0
    ranks: dict[int, Reported] = field(default_factory=dict)

    @property
    def every(self) -> int | None:
        """The widest gap of all ranks; None while it is unknown."""
        return max((one.every for one in self.ranks.values()), default=0) or None


def reported(steps: FirstSteps, attempt: int, rank: int, step: int) -> FirstSteps:
    """The same after one more report. Another attempt begins anew."""
    known = steps.ranks if steps.attempt == attempt else {}
    old = known.get(rank)
    if old is None:
        return FirstSteps(attempt, {**known, rank: Reported(step, step)})
    gap = max(old.every, step - old.newest)
    return FirstSteps(attempt, {**known, rank: replace(old, newest=max(old.newest, step), every=gap)})


def strays(one: Reported, start: int) -> bool:
    """Whether the rank can't have begun at the restore point, as far as it has reported."""
    return one.first < start or (one.every > 0 and one.first > start + one.every)
