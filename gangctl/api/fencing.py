"""Fencing: what supervisors are told to do without a controller, as the status keeps it."""

from __future__ import annotations

from gangctl.api.model import Model


class Fencing(Model):
    """By when a supervisor that no controller reaches has stopped its worker, by what it was told."""

    revision: int
    """Number of the values that supervisors are told now. It grows with each change; their reports return it."""
    isolation_seconds: int | None = None
    """Seconds without a controller after which a supervisor stops its worker; never, if absent."""
    stop_grace_seconds: int
    """Seconds that it gives its worker to stop."""
    longest_isolation_seconds: int | None = None
    """The most seconds of isolation that a supervisor whose worker may run can still go by; no limit, if absent."""
    longest_stop_grace_seconds: int
    """The most seconds to stop that it can still go by."""
