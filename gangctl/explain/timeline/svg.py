"""Draws a timeline as an SVG element: the whole to scale, and below it each incident as a bar of its phases.

The rule: only elements with classes, no script, no style attribute and no id, so that it stands in any page, also
several times; every text is escaped. A bar that is too short for the scale is a sliver, so that it stays visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gangctl.api.escaping import escaped
from gangctl.explain.timeline.model import MEANINGS, PHASES, Bar, Episode, Kind, MarkKind, Row, Timeline
from gangctl.explain.timeline.scale import Scale, ticks
from gangctl.explain.timeline.words import of_bar, of_incident

LEAST_WIDTH: Final = 360
"""Of the drawing; a smaller width is taken for this."""
_LABELS: Final = 148
"""Width of the names at the left."""
_MARGIN: Final = 12
_LETTER: Final = 7.3
"""Width of a letter."""
_LINE: Final = 18
_ROW: Final = 20
_BAR: Final = 14
_SLIVER: Final = 1.5
_TICK: Final = 110
"""Pixels for each tick, at least."""
_NOT_XML: Final = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})


def drawn(timeline: Timeline, width: int = 960, margin: int = 0) -> str:
    """The drawing as an ``<svg>`` element, whose style is :data:`~.style.STYLE`.

    Args:
        timeline: What is drawn.
        width: Of the drawing in pixels; its height follows from the rows.
        margin: Pixels that are left free around it.
    """
    width = max(LEAST_WIDTH, width)
    canvas = _Canvas(width)
    canvas.whole(timeline)
    canvas.legend(timeline)
    canvas.incidents(timeline.incidents)
    name = as_text(f"Timeline of {timeline.name}")
    words = as_text(" ".join(timeline.sentences))
    whole, high = width + 2 * margin, canvas.y + 2 * margin
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" role="img" aria-label="{name}. {words}" '
        f'width="{whole}" height="{high}" viewBox="{-margin} {-margin} {whole} {high}">'
        f"<title>{name}</title><desc>{words}</desc>\n" + "\n".join(canvas.parts) + "\n</svg>"
    )


def as_text(value: str) -> str:
    """The text for XML and HTML, also in an attribute, with control characters escaped."""
    return escape(escaped(value).translate(_NOT_XML))


class _Canvas:
    """What is drawn so far, and where the next line begins."""

    def __init__(self, width: int) -> None:
        self.parts: list[str] = []
        self.y = 0
        self._width = width
        self._plot = width - _LABELS - _MARGIN

    def whole(self, timeline: Timeline) -> None:
        """The axis, the attempts, and a row for each row."""
        scale = Scale(timeline.begin, timeline.end, self._plot)
        bottom = 3 * _LINE + _ROW * len(timeline.rows)
        for tick in ticks(timeline.begin, timeline.end, max(2, self._plot // _TICK)):
            x = _LABELS + scale.at(tick.time)
            self.parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_LINE}" y2="{bottom}"/>')
            self._text(min(x, self._width - len(tick.label) * _LETTER), 13, tick.label, "faint")
        self.y = _LINE
        self._labels("attempt", [(scale.at(one.time), str(one.attempt)) for one in timeline.attempts])
        restored = [mark for row in timeline.rows for mark in row.marks if mark.kind is MarkKind.RESTORE]
        self._labels("restored step", [(scale.at(mark.time), mark.label) for mark in restored])
        for row in timeline.rows:
            self._row(row, scale, has_titles=row is timeline.rows[0])

    def legend(self, timeline: Timeline) -> None:
        """What the colours and the marks mean."""
        x = float(_LABELS)
        self.y += 6
        named: list[tuple[Kind | MarkKind, str]] = [(kind, MEANINGS[kind]) for kind in timeline.kinds]
        marks = {mark.kind for row in timeline.rows for mark in row.marks}
        for kind, meaning in (*named, *((kind, str(kind)) for kind in MarkKind if kind in marks)):
            needed = 18 + len(meaning) * _LETTER + 14
            if x + needed > self._width and x > _LABELS:
                x, self.y = float(_LABELS), self.y + _LINE
            if isinstance(kind, MarkKind):
                self.parts.append(_triangle(kind, x + 6, self.y + (6 if kind is MarkKind.FAULT else 0)))
            else:
                self.parts.append(_shape(kind, x, self.y + 3, 12, 12))
            self._text(x + 17, self.y + 13, meaning, "faint")
            x += needed
        self.y += _LINE + 6

    def incidents(self, found: tuple[Episode, ...]) -> None:
        """Each incident with its phases: a bar is a whole incident, whether it took seconds or hours."""
        if not found:
            return
        self._text(0, self.y + 13, "Incidents: where the time of each went", "head")
        self.y += _LINE + 4
        for one in found:
            scale = Scale(one.begin, one.end, self._plot)
            self._text(0, self.y + 12, f"to attempt {one.attempt}")
            for bar in one.phases:
                self._bar(bar, scale)
            self.y += _BAR + 2
            self._text(_LABELS, self.y + 12, self._fitting(of_incident(one), self._plot))
            self.y += _LINE + 4

    def _labels(self, title: str, found: list[tuple[float, str]]) -> None:
        """A line of labels; one that would cover the one before it is left out."""
        if not found:
            return
        self._text(0, self.y + 13, title, "faint")
        free = 0.0
        for x, label in sorted(found):
            if x >= free and x + len(label) * _LETTER <= self._plot + _MARGIN:
                self._text(_LABELS + x, self.y + 13, label)
                free = x + (len(label) + 1) * _LETTER
        self.y += _LINE

    def _row(self, row: Row, scale: Scale, *, has_titles: bool) -> None:
        self._text(0, self.y + 12, self._fitting(row.name, _LABELS - 8), title=row.text)
        phases = [bar for bar in row.bars if bar.kind in PHASES]
        others = [bar for bar in row.bars if bar.kind not in PHASES]
        if has_titles:
            for bar in others:
                self._bar(bar, scale)
        else:
            self._paths(others, scale)
        # What is short would vanish under its neighbours: it is drawn last, the longest on top.
        for bar in sorted(phases, key=lambda bar: bar.seconds):
            self._bar(bar, scale)
        for mark in row.marks:
            self.parts.append(_triangle(mark.kind, _LABELS + scale.at(mark.time), self.y, mark.text))
        self.y += _ROW

    def _bar(self, bar: Bar, scale: Scale) -> None:
        x, width = self._where(bar, scale)
        self.parts.append(_shape(bar.kind, x, self.y, width, _BAR, of_bar(bar)))

    def _paths(self, bars: Sequence[Bar], scale: Scale) -> None:
        """All bars of a kind as one path, since rows may be many."""
        found: dict[Kind, list[str]] = {}
        for bar in bars:
            x, width = self._where(bar, scale)
            line = f"M{x:.1f},{self.y + _BAR // 2}h{width:.1f}"
            rectangle = f"M{x:.1f},{self.y}h{width:.1f}v{_BAR}h-{width:.1f}z"
            found.setdefault(bar.kind, []).append(line if bar.kind is Kind.UNKNOWN else rectangle)
        self.parts += [f'<path class="{kind}" d="{"".join(parts)}"/>' for kind, parts in found.items()]

    def _where(self, bar: Bar, scale: Scale) -> tuple[float, float]:
        """Its left edge and its width."""
        x = scale.at(bar.begin)
        width = max(_SLIVER, scale.at(bar.end) - x)
        return _LABELS + min(x, scale.width - width), width

    def _text(self, x: float, y: float, text: str, kind: str = "", title: str = "") -> None:
        more = f"<title>{as_text(title)}</title>" if title else ""
        named = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{named} x="{x:.1f}" y="{y:.0f}">{as_text(text)}{more}</text>')

    def _fitting(self, text: str, room: float) -> str:
        shown, letters = escaped(text), max(4, int(room / _LETTER))
        return shown if len(shown) <= letters else f"{shown[: letters - 2]}.."


def _triangle(kind: MarkKind, x: float, y: float, title: str = "") -> str:
    """A mark: a fault comes from above, what was restored from below."""
    if kind is MarkKind.FAULT:
        points = f"{x - 4:.1f},{y - 3:.0f} {x + 4:.1f},{y - 3:.0f} {x:.1f},{y + 7:.0f}"
    else:
        points = f"{x:.1f},{y + 9:.0f} {x + 3.5:.1f},{y + 16:.0f} {x - 3.5:.1f},{y + 16:.0f}"
    return f'<polygon class="{kind}" points="{points}">{f"<title>{as_text(title)}</title>" if title else ""}</polygon>'


def _shape(kind: Kind, x: float, y: float, width: float, height: float, title: str = "") -> str:
    inside = f"><title>{as_text(title)}</title>" if title else ""
    if kind is Kind.UNKNOWN:
        middle = y + height / 2
        start = f'<line class="unknown" x1="{x:.1f}" x2="{x + width:.1f}" y1="{middle:.0f}" y2="{middle:.0f}"'
        return f"{start}{inside}</line>" if inside else f"{start}/>"
    start = f'<rect class="{kind}" x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{height:.0f}"'
    return f"{start}{inside}</rect>" if inside else f"{start}/>"
