"""The answer of `gangctl why` as text: numbered findings, then the last restart. Lines are wrapped, never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import IncidentLevel
from gangctl.cli.printers.text import clean, duration
from gangctl.explain.durations import took
from gangctl.explain.rule_words import level_words
from gangctl.explain.why.answer import Answer, has_ended
from gangctl.explain.why.findings import Finding, NodeRow
from gangctl.explain.why.restarts import Restart, Restarts
from gangctl.explain.why.world import MissingRight
from gangctl.words.text import counted

MOST_NODES: Final = 12
"""Nodes that are listed one by one; of the others it is said how many they are."""
ROLE: Final = "gangctl-explainer"
"""The chart's ClusterRole with all rights that the verb uses."""
_DIFFERENT: Final = {
    "everyMember": "every member ended alike",
    "differentMembers": "another member each time",
    "noStep": "no step between them",
}
_OUTCOMES: Final = {"Open": "not over yet"}
_EVIDENCE: Final = {
    "Request": "a request",
    "End": "the end of a process",
    "Container": "the end of a container",
    "Disruption": "the disruption of a pod",
    "Node": "evidence against a node",
    "Device": "evidence against a device",
}


def lines(job: GangJob, answered: Answer, now: float, columns: int) -> Iterator[str]:
    """The lines for people.

    Args:
        job: The gang.
        answered: What was found.
        now: Seconds since the epoch.
        columns: Width of the terminal.
    """
    page = _Page(columns)
    yield from page.text(_head(job, answered, now))
    if answered.unknown_fields:
        fields = ", ".join(answered.unknown_fields)
        yield from page.text(f"another release wrote fields that this one can't read, and leaves out: {fields}")
    if answered.findings:
        yield ""
        yield _title(answered)
        for number, finding in enumerate(answered.findings, 1):
            yield from _finding(page, number, finding, now)
    if answered.missing_rights:
        yield ""
        yield "What could not be read"
        yield from _rights(page, answered.missing_rights)
    if answered.restarts is None:
        yield ""
        yield from page.text("It runs, and has had no incident." if answered.runs else "It has had no incident so far.")
        return
    yield ""
    yield from _last(page, job, answered.restarts, now)
    yield from _night(page, answered.restarts)


class _Page:
    """Wraps texts to a width, with hanging indents. Texts are escaped here."""

    def __init__(self, columns: int) -> None:
        self._columns = columns

    def text(self, text: str, indent: int = 0, hanging: int = 0) -> Iterator[str]:
        """The text; ``hanging``: how much more later lines are indented."""
        yield from textwrap.wrap(
            clean(text),
            self._columns,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_long_words=False,
            break_on_hyphens=False,
        )


def _head(job: GangJob, answered: Answer, now: float) -> str:
    age = f" for {duration(now - answered.since)}" if answered.since and not has_ended(answered) else ""
    ready = f", ready {answered.ready}" if answered.ready else ""
    return f"{job.metadata.name}: {answered.phase}{age}, attempt {answered.attempt}{ready}"


def _title(answered: Answer) -> str:
    if has_ended(answered):
        return "How it ended"
    return "What to look at" if answered.runs else "Why it does not run"


def _finding(page: _Page, number: int, finding: Finding, now: float) -> Iterator[str]:
    mark = f"{number}. "
    since = "" if finding.since is None or not finding.members else f" (for {duration(now - finding.since)})"
    yield from page.text(f"{mark}{finding.seen}{since}", 0, len(mark))
    labelled = (("next", finding.next), ("do", finding.do), ("as the scheduler counts", finding.told))
    for label, text in labelled:
        if text:
            yield from page.text(f"{label}: {text}", len(mark), 2)
    resource = finding.rooms[0].resource if finding.rooms else ""
    for row in _rows(finding.nodes, resource):
        yield from page.text(f"- {_node(row, resource)}", len(mark), 2)
    if finding.unread:
        yield from page.text(f"not looked at: {', '.join(finding.unread)} of the pods", len(mark), 2)


def _rows(rows: Sequence[NodeRow], resource: str) -> Sequence[NodeRow]:
    """The nodes that would do first; many that refuse for one reason, or have none of the resource, as one line."""
    able = [row for row in rows if row.free and row.of != "0"]
    shown, groups = able[:MOST_NODES], dict[str, list[str]]()
    for row in rows:
        if row.of in {"", "0"}:
            groups.setdefault(f"no {resource} is allocatable" if row.of else row.why, []).append(row.node)
    left = len(able) - len(shown)
    more = [NodeRow(f"{left} more nodes", why="as these")] if left else []
    return [*shown, *more, *(NodeRow(_nodes(names), why=why) for why, names in groups.items())]


def _nodes(names: Sequence[str]) -> str:
    left = len(names) - 3
    return ", ".join(names[:3]) + (f" and {left} more" if left > 0 else "")


