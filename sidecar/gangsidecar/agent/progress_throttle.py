"""How often progress goes to the supervisor: the first step of an attempt at once, then at most once a second.

What comes in between is folded into one: the highest step, the newest phase, the age of the newest call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gangsidecar import wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

INTERVAL = 1.0
"""Seconds between two messages."""


@dataclass(frozen=True)
class _Pace:
    attempt: int
    step: int
    phase: str
    at: float
    first_step: int | None = None
    first_at: float = 0.0
    first_ms: int | None = None


class Pacing:
    """Folds the calls of all ranks of this member. ``hand`` gives one message over; False = nobody takes it now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hand: Callable[[wire.Progress], bool]) -> None:
        self._loop = loop
        self._hand = hand
        self._pace: _Pace | None = None
        self._handed_at: float | None = None
        self._unsent = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, attempt: int, phase: str, step: int, first_ms: int | None = None) -> None:
        """Take one call; it goes out now, or with the next message.

        Args:
            attempt: the caller's.
            phase: what it is doing.
            step: where it is.
            first_ms: how long this step took, if it is the caller's first. The longest of all ranks counts.
        """
        now, old = self._loop.time(), self._pace
        if old is None or old.attempt != attempt:
            old = _Pace(attempt, step, phase, now)
            self._handed_at = None
        first = phase == "Step" and old.first_step is None
        pace = replace(old, step=max(old.step, step), phase=phase, at=now)
        if first:
            pace = replace(pace, first_step=step, first_at=now)
        longer = first_ms is not None and step == pace.first_step and first_ms > (pace.first_ms or -1)
        self._pace = replace(pace, first_ms=first_ms) if longer else pace
        self._unsent = True
        if first or longer or self._handed_at is None or now - self._handed_at >= INTERVAL:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._handed_at + INTERVAL, self.flush)

    def flush(self) -> None:
        """Give over what is waiting, if somebody takes it; else it waits for the next call of this."""
        self.close()
        pace, now = self._pace, self._loop.time()
        if pace is None or not self._unsent:
            return
        progress = wire.Progress(
            attempt=pace.attempt,
            step=pace.step,
            age_ms=_ms(now - pace.at),
            phase=pace.phase,
            first_step=pace.first_step,
            first_age_ms=None if pace.first_step is None else _ms(now - pace.first_at),
            first_ms=pace.first_ms,
        )
        if self._hand(progress):
            self._unsent = False
            self._handed_at = now

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
