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

from gangsidecar import wire


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


def follows(run: wire.Run | None, step: int) -> bool:
    """Whether it is the first step after the restore point, as far as that is known."""
    start = 0 if run is None or run.restore is None else run.restore.step
    return run is None or not run.checkpointed or step in {start, start + 1}


def restore_ignored(run: wire.Run | None, before: FirstSteps, after: FirstSteps, rank: int) -> str:
    """What is wrong with the first step of a rank, when it is found; "" if nothing is, or if that is unknown."""
    if run is None or not run.checkpointed:
        return ""
    start = 0 if run.restore is None else run.restore.step
    old, new = before.ranks.get(rank) if before.attempt == after.attempt else None, after.ranks[rank]
    if not strays(new, start) or (old is not None and strays(old, start)):
        return ""
    source = "there is no restore point" if run.restore is None else f"the restore point is step {start}"
    return f"{source}, but the first step reported is {new.first}: the framework has loaded something else"
