"""Who is told what the loop does: traces and metrics. Nothing here waits or raises, so no decision depends on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from gangctl.api.gangjob import GangJob

log = logging.getLogger(__name__)


class Telemetry(Protocol):
    """Listens to one loop, which is one term of one leader. Times are in seconds."""

    def round_began(self, job: GangJob) -> None:
        """A round begins with the gang as it is stored: at the start of a term, after each write, in between."""

    def decided(self, seconds: float) -> None:
        """A plan was made within so long."""

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        """The status was stored within so long."""

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        """An action (name of its type) was carried out, or has failed, within so long."""

    def gang_gone(self, uid: str) -> None:
        """A gang isn't there any more."""


class TelemetryFanout:
    """Tells several. A mistake in one is logged and stops neither the others nor any gang."""

    def __init__(self, *listeners: Telemetry) -> None:
        self._listeners = listeners
        self._mistaken: set[Telemetry] = set()
        """Those of whom a mistake was logged."""

    def round_began(self, job: GangJob) -> None:
        """See :class:`Telemetry`."""
        self._tell(lambda one: one.round_began(job))

    def decided(self, seconds: float) -> None:
        """See :class:`Telemetry`."""
        self._tell(lambda one: one.decided(seconds))

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        """See :class:`Telemetry`."""
        self._tell(lambda one: one.status_written(before, after, seconds))

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        """See :class:`Telemetry`."""
        self._tell(lambda one: one.action_finished(action, seconds, done=done))

    def gang_gone(self, uid: str) -> None:
        """See :class:`Telemetry`."""
        self._tell(lambda one: one.gang_gone(uid))

    def _tell(self, tell: Callable[[Telemetry], None]) -> None:
        for one in self._listeners:
            try:
                tell(one)
            except Exception:
                if one not in self._mistaken:
                    self._mistaken.add(one)
                    log.exception("%s is wrong from now on, which is a bug; gangs aren't affected", type(one).__name__)
