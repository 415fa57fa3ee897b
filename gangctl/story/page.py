"""Makes the page's documents: the list of gangs, and one gang with its members and incidents, as small JSON.

The rule: a document has fewer than :data:`LARGEST_BYTES`, however large the gang is and however many gangs there are.
Every list is bounded where it is made, every text is cut and escaped, and the longest list of a document gets the bytes
that the rest has left. Of a small gang each member has a cell. Of a large one, members in a row that are in the same
state share a cell, and if these are too many, those in the commonest state have none.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import groupby, islice
from typing import Any, ClassVar, Final, TypeVar

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.model import changed, escaped
from gangctl.api.status import ENDED, Condition, MemberSnapshot, Spent, Status
from gangctl.core.facts.world import Observed
from gangctl.core.record.conditions import goodput, hangs, spent_until, total
from gangctl.core.record.snapshot import snapshot
from gangctl.story.document import document
from gangctl.story.incidents import IncidentStory, incident_story
from gangctl.story.replicas import group_story
from gangctl.story.svg import svg
from gangctl.story.timeline import SPENT, Story, story
from gangctl.story.words import current_step, state

LARGEST_BYTES: Final = 50_000
LONGEST_TEXT: Final = 320
"""Bytes of a sentence on the page; the whole one is in the status."""
LONGEST_OUTPUT: Final = 1000
"""Bytes of a worker's last lines."""
MOST_ROWS: Final = 150
MOST_CONDITIONS: Final = 6
MOST_INCIDENTS: Final = 10
MOST_CELLS: Final = 160
MOST_INTEREST: Final = 16
MOST_COUNTS: Final = 64
_LIST: Final = 20
"""Bytes of a list without values, with its name."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRow:
    """One gang in the list."""

    namespace: str
    name: str
    phase: str
    hangs: bool = False
    """It runs, and a hang is observed; nothing is restarted because of it."""
    ready: str
    attempt: int
    restarts: int
    """Attempts after the first, charged to the budget or not."""
    step: int | None = None
    """The highest step of this attempt that was stored."""
    created: float
    completed: float | None = None
    group: str = ""
    """Its replica group, whose gangs are beside each other."""
    reason: str = ""
    """The cause of the last incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangList:
    """The gangs of this controller, or of one replica group."""

    kind: ClassVar = "list"

    namespace: str = ""
    group: str = ""
    """Empty: all gangs."""
    total: int
    unreadable: int = 0
    """Gangs that this release can't read; they are not in the total."""
    is_partial: bool = False
    """Only gangs of the namespaces that the viewer may see are in it."""
    unseen: int = 0
    """Namespaces that were not looked through for this viewer."""
    rows: tuple[GangRow, ...] = ()
    """At most some hundreds: those that have not ended come first."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many members of a role are in a state."""

    role: str
    state: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One member, or several in a row that are in the same state."""

    name: str
    last: str = ""
    """The last one of several; ``name`` is the first."""
    members: int = 1
    state: str
    rank: int | None = None
    """The first of its ranks."""
    spare: bool = False
    step: int | None = None
    restarts: int = 0
    """Restarts of its supervisor."""
    why: str = ""
    """Why a reader looks for it first."""
    node: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the gang's time."""

    what: str
    percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPage:
    """One gang."""

    kind: ClassVar = "gang"

    namespace: str
    name: str
    phase: str
    hangs: bool = False
    group: str = ""
    """Its replica group."""
    since: float
    """Time of the last change of the phase or the attempt."""
    created: float
    completed: float | None = None
    message: str
    ready: str
    attempt: int
    counted: int
    uncounted: int
    step: int | None = None
    restore: str = ""
    """The restore point of this attempt."""
    goodput: int | None = None
    """The part of the time that went to training which counts, in percent; absent without steps."""
    spent: tuple[Share, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Those that are true."""
    counts: tuple[Count, ...]
    cells: tuple[Cell, ...] = ()
    hidden: int = 0
    """Members that no cell shows: only their counts are known."""
    interest: tuple[Cell, ...] = ()
    """Members that the last incident was about, or that are not in the state of the others."""
    incidents: tuple[IncidentStory, ...] = ()
    """The newest first, without members and stacks."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such gang."""

    kind: ClassVar = "missing"

    namespace: str
    name: str


@document.register
def _missing(page: Missing) -> dict[str, str]:
    return {"namespace": escaped(page.namespace), "name": escaped(page.name)}


Document = GangList | GangPage | Missing


def within(page: Document, values: Iterable[T]) -> tuple[T, ...]:
    """Return the first of these values, as many as the document still has room for in one more list."""
    room = LARGEST_BYTES - len(encoded(page)) - _LIST
    found = []
    for one in values:
        room -= len(_json(document(one))) + 1
        if room <= 0:
            break
        found.append(one)
    return tuple(found)


def encoded(page: Document) -> bytes:
    """Return the document as JSON."""
    return _json(document(page))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def listed(jobs: Iterable[GangJob], unreadable: int = 0, unseen: int | None = None) -> GangList:
    """Return the list of these gangs: those that have not ended, then the newest, as many as there is room for.

    The gangs of a replica group stay together, at the place of the first of them.

    Args:
        jobs: The gangs that the viewer may see.
        unreadable: How many others can't be read.
        unseen: In how many namespaces it isn't known whether the viewer may see gangs. None = it may see all gangs.
    """
    found = tuple(jobs)
    groups: dict[tuple[str, str], tuple[bool, float]] = {}
    for job in found:
        if group := group_of(job):
            key, place = (job.metadata.namespace, group), _place(job)
            groups[key] = min(place, groups.get(key, place))

    def order(job: GangJob) -> tuple[object, ...]:
        return (groups.get((job.metadata.namespace, group_of(job))) or _place(job), *_order(job))

    rows = map(_row, nsmallest(MOST_ROWS, found, key=order))
    page = GangList(total=len(found), unreadable=unreadable, is_partial=unseen is not None, unseen=unseen or 0)
    return replace(page, rows=within(page, rows))


def group_listed(namespace: str, group: str, jobs: Sequence[GangJob]) -> GangList:
    return replace(listed(jobs), namespace=namespace, group=group)


def _place(job: GangJob) -> tuple[bool, float]:
    """Those that have not ended, then the newest end."""
    ended = job.status.phase in ENDED
    return ended, -(job.status.completion_time or 0.0) if ended else 0.0


def _order(job: GangJob) -> tuple[str, str, str, int, str]:
    """By namespace and name; the gangs of a group by the group's name and their index."""
    name, group = job.metadata.name, job.spec.replica_group
    if group is None:
        return job.metadata.namespace, name, "", 0, name
    return job.metadata.namespace, group.name, group.name, group.index, name


def group_of(job: GangJob) -> str:
    """Return the name of the gang's replica group; empty if it stands alone."""
    return "" if job.spec.replica_group is None else job.spec.replica_group.name


def _row(job: GangJob) -> GangRow:
    status = job.status
    return GangRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase or "New",
        hangs=hangs(status),
        ready=status.ready,
        attempt=status.attempt,
        restarts=status.restarts.counted + status.restarts.uncounted,
        step=current_step(status),
        created=job.metadata.creation_timestamp,
        completed=status.completion_time,
        group=group_of(job),
        reason=status.incidents[0].cause.reason if status.incidents else "",
    )


