"""Draws a gang's story as SVG, and makes files of it: a picture, and a page with tables for screen readers.

The whole is to scale; below it each incident is a bar of its phases.

The rule: only elements with classes, no script, no style attribute and no id, so that it stands in any page, also
several times; every text is escaped. A bar that is too short for the scale is a sliver, so that it stays visible.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from gangctl.api.model import escaped
from gangctl.story.bars import Bar, MarkKind, Row, Scale, ticks
from gangctl.story.incidents import IncidentStory
from gangctl.story.phases import LOOKS, PHASES, Activity
from gangctl.story.timeline import Story
from gangctl.story.words import lost_steps, took
from gangctl.words.text import moment

LEAST_WIDTH: Final = 360
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
_COLOURED: Final = {kind: look for kind, look in LOOKS.items() if look.light}
_PAPER: Final = {"text": ("#1f2328", "#e6edf3"), "faint": ("#656d76", "#9198a1"), "line": ("#d8dee4", "#30363d")}
_FAULT: Final = ("#c1121f", "#ff6b6b")


def _variables(dark: int) -> str:
    pairs = [(str(kind), (look.light, look.dark)[dark]) for kind, look in _COLOURED.items()]
    pairs += [(name, both[dark]) for name, both in _PAPER.items()] + [("fault", _FAULT[dark])]
    return "".join(f"--tl-{name}:{colour};" for name, colour in pairs)


STYLE: Final = "\n".join(
    [
        f".timeline{{{_variables(0)}}}",
        f"@media (prefers-color-scheme:dark){{.timeline{{{_variables(1)}}}}}",
        ".timeline text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:var(--tl-text)}",
        ".timeline .faint{fill:var(--tl-faint)}.timeline .head{font-weight:bold}",
        ".timeline .grid{stroke:var(--tl-line)}",
        ".timeline .unknown{stroke:var(--tl-faint);stroke-width:1.5;stroke-dasharray:1.5 4;fill:none}",
        ".timeline .fault{fill:var(--tl-fault)}.timeline .restored{fill:var(--tl-text)}",
        *(f".timeline .{kind}{{fill:var(--tl-{kind})}}" for kind in _COLOURED),
    ]
)
"""CSS for :func:`drawn`; it needs nothing else."""


def _phase_rules(dark: int) -> str:
    return "".join(
        f".bar .{phase},.swatch.{phase}{{background:{(LOOKS[phase].light, LOOKS[phase].dark)[dark]}}}"
        for phase in PHASES
    )


PHASE_STYLE: Final = f"{_phase_rules(0)}\n@media (prefers-color-scheme:dark){{{_phase_rules(1)}}}\n"
"""CSS for bars and legends of phases on the page."""
_PAGE: Final = """\
body{margin:2rem auto;max-width:1200px;padding:0 1rem;font:15px/1.5 system-ui,sans-serif;color:#1f2328;background:#fff}
table{border-collapse:collapse;margin:1rem 0;font-size:13px}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #d8dee4;vertical-align:top}
th,td{white-space:nowrap}
td:nth-child(2){white-space:normal;min-width:14rem}
caption{text-align:left;font-weight:bold}
.wide{overflow-x:auto}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}}
"""
_FRAME: Final = 16
"""Pixels around the picture in a file."""
_BACKGROUND: Final = ".timeline .paper{fill:#fff}@media (prefers-color-scheme:dark){.timeline .paper{fill:#0d1117}}"


def drawn(story: Story, width: int = 960, margin: int = 0) -> str:
    """The drawing as an ``<svg>`` element, whose style is :data:`STYLE`.

    Args:
        story: What is drawn.
        width: Of the drawing in pixels; its height follows from the rows.
        margin: Pixels that are left free around it.
    """
    width = max(LEAST_WIDTH, width)
    canvas = _Canvas(width)
    canvas.whole(story)
    canvas.legend(story)
    canvas.incidents(story.incidents)
    name = as_text(f"Timeline of {story.name}")
    words = as_text(" ".join(story.sentences))
    whole, high = width + 2 * margin, canvas.y + 2 * margin
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" role="img" aria-label="{name}. {words}" '
        f'width="{whole}" height="{high}" viewBox="{-margin} {-margin} {whole} {high}">'
        f"<title>{name}</title><desc>{words}</desc>\n" + "\n".join(canvas.parts) + "\n</svg>"
    )


def svg(story: Story, width: int = 960) -> str:
    """The picture as a file."""
    start, inside = drawn(story, width, _FRAME).split("\n", 1)
    paper = f'<rect class="paper" x="{-_FRAME}" y="{-_FRAME}" width="100%" height="100%"/>'
    return f"{start}<style>{STYLE}\n{_BACKGROUND}</style>\n{paper}\n{inside}\n"


def page(story: Story, width: int = 1060) -> str:
    """A page as a file: it loads nothing and runs nothing."""
    name = as_text(story.name)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{name}: timeline</title>\n<style>\n{_PAGE}{STYLE}\n</style></head>\n"
        f"<body><main><h1>{name}</h1>\n<p>{as_text(' '.join(story.sentences))}</p>\n"
        f'<div class="wide">{drawn(story, width)}</div>\n{tables(story)}\n</main></body></html>\n'
    )


def tables(story: Story) -> str:
    """The incidents and the members as HTML tables."""
    found = story.incidents
    phases = [kind for kind in PHASES if any(bar.kind is kind for one in found for bar in one.phases)]
    parts = []
    if found:
        head = ["to attempt", "cause", "began", *(LOOKS[kind].words for kind in phases), "took", "started from", "lost"]
        rows = [[*_when(one), *(_phase(one, kind) for kind in phases), *_what(one)] for one in found]
        parts.append(_table("Incidents, oldest first", head, rows))
    members = [[row.name, row.text] for row in story.rows if row.text]
    if members:
        parts.append(_table("Members of interest", ["member", "in the incidents that are kept"], members))
    return "\n".join(parts)


def _when(one: IncidentStory) -> list[str]:
    return [str(one.attempt), one.cause, moment(one.begin)]


def _phase(one: IncidentStory, kind: str) -> str:
    found = [bar for bar in one.phases if bar.kind == kind]
    return f"{took(found[0].seconds)}{'+' if found[0].goes_on else ''}" if found else ""


def _what(one: IncidentStory) -> Iterator[str]:
    steps, seconds = one.lost_steps, one.lost_seconds
    lost = "unknown" if steps is None else lost_steps(steps, one.lost_steps_at_most)
    yield f"{took(one.seconds)}{'+' if one.goes_on else ''}"
    yield one.restored or one.outcome.lower()
    yield f"{lost}, {took(seconds)}" if seconds else lost


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{as_text(name)}</th>' for name in head)
    lines = (
        f'<tr><th scope="row">{as_text(first)}</th>' + "".join(f"<td>{as_text(cell)}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    body = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>"
    return f'<div class="wide"><table><caption>{as_text(title)}</caption>{body}</table></div>'


def as_text(value: str) -> str:
    """The text for XML and HTML, also in an attribute, with control characters escaped."""
    return escape(escaped(value).translate(_NOT_XML))


class _Canvas:
    """The drawing so far, and where the next line begins."""

    def __init__(self, width: int) -> None:
        self.parts: list[str] = []
        self.y = 0
        self._width = width
        self._plot = width - _LABELS - _MARGIN

    def whole(self, story: Story) -> None:
        """The axis, the attempts, and a row for each row."""
        scale = Scale(story.begin, story.end, self._plot)
        bottom = 3 * _LINE + _ROW * len(story.rows)
        for time, label in ticks(story.begin, story.end, max(2, self._plot // _TICK)):
            x = _LABELS + scale.at(time)
            self.parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_LINE}" y2="{bottom}"/>')
            self._text(min(x, self._width - len(label) * _LETTER), 13, label, "faint")
        self.y = _LINE
        self._labels("attempt", [(scale.at(one.time), str(one.attempt)) for one in story.attempts])
        restored = [mark for row in story.rows for mark in row.marks if mark.kind is MarkKind.RESTORE]
        self._labels("restored step", [(scale.at(mark.time), mark.label) for mark in restored])
        for row in story.rows:
            self._row(row, scale, has_titles=row is story.rows[0])

    def legend(self, story: Story) -> None:
        """The meaning of colours and marks."""
        x = float(_LABELS)
        self.y += 6
        named: list[tuple[Activity | MarkKind, str]] = [(kind, LOOKS[kind].words) for kind in story.activities]
        marks = {mark.kind for row in story.rows for mark in row.marks}
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

    def incidents(self, found: tuple[IncidentStory, ...]) -> None:
        """Each incident with its phases: a bar is a whole incident, whether it took seconds or hours."""
        if not found:
            return
        self._text(0, self.y + 13, "Incidents: where the time of each went", "head")
        self.y += _LINE + 4
        for one in found:
            scale = Scale(one.begin, one.begin + one.seconds, self._plot)
            self._text(0, self.y + 12, f"to attempt {one.attempt}")
            for bar in one.phases:
                self._bar(bar, scale)
            self.y += _BAR + 2
            self._text(_LABELS, self.y + 12, self._fitting(one.summary, self._plot))
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
        self.parts.append(_shape(bar.kind, x, self.y + _BAR * (1 - bar.share), width, _BAR * bar.share, bar.text))

    def _paths(self, bars: Sequence[Bar], scale: Scale) -> None:
        """All bars of a kind as one path, since rows may be many."""
        found: dict[Activity, list[str]] = {}
        for bar in bars:
            x, width = self._where(bar, scale)
            line = f"M{x:.1f},{self.y + _BAR // 2}h{width:.1f}"
            high = round(_BAR * bar.share)
            rectangle = f"M{x:.1f},{self.y + _BAR - high}h{width:.1f}v{high}h-{width:.1f}z"
            found.setdefault(bar.kind, []).append(line if bar.kind is Activity.UNKNOWN else rectangle)
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


def _shape(kind: Activity, x: float, y: float, width: float, height: float, title: str = "") -> str:
    inside = f"><title>{as_text(title)}</title>" if title else ""
    if kind is Activity.UNKNOWN:
        middle = y + height / 2
        start = f'<line class="unknown" x1="{x:.1f}" x2="{x + width:.1f}" y1="{middle:.0f}" y2="{middle:.0f}"'
        return f"{start}{inside}</line>" if inside else f"{start}/>"
    start = f'<rect class="{kind}" x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{height:.0f}"'
    return f"{start}{inside}</rect>" if inside else f"{start}/>"
