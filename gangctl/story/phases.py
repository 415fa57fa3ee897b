"""The activities of a gang and its members: the only list of an incident's phases, with order, words and colours."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic.alias_generators import to_snake

from gangctl.api.incident import Incident, IncidentMember


class Activity(StrEnum):
    """An activity of a gang or a member. Phases have the names of their spans, and of their durations in the status."""

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
    """In place of the barrier where the job ended or is held: that waited for stronger evidence alone."""
    CHECK = "check"
    START = "start"
    LAUNCH = "launch"
    """A launcher or a shell starts a member's ranks; with the next three, a part of the first step."""
    IMPORTS = "imports"
    RENDEZVOUS = "rendezvous"
    CHECKPOINT_LOAD = "checkpoint_load"
    FIRST_STEP = "first_step"
    SUSPENDED = "suspended"
    HELD = "held"
    UNKNOWN = "unknown"


PHASES: Final = tuple(Activity)[4:17]
"""The phases of an incident, in the order of time."""
OF_FIRST_STEP: Final = PHASES[8:12]
"""Parts of the first step, which only members have."""


@dataclass(frozen=True, slots=True)
class Look:
    """How an activity is shown."""

    words: str
    glyph: str
    """In a terminal; a letter for phases, which need no colour."""
    ascii: str
    style: str
    """In a terminal."""
    light: str
    dark: str
    wait: str = ""
    """The wait for a member, with a place for its name."""

    @property
    def colour(self) -> str:
        """The colour of a bar in a terminal."""
        return self.style.rpartition(" ")[2]


LOOKS: Final = {
    Activity.WAITING: Look("waits to start", "░", "-", "dim", "#c3cad3", "#4b5563"),
    Activity.STARTING: Look("starts, no step yet", "▒", "+", "cyan", "#93c5fd", "#3b6ea8"),
    Activity.RUNNING: Look("runs", "█", "=", "green", "#3f9a63", "#3c9961"),
    Activity.LOST: Look("lost, done again", "▓", "%", "yellow", "#e8a317", "#d9991a"),
    Activity.DETECT: Look("detect", "d", "d", "bold white on red", "#b91c1c", "#f87171"),
    Activity.STOP: Look("stop", "s", "s", "black on yellow", "#e4572e", "#f0764f", "{} to stop"),
    Activity.REPLACE: Look("replace", "r", "r", "bold white on magenta", "#9333ea", "#b57bee", "the new pod of {}"),
    Activity.BACK_OFF: Look("back-off", "w", "w", "black on white", "#7c5c2e", "#a98553"),
    Activity.BARRIER: Look("barrier", "b", "b", "bold white on blue", "#1d4ed8", "#6d93f5"),
    Activity.EVIDENCE: Look("evidence", "e", "e", "bold white on bright_black", "#475569", "#94a3b8"),
    Activity.CHECK: Look("check", "c", "c", "black on bright_red", "#be185d", "#f472b6"),
    Activity.START: Look("start", "t", "t", "black on cyan", "#0891b2", "#3cc0dd", "{} to start"),
    Activity.LAUNCH: Look(
        "launch", "n", "n", "black on bright_yellow", "#0d9488", "#2dd4bf", "the ranks of {} to start"
    ),
    Activity.IMPORTS: Look("imports", "i", "i", "black on bright_magenta", "#a21caf", "#e879f9", "the imports of {}"),
    Activity.RENDEZVOUS: Look(
        "rendezvous", "v", "v", "black on bright_white", "#b45309", "#fbbf24", "{} to join its process group"
    ),
    Activity.CHECKPOINT_LOAD: Look(
        "load", "l", "l", "black on bright_green", "#65a30d", "#b3e35b", "{} to load its checkpoint"
    ),
    Activity.FIRST_STEP: Look(
        "first step", "f", "f", "black on bright_cyan", "#86cfa4", "#8fdcb0", "the first step of {}"
    ),
    Activity.SUSPENDED: Look("suspended", "z", "z", "black on bright_blue", "#a5a8e0", "#6366a8"),
    Activity.HELD: Look("held", "h", "h", "black on bright_yellow", "#f3d04e", "#a68a1f"),
    Activity.UNKNOWN: Look("not in the status", "·", ".", "dim", "", ""),
}
"""In the order of a legend."""


def activity_of(member: IncidentMember) -> Activity:
    return Activity(to_snake(member.phase))


def phase_named(stored: str, incident: Incident) -> Activity:
    """Return the phase of an incident whose duration the status has under this name."""
    evidence = stored == Activity.BARRIER and incident.outcome in {"Failed", "Held"}
    return Activity.EVIDENCE if evidence else Activity(stored)


def phase_of(activity: Activity) -> Activity:
    """Return the phase of the incident to which a member's activity belongs."""
    return Activity.FIRST_STEP if activity in OF_FIRST_STEP else activity
