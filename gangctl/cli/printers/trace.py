"""Prints one incident: what happened in words, then its spans as a tree to scale, a line for each span.

A span that is too short for the scale is drawn as a sliver, so that every span is visible. If there is no room for the
member of a span, it is printed in a line of its own below the span.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gangctl.api.incident import Output
from gangctl.api.model import escaped
from gangctl.cli.printers.text import clean
from gangctl.story.incidents import IncidentStory
from gangctl.story.phases import LOOKS, Activity
from gangctl.story.spans import MEMBER, ROOT, Span
from gangctl.story.words import took

NARROW: Final = 72
"""Below this number of columns, members have lines of their own, and names are short."""
BLOCKS: Final = "█▏▎▍▌▋▊▉▐▕├─└│"
"""Characters that the encoding must have for drawing with blocks."""
_LEAST_BAR: Final = 8
_GAP: Final = 2
_LEFT: Final = " ▏▎▍▌▋▊▉"
"""A cell filled from the left by this number of eighths."""
_FULL, _RIGHT_HALF, _RIGHT_EIGHTH = "█", "▐", "▕"
_EIGHTHS: Final = 8
_PARTS: Final = {"Cause": "the cause", "Replaced": "replaced", "Slowest": "slowest"}


@dataclass(frozen=True, slots=True)
class Canvas:
    """The area to draw on."""

    columns: int
    blocks: bool
    """True if the encoding has block and line characters; otherwise ASCII is used."""


@dataclass(frozen=True, slots=True)
class _Row:
    span: Span
    tree: str
    """Branches of the tree to the left of the name."""
    below: str
    """Branches for a second line."""
    details: tuple[str, ...]
    """Member, role in the incident and node; most important first."""


def headline(name: str, found: IncidentStory) -> str:
    """The gang, the attempts, the outcome, the duration and the start of the incident."""
    how = f"{took(found.seconds)}{' so far' if found.goes_on else ''}"
    at = datetime.fromtimestamp(found.begin, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return clean(f"{name}: attempt {found.attempt - 1} to {found.attempt}, {found.result}, {how}, {at}")


def paragraph(found: IncidentStory) -> str:
    """The incident in sentences."""
    waits = " and ".join(filter(None, (", ".join(found.waits[:-1]), *found.waits[-1:])))
    open_phase = next((bar for bar in found.phases if bar.goes_on), None)
    more = "; ".join(one for one in found.evidence if one not in found.cause)
    parts = (
        f"{found.cause}{f' ({more})' if more else ''}.",
        f"{found.decision}.",
        f"The gang {found.cost}." if found.cost else "",
        f"The gang waited for {waits}." if waits else "",
        found.start,
        found.advice,
        f"The incident is not over: {open_phase.kind} has lasted {took(open_phase.seconds)} so far."
        if open_phase
        else "",
    )
    return " ".join(clean(part) for part in parts if part)


def output_lines(output: Output | None) -> list[str]:
    """The last output of the worker at fault, under a heading and after an empty line; empty if that isn't kept."""
    if output is None:
        return []
    said = (f"  {escaped(line)}" for line in output.text.splitlines())
    return ["", f"What {clean(output.member)} printed last:", *said]


