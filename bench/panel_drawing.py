"""Draws panels of the dashboard as an SVG, about as Grafana shows them. Pure.

The SVG loads nothing, has no script, and follows the viewer's light or dark scheme.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from e2e.dashboard import COLUMNS, Panel, Range, Series
from gangctl.story.svg import as_text

Answers = Mapping[Panel, Sequence[Series]]
"""What the queries of each panel found."""
Points = Sequence[tuple[float, float]]
"""Times and values."""

WIDTH: Final = 1248
_ACROSS: Final = WIDTH / COLUMNS
_DOWN: Final = 32
_GAP: Final = 8
_EDGE: Final = 10
"""Between the edge of a panel and what is in it."""
_TITLE: Final = 26
_AXIS: Final = 56
"""Width of the labels of the vertical axis."""
_TIMES: Final = 18
"""Height of the labels of the horizontal axis."""
_LEGEND: Final = 16
"""Height of a line of the legend."""
_LEGEND_LINES: Final = 5
_LETTER: Final = 6.6
_TICKS: Final = 4
_COLOURS: Final = (
    *("#56a64b", "#e0b400", "#3274d9", "#ff780a", "#19b5b5"),
    *("#a352cc", "#c2703d", "#8892a0", "#7c8a1f", "#e02f44"),
)
_UNITS: Final = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
_MIB: Final = 2.0**20
_LEVEL: Final = 0.05
"""Two heights that differ by fewer pixels are one."""
_STYLE: Final = f"""\
.d{{--page:#f4f5f5;--panel:#fff;--edge:#e1e4e8;--text:#24292e;--faint:#6e7681;--grid:#e9ebee}}
@media (prefers-color-scheme:dark){{.d{{--page:#111217;--panel:#181b1f;--edge:#2c3036;--text:#d8d9da;--faint:#9199a1;\
--grid:#292d33}}}}
.d .page{{fill:var(--page)}}.d .panel{{fill:var(--panel);stroke:var(--edge)}}.d .grid{{stroke:var(--grid)}}
.d text{{font:12px system-ui,sans-serif;fill:var(--text)}}.d .faint{{fill:var(--faint);font-size:11px}}
.d .big{{font-size:26px;font-weight:600}}.d .head{{font-weight:600}}.d .row{{font-size:15px;font-weight:600}}
.d .end{{text-anchor:end}}.d .mid{{text-anchor:middle}}
.d path{{fill:none;stroke-width:1.5;stroke-linejoin:round}}.d .area{{stroke:none;fill-opacity:.35}}
{"".join(f".d .s{at}{{stroke:{it}}}.d .f{at}{{fill:{it}}}" for at, it in enumerate(_COLOURS))}"""


def drawn(answers: Answers, shown: Range, title: str, quiet: Mapping[str, str]) -> str:
    """The panels as one SVG, where the dashboard has them.

    Args:
        answers: What is drawn.
        shown: The time that it shows.
        title: Of the picture, for those who can't see it.
        quiet: Title of a panel -> why it has no data when all is well.
    """
    top = min(panel.top for panel in answers)
    height = _DOWN * (max(panel.top + panel.height for panel in answers) - top) + _GAP
    parts = [f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    for panel, found in answers.items():
        x, y = panel.left * _ACROSS + _GAP / 2, (panel.top - top) * _DOWN + _GAP / 2
        inside = _Drawing(panel.width * _ACROSS - _GAP, panel.height * _DOWN - _GAP, shown)
        inside.panel(panel, found, quiet.get(panel.title, ""))
        parts.append(f'<g transform="translate({x:.0f} {y:.0f})">\n' + "\n".join(inside.parts) + "\n</g>")
    said = " ".join(f"{panel.title}: {_said(panel, found)}." for panel, found in answers.items() if found)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="d" role="img" viewBox="0 0 {WIDTH} {height}">\n'
        f"<title>{as_text(title)}</title>\n<desc>{as_text(said)}</desc>\n<style>\n{_STYLE}\n</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _said(panel: Panel, found: Sequence[Series]) -> str:
    return ", ".join(f"{one.name} {valued(_last(one), panel)}" for one in found)


class _Drawing:
    """What is drawn of a panel."""

    def __init__(self, width: float, height: float, shown: Range) -> None:
        self.parts: list[str] = []
        self._width, self._height, self._shown = width, height, shown

    def panel(self, panel: Panel, found: Sequence[Series], reason: str) -> None:
        """The frame, the title, and what is in it."""
        if panel.kind == "row":
            self._text(2, self._height - 6, panel.title, "row")
            return
        self.parts.append(f'<rect class="panel" width="{self._width:.0f}" height="{self._height:.0f}" rx="3"/>')
        self._text(_EDGE, 18, panel.title, "head")
        if not found:
            self._text(self._width / 2, self._height / 2 + 6, "No data", "faint mid")
            self._text(self._width / 2, self._height / 2 + 22, reason, "faint mid")
        elif panel.kind == "stat":
            self._stat(panel, found)
        else:
            self._lines(panel, found)

    def _stat(self, panel: Panel, found: Sequence[Series]) -> None:
        """The last value of each series, and below it how it came to be."""
        each = (self._width - 2 * _EDGE) / len(found)
        most = max(max(value for _, value in one.points) for one in found) or 1.0
        for at, one in enumerate(found):
            x = _EDGE + at * each
            name = one.name if len(found) > 1 else ""
            self._text(x, _TITLE + 34, valued(_last(one), panel), f"big f{_colour(at)}")
            self._text(x, _TITLE + 52, name, "faint")
            scale = _Scale(self._shown, x, each - 6, self._height - 6, self._height - 6 - _TITLE - 62, most)
            self._area(scale, one.points, {}, at)
            self._curve(scale, one.points, at)

    def _lines(self, panel: Panel, found: Sequence[Series]) -> None:
        """Curves, the axes, and a legend with the last and the largest value of each series."""
        lines = min(len(found), _LEGEND_LINES)
        bottom = self._height - (lines + 1) * _LEGEND - _TIMES - 8
        stacked = _stacked(found) if panel.stacked else [one.points for one in found]
        ground: dict[float, float] = {}
        base = _MIB if panel.unit == "bytes" else 1.0
        most = panel.most or base * _round(max(value for points in stacked for _, value in points) / base)
        scale = _Scale(self._shown, _AXIS, self._width - _AXIS - _EDGE, bottom, bottom - _TITLE - 4, most)
        ticks = _TICKS if panel.decimals is None else next((many for many in (4, 5, 2, 1) if most % many == 0), 1)
        for tick in range(ticks + 1):
            value = most * tick / ticks
            y = scale.y(value)
            self.parts.append(
                f'<line class="grid" x1="{_AXIS}" x2="{self._width - _EDGE:.0f}" y1="{y:.0f}" y2="{y:.0f}"/>'
            )
            self._text(_AXIS - 6, y + 4, valued(value, panel), "faint end")
        for at_time in _times(self._shown, scale.width):
            clock = time.strftime("%H:%M", time.gmtime(at_time))
            self._text(scale.x(at_time), bottom + 14, clock, "faint mid")
        for at, points in enumerate(stacked):
            if panel.stacked:
                self._area(scale, points, ground, at)
                ground |= dict(points)
            self._curve(scale, points, at)
        self._legend(panel, found, bottom + _TIMES + 8)

    def _curve(self, scale: _Scale, points: Points, at: int) -> None:
        for run in _runs(points, self._shown.step):
            self.parts.append(f'<path class="s{_colour(at)}" d="M{scale.line(run)}"/>')

    def _area(self, scale: _Scale, points: Points, ground: Mapping[float, float], at: int) -> None:
        """What is between a curve and the one below it."""
        for run in _runs(points, self._shown.step):
            below = [(when, ground.get(when, 0.0)) for when, _ in reversed(run)]
            if any(value > low for (_, value), (_, low) in zip(run, reversed(below), strict=True)):
                path = f"M{scale.line(run)}L{scale.line(below)}z"
                self.parts.append(f'<path class="area f{_colour(at)}" d="{path}"/>')

    def _legend(self, panel: Panel, found: Sequence[Series], y: float) -> None:
        """The series with the largest values; how many more there are."""
        largest = [max(value for _, value in one.points) for one in found]
        order = sorted(range(len(found)), key=lambda at: -largest[at])
        told = order if len(order) <= _LEGEND_LINES else order[: _LEGEND_LINES - 1]
        right = self._width - _EDGE
        self._text(_EDGE + 16, y + 11, "Name", "faint")
        self._text(right - 58, y + 11, "Last", "faint end")
        self._text(right, y + 11, "Max", "faint end")
        room = int((right - 58 - 56 - _EDGE - 16) / _LETTER)
        for line, at in enumerate(told, start=1):
            below = y + line * _LEGEND + 11
            self.parts.append(
                f'<rect class="f{_colour(at)}" x="{_EDGE}" y="{below - 6:.0f}" width="11" height="3" rx="1"/>'
            )
            name = found[at].name
            self._text(_EDGE + 16, below, name if len(name) <= room else f"{name[: room - 1]}…", "")
            self._text(right - 58, below, valued(_last(found[at]), panel), "end")
            self._text(right, below, valued(largest[at], panel), "end")
        if len(told) < len(order):
            below = y + (len(told) + 1) * _LEGEND + 11
            rest = [largest[at] for at in order[len(told) :]]
            self._text(_EDGE + 16, below, f"{len(rest)} more, at most {valued(max(rest), panel)}", "faint")

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        if text:
            named = f' class="{kind}"' if kind else ""
            self.parts.append(f'<text{named} x="{x:.0f}" y="{y:.0f}">{as_text(text)}</text>')


class _Scale:
    """From times and values to pixels."""

    def __init__(self, shown: Range, left: float, width: float, bottom: float, height: float, most: float) -> None:
        self.width = width
        self._shown, self._left, self._bottom, self._height, self._most = shown, left, bottom, height, most

    def x(self, when: float) -> float:
        """Pixels from the left."""
        return self._left + self.width * (when - self._shown.begin) / (self._shown.end - self._shown.begin)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return self._bottom - self._height * min(1.0, max(0.0, value / self._most))

    def line(self, points: Points) -> str:
        """The corners of a curve, for a path."""
        return "L".join(f"{x:.1f},{y:.1f}" for x, y in _corners([(self.x(when), self.y(at)) for when, at in points]))


def valued(value: float, panel: Panel) -> str:
    """A value as Grafana shows it in this panel."""
    match panel.unit:
        case "percentunit":
            return f"{100 * value:.3g}%"
        case "s":
            return _seconds(value)
        case "bytes":
            return f"{value / _MIB:.3g} MiB"
        case _ if panel.decimals is not None:
            return f"{value:.{panel.decimals}f}"
        case _:
            return f"{value:.3g}"


def _seconds(value: float) -> str:
    for unit, size in _UNITS.items():
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def _colour(at: int) -> int:
    return at % len(_COLOURS)


def _last(one: Series) -> float:
    return one.points[-1][1]


def _round(value: float) -> float:
    """The end of an axis: the next number that begins with 1, 2, 4 or 8."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value * 0.9999)


def _times(shown: Range, width: float) -> list[float]:
    """The whole minutes that are labelled."""
    minutes = math.ceil((shown.end - shown.begin) / 60 / max(1, width // 60))
    step = 60 * next((one for one in (1, 2, 5, 10, 15, 30, 60) if one >= minutes), minutes)
    first = math.ceil((shown.begin + 20) / step) * step
    return [first + step * at for at in range(int((shown.end - 15 - first) // step) + 1)]


def _stacked(found: Sequence[Series]) -> list[Points]:
    """The upper edge of each series on top of the ones before it."""
    below: dict[float, float] = {}
    made: list[Points] = []
    for one in found:
        for when, value in one.points:
            below[when] = below.get(when, 0.0) + value
        made.append([(when, below[when]) for when, _ in one.points])
    return made


def _runs(points: Points, step: float) -> list[list[tuple[float, float]]]:
    """Points without a gap between them."""
    gaps, before, number = [], -math.inf, 0
    for when, _ in points:
        number += when - before > 1.5 * step
        gaps.append(number)
        before = when
    return [[point for point, _ in run] for _, run in groupby(zip(points, gaps, strict=True), key=lambda pair: pair[1])]


def _corners(points: Points) -> list[tuple[float, float]]:
    """The points of a line without those that are in the middle of a level part."""
    kept = [
        point
        for before, point, after in zip(points, points[1:], points[2:], strict=False)
        if not abs(before[1] - point[1]) < _LEVEL > abs(point[1] - after[1])
    ]
    return [points[0], *kept, *points[1:][-1:]]
