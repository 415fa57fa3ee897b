"""Draws a timeline in the terminal: one line for each row, a letter or a shade for each cell, then each incident.

The rule: a cell shows what took most of it, but where a row has a part in an incident it shows that, and a fault before
all. The phases of an incident are letters, so that they need no colour; in the incident's own bar each that took time
has at least one cell.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from gangctl.cli.printers.text import clean
from gangctl.cli.printers.trace import Canvas
from gangctl.story.bars import Bar, Mark, MarkKind, Row, Scale, ticks
from gangctl.story.phases import LOOKS, PHASES, Activity
from gangctl.story.timeline import Story

GLYPHS: Final = "█▓▒░·✗"
"""Characters that the encoding must have; otherwise ASCII is used."""
_NARROW: Final = 72
"""Below this number of columns names are cut earlier."""
_MOST_NAME: Final = {False: 24, True: 13}
"""Columns for a name, by whether the terminal is narrow."""
_GAP: Final = "  "
_TICK: Final = 16
"""Columns for each tick of the axis, at least."""
_FAULT: Final = ("✗", "x", "bold red")

_Cell = tuple[str, str]
"""Glyph and style."""


def timeline_lines(story: Story, canvas: Canvas, console: Console) -> Iterator[Text]:
    """The lines, from the headline to the last incident. ``console``: wraps the sentences."""
    yield Text(clean(story.name), style="bold")
    for sentence in story.sentences:
        yield from Text(clean(sentence)).wrap(console, canvas.columns)
    yield Text()
    names = _Names(story, canvas.columns)
    room = canvas.columns - names.width - len(_GAP)
    whole = list(_whole(story, names, Scale(story.begin, story.end, room), blocks=canvas.blocks))
    bars = [list(_shares(one.phases, room)) for one in story.incidents]
    yield from whole
    yield Text()
    rows = whole[-len(story.rows) :]
    drawn = {glyph for line in rows for glyph in line.plain[-room:]} | {cell[0][0] for bar in bars for cell in bar}
    yield from _legend(drawn, canvas)
    if story.incidents:
        yield Text()
        yield Text("Incidents: where the time of each went", style="bold")
    for one, bar in zip(story.incidents, bars, strict=True):
        yield names.of(f"to attempt {one.attempt}").append_text(Text().join(Text(*cell) for cell in bar))
        for text in Text(clean(one.summary)).wrap(console, room):
            yield names.of("").append_text(text)


class _Names:
    def __init__(self, story: Story, columns: int) -> None:
        most = _MOST_NAME[columns < _NARROW]
        incidents = (f"to attempt {one.attempt}" for one in story.incidents)
        named = [*(clean(row.name) for row in story.rows), *incidents, "restored step"]
        self.width = min(most, max(map(cell_len, named)))

    def of(self, name: str, style: str = "") -> Text:
        """A name in its column."""
        shown = clean(name)
        if cell_len(shown) > self.width:
            shown = set_cell_size(shown, self.width - 2) + ".."
        return Text().append(set_cell_size(shown, self.width), style=style).append(_GAP)


def _whole(story: Story, names: _Names, scale: Scale, *, blocks: bool) -> Iterator[Text]:
    width = int(scale.width)
    axis = [(scale.at(time), label) for time, label in ticks(story.begin, story.end, max(2, width // _TICK))]
    yield names.of("UTC", "dim").append(_labels(axis, width), style="dim")
    attempts = [(scale.at(one.time), str(one.attempt)) for one in story.attempts]
    yield names.of("attempt", "dim").append(_labels(attempts, width), style="bold")
    restored = [mark for row in story.rows for mark in row.marks if mark.kind is MarkKind.RESTORE]
    if restored:
        steps = _labels([(scale.at(mark.time), mark.label) for mark in restored], width)
        yield names.of("restored step", "dim").append(steps)
    for row in story.rows:
        line = names.of(row.name, "bold" if row is story.rows[0] else "")
        for (glyph, style), same in groupby(_cells(row, scale, blocks=blocks)):
            line.append(glyph * len(list(same)), style=style)
        yield line


def _labels(found: Sequence[tuple[float, str]], width: int) -> str:
    """The labels where they belong; one for which there is no room is left out."""
    line = ""
    for x, label in sorted(found):
        at = min(int(x), width - 1)
        if at >= len(line) + bool(line) and at + len(label) <= width:
            line = line.ljust(at) + label
    return line


def _cells(row: Row, scale: Scale, *, blocks: bool) -> Iterator[_Cell]:
    faults = {_column(scale, mark) for mark in row.marks if mark.kind is MarkKind.FAULT}
    each = (scale.end - scale.begin) / scale.width
    for at in range(int(scale.width)):
        begin, end = scale.begin + at * each, scale.begin + (at + 1) * each
        if at in faults:
            yield _FAULT[not blocks], _FAULT[2]
        else:
            yield _glyph(_most(row.bars, begin, end), blocks=blocks)


def _column(scale: Scale, mark: Mark) -> int:
    return min(int(scale.width) - 1, int(scale.at(mark.time)))


def _most(bars: Sequence[Bar], begin: float, end: float) -> Activity:
    """The activity to show for this time: the phase of an incident that took most of it or, without a phase, any."""

    def share(bar: Bar) -> tuple[bool, float]:
        return bar.kind in PHASES, min(bar.end, end) - max(bar.begin, begin)

    touched = [bar for bar in bars if bar.begin < end and bar.end > begin]
    return max(touched or bars[-1:], key=share).kind


def _glyph(kind: Activity, *, blocks: bool) -> _Cell:
    look = LOOKS[kind]
    return (look.glyph if blocks else look.ascii), look.style


def _shares(phases: Sequence[Bar], width: int) -> Iterator[_Cell]:
    """The phases side by side in this width: each has at least one cell if it took time."""
    there = [bar for bar in phases if bar.seconds > 0][:width]
    if not there:
        return
    whole = sum(bar.seconds for bar in there)
    many = [max(1, round(width * bar.seconds / whole)) for bar in there]
    while (over := sum(many) - width) != 0:
        longest = many.index(max(many))
        many[longest] = max(1, many[longest] - over)
    for bar, cells in zip(there, many, strict=True):
        glyph, style = _glyph(bar.kind, blocks=False)
        yield glyph * cells, style


def _legend(drawn: set[str], canvas: Canvas) -> Iterator[Text]:
    """The meaning of the glyphs that were drawn, as many to a line as there is room for."""
    found = [(*_glyph(kind, blocks=canvas.blocks), look.words) for kind, look in LOOKS.items()]
    found.append((_FAULT[not canvas.blocks], _FAULT[2], "fault"))
    line = Text()
    for glyph, style, meaning in found:
        if glyph not in drawn:
            continue
        if line and cell_len(line.plain) + len(_GAP) + 2 + len(meaning) > canvas.columns:
            yield line
            line = Text()
        line.append(_GAP if line else "").append(glyph, style=style).append(f" {meaning}")
    yield line
