"""The text of `gangctl doctor`: links as a table, or one below the other on a narrow terminal."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gangctl.annexes.doctor.links import Link, LinkName, LinkState
from gangctl.annexes.doctor.survey import Difference, FleetSurvey, NodeSurvey, PodSurvey, Pool, Survey
from gangctl.cli.printers.output import trim_lines
from gangctl.cli.printers.text import clean, first
from gangctl.words.text import counted

NARROW: Final = 70
"""Below this width a table would leave no room for sentences."""
_MOST_NODES: Final = 5
"""Nodes that are named for one value."""
_LABELS: Final = {name: " ".join(re.findall("[A-Z][a-z]*", name)).lower() for name in LinkName} | {
    LinkName.POD_RUNTIME_CLASS: "runtime class",
    LinkName.HEALTH: "device health",
    LinkName.CUDA: "CUDA",
}
_STATES: Final = {
    LinkState.OK: ("ok", "green"),
    LinkState.FAILED: ("FAILED", "bold red"),
    LinkState.UNKNOWN: ("unknown", "yellow"),
    LinkState.ABSENT: ("absent", "dim"),
}
LinkRow = tuple[Text, str, str, str]
"""State, label, what was seen, what to do."""


def print_survey(out: Console, found: Survey, *, wide: bool) -> None:
    """Print what was found. ``wide``: also why a link is absent."""
    match found:
        case FleetSurvey():
            parts = _fleet(found, out.width)
        case NodeSurvey():
            parts = _node(found, out.width, wide=wide)
        case PodSurvey(pod=pod):
            parts = [_head(f"pod {pod.full_name}", found.links), *_rows(found.links, out.width, wide=True)]
            if found.node is not None:
                parts += [Text(), *_node(found.node, out.width, wide=wide)]
    with trim_lines(out):
        for one in parts:
            out.print(one, soft_wrap=False)


def _node(found: NodeSurvey, width: int, *, wide: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [_head(f"node {found.name}", found.links)]
    if len(found.links) > 1 and not any(one.about for one in found.links):
        parts.append(Text("  the node has no extended resource, and no label of a vendor's devices", style="dim"))
    for about in dict.fromkeys(one.about for one in found.links):
        links = [one for one in found.links if one.about == about]
        if about:
            parts.append(Text(clean(about), style="bold"))
        parts += _rows(links, width, wide=wide or not about)
    return parts


def _head(what: str, links: Iterable[Link]) -> Text:
    states = [one.state for one in links]
    failed, unknown = states.count(LinkState.FAILED), states.count(LinkState.UNKNOWN)
    told = f"{failed} of {len(states)} links failed" if failed else "no link failed"
    return Text(clean(f"{what}: {told}{f', {unknown} unknown' if unknown else ''}"), style="bold")


def _rows(links: Sequence[Link], width: int, *, wide: bool) -> list[RenderableType]:
    shown = [one for one in links if wide or one.state is not LinkState.ABSENT]
    parts = _laid_out([_row(one) for one in shown], width)
    absent = [_LABELS[one.name] for one in links if one not in shown]
    if absent:
        parts.append(Padding(Text(f"absent: {', '.join(absent)} (-o wide says why)", style="dim"), (0, 0, 0, 2)))
    return parts


def _row(link: Link, node: str = "") -> LinkRow:
    word, style = _STATES[link.state]
    resource = f"{link.resource}: " if link.resource and link.resource != link.about else ""
    label = f"{_LABELS[link.name]}: " if node else ""
    return Text(word, style=style), node or _LABELS[link.name], f"{label}{resource}{link.seen}", link.todo


def _laid_out(rows: Sequence[LinkRow], width: int) -> list[RenderableType]:
    if not rows:
        return []
    if width < NARROW:
        return [part for row in rows for part in _stacked(row)]
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=max(len(word) for word, _ in _STATES.values()))
    table.add_column(no_wrap=True, min_width=max(map(len, _LABELS.values())))
    table.add_column(overflow="fold")
    for word, label, seen, todo in rows:
        cell = Text(clean(seen))
        if todo:
            cell.append(f"\n{_next(todo)}", style="bold")
        table.add_row(word, Text(clean(label)), cell)
    return [Padding(table, (0, 0, 0, 2))]


def _stacked(row: LinkRow) -> Iterable[RenderableType]:
    word, label, seen, todo = row
    yield Text("  ").append_text(word).append(f" {clean(label)}")
    yield Padding(Text(clean(seen), overflow="fold"), (0, 0, 0, 4))
    if todo:
        yield Padding(Text(_next(todo), style="bold", overflow="fold"), (0, 0, 0, 4))


def _next(todo: str) -> str:
    return clean(f"next: {todo}")


def _fleet(found: FleetSurvey, width: int) -> list[RenderableType]:
    pools = found.pools
    others = f"; {counted(found.without_devices, 'other node')} without devices" if found.without_devices else ""
    total = sum(len(one.nodes) for one in pools)
    if not pools:
        parts: list[RenderableType] = [Text(f"no node has devices{others}", style="bold")]
    else:
        head = f"{counted(total, 'node')} with devices in {counted(len(pools), 'pool')}{others}"
        parts = [Text(head, style="bold")]
    for pool in pools:
        parts += [Text(), *_pool(pool, width)]
    for one in found.unread:
        parts.append(Text(clean(f"not looked at: you lack the right to {one.right}"), style="yellow"))
    return parts


def _pool(pool: Pool, width: int) -> list[RenderableType]:
    of = "" if pool.name == ", ".join(pool.resources) else f" ({', '.join(pool.resources)})" if pool.resources else ""
    head = f"pool {pool.name}: {counted(len(pool.nodes), 'node')}{of}"
    if not pool.failed:
        return [Text(clean(f"{head}: alike, and nothing failed"), style="bold")]
    word = Text("differs", style="bold yellow")
    todo = "if no rollout is on, find out why: gangctl doctor NODE shows one of them link by link"
    rows: list[LinkRow] = [
        (word, one.what, _values(one), todo if one is pool.differences[-1] else "") for one in pool.differences
    ]
    rows += [_row(one.link, one.node) for one in pool.findings]
    return [Text(clean(head), style="bold"), *_laid_out(rows, width)]


def _values(difference: Difference) -> str:
    most = len(difference.values[0][1])
    only = sum(len(nodes) == most for _, nodes in difference.values) == 1
    words = []
    for value, nodes in difference.values:
        where = counted(len(nodes), "node") if only and len(nodes) == most > 1 else first(nodes, _MOST_NODES)
        words.append(f"{value or 'not known'} on {where}")
    return "; ".join(words)