def gang(now: float, job: GangJob, observed: Observed, traces: str) -> GangPage:
    """Return the document of a gang.

    Args:
        now: Seconds since the epoch.
        job: The gang as it is stored.
        observed: What the controller sees of it.
        traces: Address of Jaeger's pages, or empty.
    """
    seen = snapshot(now, job, observed)
    status, point, spent = seen.status, seen.status.restore_point, spent_until(seen.status, now)
    current, share = changed(job, status=status), goodput(spent)
    found, hidden = cells(seen.members)
    last = status.incidents[0] if status.incidents else None
    page = GangPage(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase or "New",
        hangs=hangs(status),
        group=group_of(job),
        since=status.phase_time,
        created=job.metadata.creation_timestamp,
        completed=status.completion_time,
        message=_cut(status.message),
        ready=status.ready,
        attempt=status.attempt,
        counted=status.restarts.counted,
        uncounted=status.restarts.uncounted,
        step=current_step(status),
        restore="" if point is None else f"step {point.step} of tier {point.tier}",
        goodput=None if share is None else round(100 * share),
        spent=() if share is None else _shares(spent),
        conditions=_conditions(status),
        counts=counts(seen.members),
        hidden=len(seen.members),
        interest=interest(seen.members, last, {pod.member: pod.node for pod in observed.pods}),
        incidents=tuple(
            _short(incident_story(current, one, now, traces), newest=at == 0)
            for at, one in enumerate(status.incidents[:MOST_INCIDENTS])
        ),
    )
    shown = within(page, found)
    return replace(page, cells=shown, hidden=hidden + sum(one.members for one in found[len(shown) :]))


def drawing(now: float, job: GangJob, observed: Observed) -> str:
    """Draw the story of a gang as an SVG file, with what the controller knows now. ``now``: seconds since the epoch."""
    return svg(_story(now, job, observed))


def group_drawing(now: float, group: str, found: Sequence[tuple[GangJob, Observed]]) -> str:
    """Draw a replica group, as :func:`drawing` does a gang: at most :data:`MOST_ROWS` of its gangs, by their index."""
    ordered = nsmallest(MOST_ROWS, found, key=lambda one: _order(one[0]))
    return svg(group_story(group, [_story(now, *one) for one in ordered]))


