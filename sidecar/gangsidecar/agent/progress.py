"""The progress of a member's ranks, folded into messages for the supervisor.

The first step of an attempt goes out at once, then at most one message a second. Calls in between are folded: the
highest step, the phase, the age of the newest call.

**In which phase is the member?** In that of the newest call; but a rank that saves or evaluates alone is waited for by
the others, which may have called later::

    phase     = that of the newest call of those that are waited for, if there are any, else that of the newest of all
    waited(r) = r said Checkpoint or Evaluation last, has reported two steps, and none has left it behind by more than
                the widest gap

**Does the first step that a rank reports follow the restore point?** A framework may report every step or every tenth,
so how far its first report may be from the restore point is known only by its second one::

    every(rank)    = the widest gap between two of its reports in a row; unknown before the second
    strays(rank)   <=>   first < start,  or  every is known and first > start + max(1, every)
    start          = the step of the restore point; 0 if there is none

A framework that reports seldom must not be blamed for it.

**How long do the steps of the slowest rank take, without its waiting for others?** ::

    own(rank) = the median of what a rank reported of its last WINDOW steps in the attempt
    slowest   = the rank with the highest own(rank), of those that have filled their window

A garbage collection, a checkpoint or an evaluation is longer than a step, and so is the first step of an attempt: none
of them may count, so a median is taken. A rank must not be judged before its own window is full.

**Which rank is furthest behind the others?** ::

    behind    = the rank that counts with the lowest step, if another has reached a higher one; of equal ones the
                longest silent
    counts(r) = r has reported two steps, or r is no further behind than the widest gap of the ranks that have

Whether that is too far, or for too long, isn't decided here: ranks that go together are a step apart for a moment.
Nothing is known of a rank that has not called in this attempt. One that has called once, or that calls only when it
saves, must not count as behind: it may leave the reports of steps to another rank.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from gangsidecar import wire
from gangsidecar.wire.frozen import frozen

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

WINDOW = 50
"""Reports of one rank. A rank that becomes slower shows it when more than half of them are slow."""
_MIDDLE = (WINDOW - 1) // 2
"""The lower median of a sorted window. The module statistics would cost each sidecar a megabyte."""
_ALONE = {"Checkpoint", "Evaluation"}
"""Phases that one rank may be in while the others wait for it."""
INTERVAL = 1.0
"""Seconds between two messages."""


@frozen
class Reported:
    """The steps of one rank."""

    first: int
    newest: int
    every: int = 0
    """The widest gap between two reports; 0 = unknown."""


@frozen
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
    ranks = steps.ranks if steps.attempt == attempt else {}
    old = ranks.get(rank)
    if old is None:
        return FirstSteps(attempt, {**ranks, rank: Reported(step, step)})
    gap = max(old.every, step - old.newest)
    return FirstSteps(attempt, {**ranks, rank: replace(old, newest=max(old.newest, step), every=gap)})


def strays(one: Reported, start: int) -> bool:
    """Return whether the rank can't have begun at the restore point, as far as it has reported."""
    return one.first < start or (one.every > 0 and one.first > start + one.every)


def follows(run: wire.Run | None, step: int) -> bool:
    """Return whether it is the first step after the restore point, as far as that is known."""
    start = 0 if run is None or run.restore is None else run.restore.step
    return run is None or not run.checkpointed or step in {start, start + 1}


def restore_ignored(run: wire.Run | None, before: FirstSteps, after: FirstSteps, rank: int) -> str:
    """Return what is wrong with the first step of a rank, once it is found; "" if nothing is, or if it is unknown."""
    if run is None or not run.checkpointed:
        return ""
    start = 0 if run.restore is None else run.restore.step
    old, new = before.ranks.get(rank) if before.attempt == after.attempt else None, after.ranks[rank]
    if not strays(new, start) or (old is not None and strays(old, start)):
        return ""
    source = "there is no restore point" if run.restore is None else f"the restore point is step {start}"
    return f"{source}, but the first step reported is {new.first}: the framework has loaded something else"


