"""Fencing: what supervisors are told to do without a controller, as the status keeps it."""

from __future__ import annotations

from gangctl.api.model import Model


class Fencing(Model):
    """When a supervisor without a controller has stopped its worker, by what it was told."""

    revision: int
    """Revision of these values; reports return it."""
    isolation_seconds: int | None = None
    """Seconds without a controller after which a supervisor stops its worker; absent for never."""
    stop_grace_seconds: int
    """Seconds that the worker has to stop."""
    longest_isolation_seconds: int | None = None
    """Longest isolation in seconds that a supervisor whose worker may run can still use; absent for no limit."""
    longest_stop_grace_seconds: int
    """Longest stop grace period in seconds that it can still use."""
