"""The answer of `gangctl why` as text: numbered findings, then the last restart. Lines are wrapped, never cut."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from gangctl.api.incident import IncidentLevel
from gangctl.cli.printers.text import clean, first, format_duration
from gangctl.explain.why.answer import Explanation, has_ended
from gangctl.explain.why.findings import Finding, NodeRow
from gangctl.explain.why.restarts import LastRestart, RestartHistory
from gangctl.explain.why.world import MissingRight
from gangctl.story.phases import LOOKS
from gangctl.story.words import STOPPED, level_words, lost_steps, took

MOST_NODES: Final = 12
"""Nodes that are listed one by one; of the others it is said how many they are."""
_MOST_DEVICES: Final = 6
ROLE: Final = "gangctl-explainer"
"""The chart's ClusterRole with all rights that the verb uses."""
_REPEATED: Final = 2
"""One restart has nothing to be compared with."""
_DIFFERENT: Final = {
    "everyMember": "every member ended alike",
    "differentMembers": "another member each time",
    "noStep": "no step between them",
}
_EVIDENCE: Final = {
    "Request": "a request",
    "End": "the end of a process",
    "Container": "the end of a container",
    "Disruption": "the disruption of a pod",
    "Node": "evidence against a node",
    "Device": "evidence against a device",
}


def answer_lines(answered: Explanation, now: float, columns: int) -> Iterator[str]:
    """The lines for people. ``now``: seconds since the epoch; ``columns``: width of the terminal."""
    page = _Page(columns)
    yield from page.text(_head(answered, now))
    if answered.unknown_fields:
        fields = ", ".join(answered.unknown_fields)
        yield from page.text(f"another release wrote fields that this one can't read, and leaves out: {fields}")
    if answered.findings:
        yield ""
        yield _title(answered)
        for number, finding in enumerate(answered.findings, 1):
            yield from _finding(page, number, finding, now)
    if answered.checks:
        yield ""
        yield "Checks before the attempt"
        for check in answered.checks:
            yield from page.text(f"- {check}", 0, 2)
    if answered.missing_rights:
        yield ""
        yield "What could not be read"
        yield from _rights(page, answered.missing_rights)
    if answered.restarts is None:
        yield ""
        yield from page.text("It runs, and has had no incident." if answered.runs else "It has had no incident so far.")
        return
    yield ""
    yield from _last(page, answered, answered.restarts, now)
    yield from _night(page, answered.restarts, " of the run" if answered.phase == STOPPED else "")


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


def _head(answered: Explanation, now: float) -> str:
    age = f" for {format_duration(now - answered.since)}" if answered.since and not has_ended(answered) else ""
    ready = f", ready {answered.ready}" if answered.ready else ""
    return f"{answered.gang['name']}: {answered.phase}{age}, attempt {answered.attempt}{ready}"


def _title(answered: Explanation) -> str:
    if has_ended(answered):
        return "How it ended"
    return "What to look at" if answered.runs else "Why it does not run"


def _finding(page: _Page, number: int, finding: Finding, now: float) -> Iterator[str]:
    mark = f"{number}. "
    since = "" if finding.since is None or not finding.members else f" (for {format_duration(now - finding.since)})"
    yield from page.text(f"{mark}{finding.seen}{since}", 0, len(mark))
    labelled = (("next", finding.next), ("do", finding.do), ("as the scheduler counts", finding.told))
    for label, text in labelled:
        if text:
            yield from page.text(f"{label}: {text}", len(mark), 2)
    resource = finding.rooms[0].resource if finding.rooms else ""
    for row in _rows(finding.nodes, resource):
        yield from page.text(f"- {_node(row, resource)}", len(mark), 2)
    if finding.tainted:
        words = first(finding.tainted, _MOST_DEVICES)
        yield from page.text(f"tainted devices, which a claim gets only with a toleration: {words}", len(mark), 2)
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
    return [*shown, *more, *(NodeRow(first(names, 3), why=why) for why, names in groups.items())]


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


def _last(page: _Page, answered: Explanation, found: RestartHistory, now: float) -> Iterator[str]:
    last, incident, name = found.last, found.last.incident, answered.gang["name"]
    at = datetime.fromtimestamp(incident.begin, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    level = level_words(IncidentLevel(incident.level), incident.outcome)
    charge = {None: "not decided yet", True: "charged", False: "not charged"}[incident.charged]
    phases = ", ".join(f"{LOOKS[bar.kind].words} {took(bar.seconds)}" for bar in incident.phases if bar.seconds)
    so_far = " so far" if incident.goes_on else ""
    yield f"Why it restarted last: attempt {incident.attempt - 1} to {incident.attempt}, {incident.result}"
    labelled = (
        ("cause", incident.cause),
        ("at", f"{at}, {format_duration(now - incident.begin)} ago"),
        ("evidence", "; ".join(incident.evidence)),
        ("rule", last.rule),
        (f"default of {incident.reason}", _default(last)),
        ("level", f"{level}, because {last.level_because}"),
        ("budget", f"{charge}; {found.budget}"),
        ("took", f"{took(incident.seconds)}{so_far} ({phases})" if incident.seconds else ""),
        ("cost", f"the gang {incident.cost}" if incident.cost else "not known yet: it is not over"),
        ("checkpoints that are not used until they are written again", ", ".join(last.rejected_steps)),
        ("advice", incident.advice),
    )
    for label, text in labelled:
        if text:
            yield from page.text(f"{label}: {text}", 2, 2)
    if last.alternatives:
        yield from page.text("with another rule of podFailurePolicy:", 2, 2)
        for one in last.alternatives:
            yield from page.text(f"- {one.rule}: {one.outcome}", 4, 2)
    yield from page.text(f"more: gangctl trace {name} draws it; gangctl logs {name} has the logs", 2, 2)


def _default(last: LastRestart) -> str:
    row = last.default
    suspected = ", the node is suspected" if row.node_suspected else ""
    charged = "charged" if row.charged else "not charged"
    return f"{_EVIDENCE.get(row.evidence, row.evidence)}, {charged}, level {row.level}{suspected}"


def _night(page: _Page, found: RestartHistory, before: str) -> Iterator[str]:
    if found.count < _REPEATED:
        return
    yield ""
    least = "" if found.complete else "at least "
    yield f"The last 12 hours{before}: {least}{found.count} restarts, {least}{found.charged} charged"
    cost, most = f"{took(found.milliseconds / 1000)} {_until(found)}", found.lost_steps_at_most
    if found.lost_steps is not None:
        known = " as far as known" * found.lost_unknown
        least = "at least " * (found.lost_unknown or most != found.lost_steps)
        seconds = f", {least}{took(found.lost_seconds)} of training" if found.lost_seconds else ""
        cost += f", {lost_steps(found.lost_steps, most)} lost{known}{seconds}"
    last = f" of the last {found.detailed}" if found.detailed < found.count else ""
    yield from page.text(f"cost{last}: {cost}", 2, 2)
    for one in found.patterns:
        common = f"same {one.what}: {one.value}, {one.count} of {one.of}" if one.value else _DIFFERENT[one.what]
        yield from page.text(f"{common}: {one.means}", 2, 2)
    if found.compared >= _REPEATED and not found.patterns:
        yield from page.text("they have neither member nor node nor cause in common", 2, 2)


def _until(found: RestartHistory) -> str:
    """Until when the time of the restarts counts."""
    if found.first_steps == found.detailed:
        return "from fault to first step"
    came = f"{found.first_steps} of {found.detailed} came" if found.first_steps else "none came"
    return f"in restarts, of which {came} to a first step"
