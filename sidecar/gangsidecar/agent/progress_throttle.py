"""How often progress goes to the supervisor: the first step of an attempt at once, then at most once a second.

Calls in between are folded into one message: the highest step, the newest phase, the age of the newest call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.agent.rank_calls import Call, RankCalls
from gangsidecar.agent.step_times import StepTimes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

INTERVAL = 1.0
"""Seconds between two messages."""


@dataclass(frozen=True)
class _Progress:
    attempt: int
    step: int
    phase: str
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
        """Take one call; it goes out now or with the next message.

        Args:
            attempt: the attempt of the caller.
            phase: what the rank is doing.
            step: the step that it is at.
            rank: the rank.
            pid: its process, if it says that.
            first_ms: how long this step took, in milliseconds, if it is the rank's first; the longest of all counts.
            every: the widest gap between two steps that a rank has reported; None while it is unknown.
        """
        now, old = self._loop.time(), self._progress
        self._calls.add(attempt, Call(rank, step, phase, now, pid))
        if old is None or old.attempt != attempt:
            old = _Progress(attempt, step, phase, now)
            self._sent_at = None
        first = phase == "Step" and old.first_step is None
        newest = replace(old, step=max(old.step, step), phase=phase, at=now, every=every)
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
            phase=newest.phase,
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