class StepTimes:
    """The step times that the ranks of a member reported in the newest attempt."""

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


class Call(NamedTuple):
    """A report of a rank."""

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

    def phase(self, every: int | None) -> str:
        """Return the phase of the member. ``every``: as for :meth:`behind`."""
        calls = self._ranks.values()
        near = max(one.step for one in calls) - (every or 0)
        waited = [one for one in calls if one.phase in _ALONE and one.rank in self._paced and one.step >= near]
        return max(waited or calls, key=lambda one: one.at).phase

    def behind(self, attempt: int, every: int | None = None) -> Call | None:
        """Return the rank that is furthest behind in the attempt; None if none is.

        ``every``: the widest gap between two steps that a rank has reported; None while it is unknown.
        """
        if attempt != self._attempt or not self._ranks:
            return None
        reached = max(one.step for one in self._ranks.values())
        near = 0 if every is None else reached - every
        found = [one for one in self._ranks.values() if one.rank in self._paced or one.step >= near]
        last = min(found, key=lambda one: (one.step, one.at))
        return last if last.step < reached else None


@frozen
class _Progress:
    attempt: int
    step: int
    at: float
    first_step: int | None = None
    first_at: float = 0.0
    first_ms: int | None = None
    every: int | None = None


class ProgressThrottle:
    """Folds the calls of all ranks of this member. ``send`` passes one message on; False = nothing takes it now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[wire.Progress], bool]) -> None:
        self._loop = loop
        self._send = send
        self._progress: _Progress | None = None
        self._sent_at: float | None = None
        self._unsent = False
        self._times = StepTimes()
        self._calls = RankCalls()
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self,
        attempt: int,
        phase: str,
        step: int,
        first_ms: int | None = None,
        every: int | None = None,
        *,
        rank: int = 0,
        pid: int | None = None,
    ) -> None:
        """Take one call of a rank; it goes out now or with the next message.

        ``first_ms``: how long this step took, in milliseconds, if it is the rank's first; the longest of all counts.
        ``every``: the widest gap between two steps that a rank has reported; None while it is unknown.
        """
        now, old = self._loop.time(), self._progress
        self._calls.add(attempt, Call(rank, step, phase, now, pid))
        if old is None or old.attempt != attempt:
            old = _Progress(attempt, step, now)
            self._sent_at = None
        first = phase == "Step" and old.first_step is None
        newest = replace(old, step=max(old.step, step), at=now, every=every)
        if first:
            newest = replace(newest, first_step=step, first_at=now)
        longer = first_ms is not None and step == newest.first_step and first_ms > (newest.first_ms or -1)
        self._progress = replace(newest, first_ms=first_ms) if longer else newest
        self._unsent = True
        if first or longer or self._sent_at is None or now - self._sent_at >= INTERVAL:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._sent_at + INTERVAL, self.flush)

    def took(self, attempt: int, rank: int, milliseconds: int) -> None:
        """Take how long a step of a rank took, without waiting for others; it goes out with the next message."""
        self._times.add(attempt, rank, milliseconds)

    def flush(self) -> None:
        """Pass on what is waiting. What nothing takes waits for the next call."""
        self.close()
        newest, now = self._progress, self._loop.time()
        if newest is None or not self._unsent:
            return
        last = self._calls.behind(newest.attempt, newest.every)
        own_ms, own_rank = self._times.slowest(newest.attempt) or (None, None)
        progress = wire.Progress(
            attempt=newest.attempt,
            step=newest.step,
            age_ms=_ms(now - newest.at),
            phase=self._calls.phase(newest.every),
            first_step=newest.first_step,
            first_age_ms=None if newest.first_step is None else _ms(now - newest.first_at),
            first_ms=newest.first_ms,
            every=newest.every,
            own_ms=own_ms,
            own_rank=own_rank,
            behind=last and wire.RankBehind(last.rank, last.step, _ms(now - last.at), last.phase, last.pid),
        )
        if self._send(progress):
            self._unsent = False
            self._sent_at = now

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