def _story(now: float, job: GangJob, observed: Observed) -> Story:
    return story(changed(job, status=snapshot(now, job, observed).status), now)


def _short(incident: IncidentStory, *, newest: bool) -> IncidentStory:
    """The incident as the page shows it: texts are cut; only the newest has its output."""
    output = incident.output if newest else None
    if output is not None:
        lines = "\n".join(map(escaped, output.text.split("\n"))).encode()
        output = changed(output, text=lines[-LONGEST_OUTPUT:].decode(errors="ignore"))
    return replace(
        incident,
        cause=_cut(incident.cause),
        evidence=(),
        decision=_cut(incident.decision),
        members=(),
        waits=tuple(map(_cut, incident.waits)),
        start="",
        advice="",
        output=output,
        stacks=None,
    )


def _cut(value: str) -> str:
    text = escaped(value)
    whole = text.encode()
    return text if len(whole) <= LONGEST_TEXT else f"{whole[: LONGEST_TEXT - 3].decode(errors='ignore')}…"


def _conditions(status: Status) -> tuple[Condition, ...]:
    """Those that are true and say more than the gang's message and each other."""
    found = {one.message: one for one in reversed(status.conditions) if one.status != "False"}
    found.pop(status.message, None)
    shown = tuple(found.values())[-MOST_CONDITIONS:]
    return tuple(changed(one, message=_cut(one.message)) for one in reversed(shown))


def _shares(spent: Spent) -> tuple[Share, ...]:
    whole = total(spent) or 1.0
    found = (Share(what, round(100 * getattr(spent, name) / whole)) for name, what in SPENT.items())
    return tuple(one for one in found if one.percent)


def counts(members: Sequence[MemberSnapshot]) -> tuple[Count, ...]:
    """How many members of each role are in which state; the roles in order, the commonest state first."""
    found = Counter((one.role, state(one)) for one in members)
    roles = {role: at for at, role in enumerate(dict.fromkeys(role for role, _ in found))}
    ordered = sorted(found.items(), key=lambda item: (roles[item[0][0]], -item[1]))
    return tuple(Count(role=role, state=its, members=count) for (role, its), count in ordered[:MOST_COUNTS])


def cells(members: Sequence[MemberSnapshot]) -> tuple[tuple[Cell, ...], int]:
    """The cells, and how many members have none."""
    if len(members) <= MOST_CELLS:
        return tuple(map(_cell, members)), 0
    runs = [tuple(run) for _, run in groupby(members, key=lambda one: (one.role, one.spare, state(one)))]
    if len(runs) > MOST_CELLS:
        common = Counter(state(one) for one in members).most_common(1)[0][0]
        runs = [run for run in runs if state(run[0]) != common][:MOST_CELLS]
    return tuple(map(_run, runs)), len(members) - sum(map(len, runs))


def interest(
    members: Sequence[MemberSnapshot], incident: Incident | None, nodes: Mapping[str, str]
) -> tuple[Cell, ...]:
    """Members that a reader looks for first. ``incident``: the last one; ``nodes``: member -> node of its pod."""
    by_name = {one.member: one for one in members}
    found = [(by_name[name], why) for name, why in _reasons(members, incident).items() if name in by_name]
    return tuple(
        replace(_cell(one), why=", ".join(dict.fromkeys(why)), node=nodes.get(one.member, ""), pod=one.pod)
        for one, why in found[:MOST_INTEREST]
    )


def _reasons(members: Sequence[MemberSnapshot], incident: Incident | None) -> dict[str, list[str]]:
    """Members of interest with the reasons, the most important first."""
    found: dict[str, list[str]] = {}
    if incident is not None:
        found[incident.cause.member] = ["at fault"]  # Without a member at fault, no member has this name.
        for name in incident.cause.tied:
            found.setdefault(name, ["ended at the same moment"])
        for one in incident.members:
            if one.part == "Replaced":
                found.setdefault(one.member, []).append("its pod was replaced")
    if len(members) > MOST_CELLS:
        common = Counter(map(state, members)).most_common(1)[0][0]
        for other in islice((one for one in members if state(one) != common), MOST_INTEREST):
            found.setdefault(other.member, []).append("in another state than most")
        behind = min((one for one in members if one.step is not None), key=lambda one: one.step or 0, default=None)
        if behind is not None:
            found.setdefault(behind.member, []).append("the lowest step")
    return found


def _cell(one: MemberSnapshot) -> Cell:
    return Cell(name=one.member, state=state(one), rank=one.rank, spare=one.spare, step=one.step, restarts=one.restarts)


def _run(run: Sequence[MemberSnapshot]) -> Cell:
    first, last = run[0], run[-1]
    if len(run) == 1:
        return _cell(first)
    return Cell(name=first.member, last=last.member, members=len(run), state=state(first), spare=first.spare)