def _node(row: NodeRow, resource: str) -> str:
    if not row.free:
        return f"{row.node}: {row.why}"
    taken = f" ({row.taken})" if row.taken else ""
    why = "" if row.why == f"Insufficient {resource}" else f"; {row.why}"
    return f"{row.node}: needs {row.needs} {resource}, {row.free} free of {row.of}{taken}{why}"


def _rights(page: _Page, missing: Sequence[MissingRight]) -> Iterator[str]:
    for right in missing:
        where = f"in namespace {right.namespace}" if right.namespace else "in the whole cluster"
        yield from page.text(f"- no right to {right.verb} {right.resource} {where}: not known {right.lacking}", 0, 2)
    names = {right.namespace for right in missing}
    if "" in names:
        grant = f"kubectl create clusterrolebinding NAME --clusterrole={ROLE} --user=YOU"
        yield from page.text(f"an administrator grants them: {grant} (or --serviceaccount=NAMESPACE:NAME)", 2, 2)
    for name in sorted(names - {""}):
        grant = f"kubectl create rolebinding NAME -n {name} --clusterrole=view --user=YOU"
        yield from page.text(f"an administrator of the namespace grants them: {grant}", 2, 2)


def _last(page: _Page, job: GangJob, found: Restarts, now: float) -> Iterator[str]:
    last = found.last
    at = datetime.fromtimestamp(last.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    ago = duration(now - last.time)
    how = _OUTCOMES.get(last.outcome, last.outcome.lower())
    yield f"Why it restarted last: attempt {last.attempt - 1} to {last.attempt}, {how}"
    yield from page.text(f"cause: {last.cause}", 2, 2)
    yield from page.text(f"at: {at}, {ago} ago", 2, 2)
    if last.evidence:
        yield from page.text(f"evidence: {'; '.join(last.evidence)}", 2, 2)
    yield from page.text(f"rule: {last.rule}", 2, 2)
    yield from page.text(f"default of {last.reason}: {_default(last)}", 2, 2)
    level = level_words(IncidentLevel(last.level), last.outcome)
    yield from page.text(f"level: {level}, because {last.level_because}", 2, 2)
    charged = "charged" if last.charged else "not charged"
    yield from page.text(f"budget: {charged if last.settled else 'not decided yet'}; {found.budget}", 2, 2)
    if last.milliseconds:
        parts = ", ".join(f"{one.phase} {took(one.milliseconds / 1000)}" for one in last.phases if one.milliseconds)
        yield from page.text(f"took: {took(last.milliseconds / 1000)} ({parts})", 2, 2)
    yield from page.text(f"cost: {f'the gang {last.cost}' if last.cost else 'not known yet: it is not over'}", 2, 2)
    if last.rejected_steps:
        steps = ", ".join(last.rejected_steps)
        yield from page.text(f"checkpoints that are not used until they are written again: {steps}", 2, 2)
    if last.alternatives:
        yield from page.text("with another rule of podFailurePolicy:", 2, 2)
        for one in last.alternatives:
            yield from page.text(f"- {one.rule}: {one.outcome}", 4, 2)
    name = job.metadata.name
    yield from page.text(f"more: gangctl trace {name} draws it; gangctl logs {name} has the logs", 2, 2)


def _default(last: Restart) -> str:
    row = last.default
    suspected = ", the node is suspected" if row.node_suspected else ""
    charged = "charged" if row.charged else "not charged"
    return f"{_EVIDENCE.get(row.evidence, row.evidence)}, {charged}, level {row.level}{suspected}"


def _night(page: _Page, found: Restarts) -> Iterator[str]:
    if found.count < 2:  # noqa: PLR2004 - one restart has nothing to be compared with
        return
    yield ""
    yield f"The last 12 hours: {found.count} restarts, {found.charged} charged"
    steps = "" if found.lost_steps is None else f", {counted(found.lost_steps, 'step')} lost"
    seconds = f", {took(found.lost_seconds)} of training" if found.lost_seconds else ""
    yield from page.text(f"cost: {took(found.milliseconds / 1000)} {_until(found)}{steps}{seconds}", 2, 2)
    for one in found.patterns:
        common = f"same {one.what}: {one.value}, {one.count} of {one.of}" if one.value else _DIFFERENT[one.what]
        yield from page.text(f"{common}: {one.means}", 2, 2)
    if not found.patterns:
        yield from page.text("they have neither member nor node nor cause in common", 2, 2)


def _until(found: Restarts) -> str:
    """Until when the time of the restarts counts."""
    if found.first_steps == found.count:
        return "from fault to first step"
    came = f"{found.first_steps} of {found.count} came" if found.first_steps else "none came"
    return f"in restarts, of which {came} to a first step"