def waterfall(spans: Sequence[Span], now: float, canvas: Canvas) -> list[Text]:
    """The lines. ``spans``: root first, then depth first; ``now``: end of the bar of a span that is not over."""
    rows = list(_rows(spans, _TREES[canvas.blocks]))
    root = spans[0]
    total = max(0.0, _end(root, now) - root.begin)
    narrow = canvas.columns < NARROW
    names = [row.tree + _name(row.span, short=narrow) for row in rows]
    durations = _durations(spans, now)
    name_width = max(cell_len("SPAN"), *map(cell_len, names))
    took_width = max(cell_len("TOOK"), *map(len, durations))
    room = canvas.columns - name_width - took_width - 2 * _GAP
    details_width = 0 if narrow else min(max(cell_len(", ".join(row.details)) for row in rows), room // 2 - _GAP)
    bar_width = max(_LEAST_BAR, room - (details_width + _GAP if details_width else 0))
    gap = " " * _GAP
    head = f"{'SPAN'.ljust(name_width)}{gap}{_axis(total, bar_width)}{gap}{'TOOK'.rjust(took_width)}"
    lines = [Text(f"{head}{gap}MEMBER" if details_width else head, style="bold")]
    for row, name, duration in zip(rows, names, durations, strict=True):
        span = row.span
        style = "bold" if span.name == ROOT else LOOKS[Activity(span.name.removeprefix(MEMBER))].colour
        begin, end = span.begin - root.begin, _end(span, now) - root.begin
        bar = (_blocks if canvas.blocks else _ascii)(begin, end, total, bar_width)
        line = Text(set_cell_size(name, name_width), style="bold red" if span.failed else "")
        line.append(gap).append(bar, style=style).append(gap).append(duration.rjust(took_width), style="")
        details = Text(_fitting(row.details, details_width or canvas.columns - cell_len(row.below)), style="dim")
        lines.append(line.append(gap).append_text(details) if details_width and row.details else line)
        if not details_width and row.details:
            lines.append(Text(row.below).append_text(details))
    for line in lines:
        line.rstrip()
    return lines


@dataclass(frozen=True, slots=True)
class _Tree:
    child: str
    last: str
    passing: str


_TREES: Final = {True: _Tree("├─ ", "└─ ", "│  "), False: _Tree("|- ", "`- ", "|  ")}


def _rows(spans: Sequence[Span], tree: _Tree) -> Iterator[_Row]:
    last = {span.parent_id: span.span_id for span in spans}
    lines = {"": ("", "")}
    """Span -> branches to the left of its children."""
    for span, following in pairwise([*spans, None]):
        assert span is not None
        beside = lines.get(span.parent_id, ("", ""))[1]
        is_last = last[span.parent_id] == span.span_id
        name = "" if not span.parent_id else beside + (tree.last if is_last else tree.child)
        below = "" if not span.parent_id else beside + (" " * len(tree.last) if is_last else tree.passing)
        lines[span.span_id] = (name, below)
        has_children = following is not None and following.parent_id == span.span_id
        yield _Row(span, name, below + (tree.passing if has_children else " " * len(tree.last)), tuple(_details(span)))


def _details(span: Span) -> Iterator[str]:
    """The member of the span, its role in the incident and where it ran."""
    attributes = dict(span.attributes)
    if span.end is None:
        yield "not over yet"
    if "gang.member" in attributes:
        yield clean(attributes["gang.member"])
        if part := _PARTS.get(str(attributes.get("gang.part", ""))):
            yield part
        yield from (
            clean(attributes[key]) for key in ("k8s.node.name", "gang.device", "k8s.pod.name") if attributes.get(key)
        )
    elif span.failed:
        yield clean(span.failed)


def _name(span: Span, *, short: bool) -> str:
    return clean(span.name.removeprefix(MEMBER) if short else span.name)


def _end(span: Span, now: float) -> float:
    return max(span.begin, now if span.end is None else span.end)


def _durations(spans: Sequence[Span], now: float) -> list[str]:
    """One below the other; with a plus while it grows."""
    over = " " if any(span.end is None for span in spans) else ""
    return [took(_end(span, now) - span.begin) + ("+" if span.end is None else over) for span in spans]


def _fitting(pieces: Sequence[str], width: int) -> str:
    """As many whole pieces as there is room for, at least the first one, cut."""
    text = ""
    for piece in pieces:
        more = f"{text}, {piece}" if text else piece
        if cell_len(more) > width:
            break
        text = more
    if text or not pieces:
        return text
    return set_cell_size(pieces[0], max(0, width - 2)).rstrip() + ".."


def _axis(total: float, width: int) -> str:
    """Zero at the left, the whole at the right, the half between them where there is room."""
    whole, half = took(total), took(total / 2)
    if width < len(whole) + 2:
        return "0".ljust(width)
    line = "0" + whole.rjust(width - 1)
    at = width // 2
    if total and at + len(half) + 2 <= width - len(whole) and at > 1:
        line = line[:at] + half + line[at + len(half) :]
    return line


def _blocks(begin: float, end: float, total: float, width: int) -> str:
    """To an eighth of a cell where the font's blocks can show it: ends exactly, beginnings to about a third."""
    first, behind = _edges(begin, end, total, width * _EIGHTHS)
    at, offset = divmod(first, _EIGHTHS)
    if behind <= (at + 1) * _EIGHTHS:
        return (" " * at + _within(offset, behind - first)).ljust(width)
    whole, rest = divmod(behind, _EIGHTHS)
    begins = (_FULL, _FULL, _FULL, _RIGHT_HALF, _RIGHT_HALF, _RIGHT_HALF, _RIGHT_EIGHTH, _RIGHT_EIGHTH)[offset]
    return (" " * at + begins + _FULL * (whole - at - 1) + (_LEFT[rest] if rest else "")).ljust(width)


def _within(offset: int, eighths: int) -> str:
    """One cell that is filled from ``offset`` on."""
    if eighths == _EIGHTHS:
        return _FULL
    if offset + eighths / 2 < _EIGHTHS / 2:
        return _LEFT[eighths]
    return _RIGHT_HALF if eighths > 2 else _RIGHT_EIGHTH  # noqa: PLR2004 - what is nearer


def _ascii(begin: float, end: float, total: float, width: int) -> str:
    first, behind = _edges(begin, end, total, width)
    return (" " * first + "#" * (behind - first)).ljust(width)


def _edges(begin: float, end: float, total: float, units: int) -> tuple[int, int]:
    """The first unit of a bar and the one behind its last; at least one unit, never outside."""
    if total <= 0:
        return 0, 1
    first = min(units - 1, max(0, round(begin / total * units)))
    return first, min(units, max(first + 1, round(end / total * units)))
