"""What happens to a supervisor (events) and what it is to do about it (effects): the words of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

from . import wire


@dataclass(frozen=True)
class Identity:
    """Whose supervisor this is: one pod of one member of one gang."""

    gang: str
    member: str
    incarnation: int
    pod: str
    address: str = ""


# Events: besides these, Directive, Ping, Checkpoint, Dropped, Loaded, Progress and Request as they come from the wire.


@dataclass(frozen=True)
class Exited:
    """A process that Spawn started has ended and was reaped (or could not be executed)."""

    local_rank: int
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    oom: bool = False
    hidden: bool = False
    message: str = ""


@dataclass(frozen=True)
class TreeGone:
    """No process of any worker is left, whatever session or parent it gave itself."""


@dataclass(frozen=True)
class Started:
    """Every process of the newest Spawn was executed."""


@dataclass(frozen=True)
class PortsFound:
    """The answer to FindPorts; empty if none is free."""

    attempt: int
    ports: Tuple[int, ...]


@dataclass(frozen=True)
class RestoreSeen:
    """The answer to LookForRestore: the folder is there."""

    attempt: int


@dataclass(frozen=True)
class RestoreMissing:
    """The answer to LookForRestore: it isn't, also after some retries."""

    attempt: int


@dataclass(frozen=True)
class Terminate:
    """SIGTERM to the supervisor itself: its pod is to end."""


@dataclass(frozen=True)
class Tick:
    """The time of :func:`deadline` has come."""


Event = Union[
    wire.Directive,
    wire.Ping,
    wire.Checkpoint,
    wire.Dropped,
    wire.Loaded,
    wire.Progress,
    wire.Request,
    Exited,
    TreeGone,
    Started,
    PortsFound,
    RestoreSeen,
    RestoreMissing,
    Terminate,
    Tick,
]


# Effects


@dataclass(frozen=True)
class Spawn:
    """Start these processes; answered by Started, one Exited a process, and TreeGone."""

    attempt: int
    run: wire.Run


@dataclass(frozen=True)
class LookForRestore:
    """Is this folder there? Answered by RestoreSeen or, after some retries, RestoreMissing."""

    attempt: int
    restore: wire.Restore


@dataclass(frozen=True)
class FindPorts:
    """Look for a few free ports among ``base .. base + count - 1``; always answered by PortsFound."""

    attempt: int
    base: int
    count: int


@dataclass(frozen=True)
class Signal:
    """Send this signal to every process of the worker's tree."""

    signum: int


@dataclass(frozen=True)
class KillTree:
    """SIGKILL every process of the worker's tree, again and again until TreeGone."""


@dataclass(frozen=True)
class Save:
    """Keep ``state.evidence`` (ends and checkpoints) for the next session; after Send, never in its way."""


@dataclass(frozen=True)
class Send:
    """The report has changed: send it (once for a batch of steps)."""


@dataclass(frozen=True)
class End:
    """End with exit code 0, after the last report had a chance to be sent."""


Effect = Union[Spawn, LookForRestore, FindPorts, Signal, KillTree, Save, Send, End]
Effects = Tuple[Effect, ...]
