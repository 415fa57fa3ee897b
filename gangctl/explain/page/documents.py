"""The documents that the page gets, as JSON. Times are seconds since the epoch; what is absent has no value.

The rule: a document has fewer than :data:`LARGEST_BYTES`, however large the gang is and however many gangs there are.
Every list is bounded where it is made, every text is cut and escaped here, and the longest list of a document gets the
bytes that the rest has left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BeforeValidator

from gangctl.api.escaping import escaped
from gangctl.api.model import Label, Model, Name

LARGEST_BYTES: Final = 50_000
LONGEST_TEXT: Final = 320
"""Bytes of a sentence on the page; the whole one is in the status."""
LONGEST_OUTPUT: Final = 1000
"""Bytes of a worker's last lines."""
_LIST: Final = 20
"""Bytes of a list without values, with its name."""

M = TypeVar("M", bound=Model)


def _shown(value: str) -> str:
    text = escaped(value)
    whole = text.encode()
    return text if len(whole) <= LONGEST_TEXT else f"{whole[: LONGEST_TEXT - 3].decode(errors='ignore')}…"


def _lines(value: str) -> str:
    whole = "\n".join(map(escaped, value.split("\n"))).encode()
    return whole[-LONGEST_OUTPUT:].decode(errors="ignore")


Told = Annotated[str, BeforeValidator(_shown)]
"""A sentence for people, escaped and cut."""

Lines = Annotated[str, BeforeValidator(_lines)]
"""Lines for people, each escaped; cut at the beginning, since the last one tells most."""


class Row(Model):
    """One gang in the list."""

    namespace: Label
    name: Label
    phase: str
    hangs: bool = False
    """It runs, and a hang is observed; nothing is restarted because of it."""
    ready: Label
    attempt: int
    restarts: int
    """Attempts after the first, charged to the budget or not."""
    step: int | None = None
    """The highest step of this attempt that was stored."""
    created: float
    over: float | None = None
    """When it ended."""
    reason: Label = ""
    """Of the last incident."""


class GangList(Model):
    """The gangs of this controller."""

    kind: Literal["list"] = "list"
    total: int
    unreadable: int = 0
    """Gangs that this release can't read; they are not in the total."""
    is_partial: bool = False
    """Only gangs of the namespaces that the viewer may see are in it."""
    unseen: int = 0
    """Namespaces that were not looked through for this viewer."""
    rows: tuple[Row, ...] = ()
    """At most some hundreds: those that have not ended come first."""


class Count(Model):
    """So many members of a role are in this state."""

    role: str
    state: str
    members: int


class Cell(Model):
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
    """Of its supervisor."""


class Interest(Model):
    """A member that the last incident was about, or that is not in the state of the others."""

    name: str
    why: str
    state: str
    rank: int | None = None
    step: int | None = None
    node: Name = ""
    pod: Name = ""


class PhaseBar(Model):
    """One phase of an incident."""

    name: str
    milliseconds: int | None = None
    """Absent while it goes on."""


class Waited(Model):
    """A member that an incident waited for, or was about."""

    member: Label
    what: str
    milliseconds: int
    node: Label = ""


class IncidentShown(Model):
    """One incident."""

    attempt: int
    """The attempt that it led to."""
    began: float
    outcome: str
    cause: Told
    output: Lines = ""
    """What the worker at fault printed last, in the last incident only."""
    why: Told
    """Which rule matched, the level and the charge."""
    cost: str = ""
    """The restore point, and what has to be repeated."""
    phases: tuple[PhaseBar, ...]
    waits: tuple[Waited, ...] = ()
    trace: str
    url: str = ""
    """Of the trace in Jaeger, if its address is known."""


class ConditionShown(Model):
    """A condition that is true."""

    type: Label
    reason: Label
    message: Told


class Spending(Model):
    """What a part of the gang's time went to."""

    what: str
    percent: int


class GangPage(Model):
    """One gang."""

    kind: Literal["gang"] = "gang"
    namespace: Label
    name: Label
    phase: str
    hangs: bool = False
    since: float
    """Time of the last change of the phase or the attempt."""
    created: float
    over: float | None = None
    """When it ended."""
    message: Told
    ready: Label
    attempt: int
    counted: int
    uncounted: int
    step: int | None = None
    restore: str = ""
    """The restore point of this attempt."""
    goodput: int | None = None
    """The part of the time that went to training which counts, in percent; absent without steps."""
    spent: tuple[Spending, ...] = ()
    conditions: tuple[ConditionShown, ...] = ()
    counts: tuple[Count, ...]
    cells: tuple[Cell, ...] = ()
    hidden: int = 0
    """Members that no cell shows: only their counts are known."""
    interest: tuple[Interest, ...] = ()
    incidents: tuple[IncidentShown, ...] = ()


class Missing(Model):
    """There is no such gang."""

    kind: Literal["missing"] = "missing"
    namespace: Label
    name: Label


Document = GangList | GangPage | Missing


def within(document: Document, values: Iterable[M]) -> tuple[M, ...]:
    """The first of these values, as many as the document still has room for in one more list."""
    room = LARGEST_BYTES - len(encoded(document)) - _LIST
    found = []
    for one in values:
        room -= len(_json(one)) + 1
        if room <= 0:
            break
        found.append(one)
    return tuple(found)


def encoded(document: Document) -> bytes:
    """The document as JSON. A field with its default is absent, and so is ``kind``: the event's type says it."""
    return _json(document)


def _json(value: Model) -> bytes:
    return value.model_dump_json(by_alias=True, exclude_defaults=True).encode()
