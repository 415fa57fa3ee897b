"""The port of telemetry: what the loop reports to traces and metrics.

The rule: no method waits or raises, so no decision depends on telemetry.
"""

import logging
from collections.abc import Callable

from gangctl.api.gangjob import GangJob

log = logging.getLogger(__name__)


class Telemetry:
    """Observes one loop, which is one term of one leader. Durations are in seconds. A method does nothing by itself."""

    def round_began(self, job: GangJob) -> None:
        """A round of the loop begins with this stored object."""

    def decision_finished(self, seconds: float) -> None:
        """Note how long a decision took."""

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        """A status was stored, which took this long."""

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        """An action (the name of its type) succeeded (``done``) or failed after this long."""

    def gang_gone(self, uid: str) -> None:
        """A gang does not exist any more."""


class TelemetryFanout:
    """Reports to several. An error in one of them is logged; it affects neither the others nor a gang."""

    def __init__(self, *parts: Telemetry) -> None:
        self._parts = parts
        self._failed: set[Telemetry] = set()
        """Those whose first error was logged."""

    def report(self, report: Callable[[Telemetry], None]) -> None:
        """Call a method of each."""
        for one in self._parts:
            try:
                report(one)
            except Exception:
                if one not in self._failed:
                    self._failed.add(one)
                    log.exception("%s has failed, which is a bug; gangs are not affected", type(one).__name__)
