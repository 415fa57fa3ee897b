"""Files with a timeline: an SVG picture, and a page that needs nothing else, with tables for screen readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gangctl.explain.durations import took
from gangctl.explain.lost_steps import lost_steps
from gangctl.explain.timeline.model import MEANINGS, PHASES, Episode, Timeline
from gangctl.explain.timeline.style import STYLE
from gangctl.explain.timeline.svg import as_text, drawn
from gangctl.words.text import moment

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
_MARGIN: Final = 16
_BACKGROUND: Final = ".timeline .paper{fill:#fff}@media (prefers-color-scheme:dark){.timeline .paper{fill:#0d1117}}"


def svg(timeline: Timeline, width: int = 960) -> str:
    """The picture as a file."""
    start, inside = drawn(timeline, width, _MARGIN).split("\n", 1)
    paper = f'<rect class="paper" x="{-_MARGIN}" y="{-_MARGIN}" width="100%" height="100%"/>'
    return f"{start}<style>{STYLE}\n{_BACKGROUND}</style>\n{paper}\n{inside}\n"


def page(timeline: Timeline, width: int = 1060) -> str:
    """A page as a file: it loads nothing and runs nothing."""
    name = as_text(timeline.name)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{name}: timeline</title>\n<style>\n{_PAGE}{STYLE}\n</style></head>\n"
        f"<body><main><h1>{name}</h1>\n<p>{as_text(' '.join(timeline.sentences))}</p>\n"
        f'<div class="wide">{drawn(timeline, width)}</div>\n{tables(timeline)}\n</main></body></html>\n'
    )


def tables(timeline: Timeline) -> str:
    """The incidents and the members as HTML tables."""
    found = timeline.incidents
    phases = [kind for kind in PHASES if any(bar.kind is kind for one in found for bar in one.phases)]
    parts = []
    if found:
        head = ["to attempt", "cause", "began", *(MEANINGS[kind] for kind in phases), "took", "started from", "lost"]
        rows = [[*_when(one), *(_phase(one, kind) for kind in phases), *_what(one)] for one in found]
        parts.append(_table("Incidents, oldest first", head, rows))
    members = [[row.name, row.text] for row in timeline.rows if row.text]
    if members:
        parts.append(_table("Members of interest", ["member", "in the incidents that are kept"], members))
    return "\n".join(parts)


def _when(one: Episode) -> list[str]:
    return [str(one.attempt), one.cause, moment(one.begin)]


def _phase(one: Episode, kind: str) -> str:
    found = [bar for bar in one.phases if bar.kind == kind]
    return f"{took(found[0].seconds)}{'+' if found[0].goes_on else ''}" if found else ""


def _what(one: Episode) -> Iterator[str]:
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
