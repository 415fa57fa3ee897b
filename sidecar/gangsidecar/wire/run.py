"""What Run adds to a directive: the processes to start, what they restore, and where their progress is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Restore:
    """The restore point: a checkpoint step that every rank can load."""

    step: int
    tier: str
    path: str = ""
    """The folder, for a tier that is scanned: the supervisor checks that it is there before it starts the worker.
    Empty for a Member tier: each member's own registration knows its path."""


@dataclass(frozen=True)
class Process:
    """One process that Run starts: the user's command with this environment added to the container's own."""

    local_rank: int
    env: tuple[tuple[str, str], ...]
    rank: int | None = None


@dataclass(frozen=True)
class Source:
    """What it looks at, beside the framework API; one of the two is not empty."""

    pattern: str = ""
    """A regular expression with a group ``step``. It is searched in each line of the worker's output."""
    file: str = ""
    """A file whose modification time changes with each step."""


@dataclass(frozen=True)
class Run:
    """What Run adds to a directive. It names the session that reported Ready; another session refuses it."""

    session: str
    processes: tuple[Process, ...]
    restore: Restore | None = None
    checkpointed: bool = False
    """The job has checkpoint tiers: registrations above the restore point (all, if there is none) are dropped."""
    hosts: tuple[str, ...] = ()
    """Lines of the attempt's host file: ``10.0.3.7 slots=8``."""
    source: Source | None = None
    log_patterns: tuple[str, ...] = ()
    """Regular expressions that are searched for in each line of the worker's output."""
