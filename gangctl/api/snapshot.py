"""A snapshot: what the controller knows of a gang this moment, beyond what is worth a status write.

The controller answers with it, and the CLI shows it. Steps are reported many times a second and stored every half
minute; a reader who watches wants to see them move.
"""

from __future__ import annotations

from gangctl.api.model import Model, Timestamp
from gangctl.api.status import Status


class Endpoint(Model):
    """Address of the controller's live endpoint, and the token for ``Authorization: Bearer TOKEN``."""

    url: str
    token: str


class MemberSnapshot(Model):
    """One member, according to the last report of its supervisor."""

    member: str
    role: str
    pod: str = ""
    """Name of the current pod; empty if there is none."""
    incarnation: int
    rank: int | None = None
    """First of its ranks; absent for spares and roles without ranks."""
    spare: bool = False
    """Whether the member is a spare now."""
    connected: bool = False
    finished: bool = False
    """Whether its work in this attempt is done: it needs no pod any more."""
    terminated: bool = False
    phase: str = ""
    """Phase of the supervisor, or Ended if a process of its worker has; empty before its first report."""
    attempt: int = 0
    step: int | None = None
    """Newest step that the member reported in this attempt."""
    restarts: int = 0
    """Number of restarts of its supervisor."""


class Snapshot(Model):
    """The snapshot of one gang."""

    name: str
    uid: str
    generation: int
    time: Timestamp
    """Time of the snapshot."""
    status: Status
    """The stored status, with current progress and timings of the last incident."""
    members: tuple[MemberSnapshot, ...]
    unstored: str = ""
    """Why the controller can't store the status, as its message has it; empty if it can."""
