"""A snapshot: what the controller knows of a gang this moment, beyond what is worth a status write.

The controller answers with it, and the CLI shows it. Steps are reported many times a second and stored every half
minute; a reader who watches wants to see them move.
"""

from __future__ import annotations

from gangctl.api.model import Model, Timestamp
from gangctl.api.status import Status


class Endpoint(Model):
    """Where the controller answers with snapshots, and what a reader shows as ``Authorization: Bearer TOKEN``."""

    url: str
    token: str


class MemberSnapshot(Model):
    """One member, as its supervisor told it last."""

    member: str
    role: str
    pod: str = ""
    """Name of its current pod; empty while there is none."""
    incarnation: int
    rank: int | None = None
    """The first of its ranks; absent for a spare and for roles without ranks."""
    spare: bool = False
    """It holds no place now."""
    connected: bool = False
    terminated: bool = False
    phase: str = ""
    """Of the supervisor; empty before it has spoken."""
    attempt: int = 0
    step: int | None = None
    """The newest step that it reported in this attempt."""
    restarts: int = 0
    """How often its supervisor was started again."""


class Snapshot(Model):
    """One gang."""

    name: str
    uid: str
    generation: int
    time: Timestamp
    """When it was taken."""
    status: Status
    """As stored, with progress and the timings of the last incident brought up to date."""
    members: tuple[MemberSnapshot, ...]
