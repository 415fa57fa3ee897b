"""Where moments are drawn, and which of them an axis names. Times are seconds since the epoch, in UTC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_STEPS: Final = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(_MINUTE * many for many in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * many for many in (1, 2, 3, 6, 12)),
    *(_DAY * many for many in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)),
)
"""Distances of ticks, in seconds."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``begin`` at 0 to ``end`` at ``width``; a timeline that took no time has everything at 0."""

    begin: float
    end: float
    width: float

    def at(self, time: float) -> float:
        """Where a moment is, between 0 and the width."""
        whole = self.end - self.begin
        share = (time - self.begin) / whole if whole > 0 else 0.0
        return self.width * min(1.0, max(0.0, share))


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment that an axis names."""

    time: float
    label: str


def ticks(begin: float, end: float, most: int) -> list[Tick]:
    """At most ``most`` round moments between the two; a new day has its date."""
    step = next((step for step in _STEPS if (end - begin) / step < most), _STEPS[-1])
    first = math.ceil(begin / step)
    found: list[Tick] = []
    day = _moment(begin).date()
    for at in range(min(most, math.floor(end / step) - first + 1)):
        time = (first + at) * step
        when = _moment(time)
        found.append(Tick(time, _label(when, step, dated=when.date() != day)))
        day = when.date()
    return found


def _label(when: datetime, step: float, *, dated: bool) -> str:
    if step >= _DAY:
        return f"{when:%Y-%m-%d}"
    if dated:
        return f"{when:%m-%d %H:%M}"
    if step >= _MINUTE:
        return f"{when:%H:%M}"
    return f"{when:%H:%M:%S}" if step >= 1 else f"{when:%H:%M:%S.%f}"[:-4]


def _moment(time: float) -> datetime:
    return datetime.fromtimestamp(round(time, 3), UTC)
