"""Bars against time: strips without gaps, marks, and the axis on which they are drawn.

All times are seconds since the epoch, on the controllers' clocks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from gangctl.api.model import rfc3339
from gangctl.story.document import document
from gangctl.story.phases import LOOKS, Activity
from gangctl.story.words import took

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
class Bar:
    """Something that took time. ``begin`` <= ``end``."""

    kind: Activity
    begin: float
    end: float
    """The time of the look, if it goes on."""
    attempt: int = 0
    """The attempt that ran or was prepared; 0 if that is unknown."""
    goes_on: bool = False
    """True if it was not over at the time of the look."""
    share: float = 1.0
    """The share of the gang's members that trained; below 1 it is drawn thinner."""

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return self.end - self.begin

    @property
    def text(self) -> str:
        attempt = f"attempt {self.attempt}: " if self.attempt else ""
        share = f" with {self.share:.0%} of the members" if self.share < 1 else ""
        return f"{attempt}{LOOKS[self.kind].words}{share}, {took(self.seconds)}{' so far' if self.goes_on else ''}"


@document.register
def _bar(bar: Bar) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": str(bar.kind), "begin": rfc3339(bar.begin)}
    if not bar.goes_on:
        made |= {"end": rfc3339(bar.end), "milliseconds": round(bar.seconds * 1000)}
    made |= {"attempt": bar.attempt} if bar.attempt else {}
    return made | ({"share": round(bar.share, 3)} if bar.share < 1 else {})


class MarkKind(StrEnum):
    """The event that a mark shows."""

    FAULT = "fault"
    """A member failed, or a restart began whose details the status no longer has."""
    RESTORE = "restored"
    """Every rank restored a checkpoint, or the attempt started from the beginning."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment."""

    kind: MarkKind
    time: float
    label: str
    """Short, such as a step; may be empty."""
    text: str
    """In words."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a drawing: the gang, one member, or all other members."""

    name: str
    members: int
    """How many members it shows."""
    bars: tuple[Bar, ...]
    """One after the other, without gaps, from the beginning of the story to its end; all take time."""
    marks: tuple[Mark, ...]
    """By time."""
    text: str = ""
    """Why the member has a row."""


Strip = tuple[Bar, ...]
"""Bars one after the other, without gaps, onto which later knowledge is painted."""


def painted(strip: Strip, over: Bar) -> Strip:
    """Paint a bar onto the strip, cut to the strip's ends; a bar that takes no time leaves the strip as it is."""
    begin, end = max(over.begin, strip[0].begin), min(over.end, strip[-1].end)
    if begin >= end:
        return strip
    before = [replace(bar, end=min(bar.end, begin), goes_on=False) for bar in strip if bar.begin < begin]
    after = [replace(bar, begin=max(bar.begin, end)) for bar in strip if bar.end > end]
    return (*before, replace(over, begin=begin, end=end), *after)


def merged(strip: Strip) -> Strip:
    """Join neighbours that show the same."""
    found: list[Bar] = []
    for bar in strip:
        last = found[-1] if found else None
        if last is not None and (last.kind, last.attempt) == (bar.kind, bar.attempt):
            found[-1] = replace(last, end=bar.end, goes_on=bar.goes_on)
        else:
            found.append(bar)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``begin`` at 0 to ``end`` at ``width``; what took no time has everything at 0."""

    begin: float
    end: float
    width: float

    def at(self, time: float) -> float:
        """Return the place of a moment, between 0 and the width."""
        whole = self.end - self.begin
        share = (time - self.begin) / whole if whole > 0 else 0.0
        return self.width * min(1.0, max(0.0, share))


def ticks(begin: float, end: float, most: int) -> Iterator[tuple[float, str]]:
    """At most ``most`` round moments between the two, with their labels; a new day has its date."""
    step = next((step for step in _STEPS if (end - begin) / step < most), _STEPS[-1])
    first = math.ceil(begin / step)
    day = _moment(begin).date()
    for at in range(min(most, math.floor(end / step) - first + 1)):
        time = (first + at) * step
        when = _moment(time)
        yield time, _label(when, step, dated=when.date() != day)
        day = when.date()


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
