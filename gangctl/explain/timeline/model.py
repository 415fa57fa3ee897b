"""A timeline as values. All times are seconds since the epoch, on the controllers' clocks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gangctl.api.status import Spent


class Kind(StrEnum):
    """What a bar shows. The phases of incidents have the names of their spans."""

    UNKNOWN = "unknown"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    LOST = "lost"
    DETECT = "detect"
    STOP = "stop"
    REPLACE = "replace"
    BACK_OFF = "back_off"
    BARRIER = "barrier"
    EVIDENCE = "evidence"
    START = "start"
    CHECKPOINT_LOAD = "checkpoint_load"
    FIRST_STEP = "first_step"
    SUSPENDED = "suspended"
    HELD = "held"


PHASES: Final = (
    Kind.DETECT,
    Kind.STOP,
    Kind.REPLACE,
    Kind.BACK_OFF,
    Kind.BARRIER,
    Kind.EVIDENCE,
    Kind.START,
    Kind.CHECKPOINT_LOAD,
    Kind.FIRST_STEP,
)
"""Of an incident, in the order of time; loading is what a member does in the last one."""

MEANINGS: Final = {
    Kind.WAITING: "waits to start",
    Kind.STARTING: "starts, no step yet",
    Kind.RUNNING: "runs",
    Kind.LOST: "lost, done again",
    Kind.DETECT: "detect",
    Kind.STOP: "stop",
    Kind.REPLACE: "replace",
    Kind.BACK_OFF: "back-off",
    Kind.BARRIER: "barrier",
    Kind.EVIDENCE: "waits for evidence",
    Kind.START: "start",
    Kind.CHECKPOINT_LOAD: "load",
    Kind.FIRST_STEP: "first step",
    Kind.SUSPENDED: "suspended",
    Kind.HELD: "held",
    Kind.UNKNOWN: "not in the status",
}
"""For the legend, in its order."""


class MarkKind(StrEnum):
    """What a mark shows."""

    FAULT = "fault"
    """A member failed, or a restart began whose details the status no longer has."""
    RESTORE = "restored"
    """Every rank restored a checkpoint, or the attempt started from the beginning."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that took time. ``begin`` <= ``end``."""

    kind: Kind
    begin: float
    end: float
    """The time of the look, if it goes on."""
    attempt: int = 0
    """The attempt that ran or was prepared; 0 if that is unknown."""
    goes_on: bool = False
    """Whether it was not over at the time of the look."""

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment."""

    kind: MarkKind
    time: float
    label: str
    """Short, such as a step; may be empty."""
    text: str
    """In words."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the timeline: the gang, one member, or all other members."""

    name: str
    members: int
    """How many members it shows."""
    bars: tuple[Bar, ...]
    """One after the other, without gaps, from the begin of the timeline to its end; all take time."""
    marks: tuple[Mark, ...] = ()
    """By time."""
    text: str = ""
    """Why the member has a row; may be empty."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One incident: its phases, and what it came to."""

    attempt: int
    """The attempt that it led to."""
    begin: float
    phases: tuple[Bar, ...]
    """One after the other; some may have taken no time. None is known of some incidents."""
    cause: str
    """What was seen, in one sentence without a full stop."""
    outcome: str
    """As in the status."""
    level: str
    """As in the status."""
    charged: bool | None
    """None while that is not decided."""
    restored_step: int | None
    """The step that the attempt started from; None if that was the beginning, or it did not start."""
    lost_steps: int | None
    """None if progress is unknown."""
    lost_steps_at_most: int | None
    """The largest number that it can be; None if ``lost_steps`` is exact."""
    lost_seconds: float | None
    """None if the pace is unknown."""

    @property
    def restored(self) -> str:
        """What the attempt started from; empty if it did not start."""
        if self.outcome != "Restarted":
            return ""
        return "the beginning" if self.restored_step is None else f"step {self.restored_step}"

    @property
    def end(self) -> float:
        """When the last known phase was over, or the time of the look."""
        return max((bar.end for bar in self.phases), default=self.begin)

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return self.end - self.begin

    @property
    def goes_on(self) -> bool:
        """Whether it was not over at the time of the look."""
        return any(bar.goes_on for bar in self.phases)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the workers of an attempt were started."""

    attempt: int
    time: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """A gang from its creation to its end, or to the time of the look, as far as its status tells."""

    name: str
    namespace: str
    uid: str
    phase: str
    attempt: int
    begin: float
    end: float
    """At least ``begin``."""
    goes_on: bool
    """Whether the gang had not ended."""
    rows: tuple[Row, ...]
    """The gang first, then members of interest in their order, then the others as one."""
    attempts: tuple[Beginning, ...]
    """By time. Of some attempts it is unknown when they began."""
    incidents: tuple[Episode, ...]
    """Oldest first."""
    spent: Spent
    goodput: float | None
    """0 to 1; None for a gang that never reported a step."""
    sentences: tuple[str, ...]
    """The whole in words, each a sentence with its full stop."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Those that occur, in the order of :data:`MEANINGS`."""
        found = {bar.kind for row in self.rows for bar in row.bars}
        found |= {bar.kind for one in self.incidents for bar in one.phases if bar.seconds > 0}
        return tuple(kind for kind in MEANINGS if kind in found)
