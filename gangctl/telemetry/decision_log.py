"""The decision log: one line for each decision that changed something, with its reason.

The rule: the same line must not come twice in a row, since a retried action or a refreshed summary is no new decision.
"""

from __future__ import annotations

import logging

from gangctl.api.gangjob import GangJob
from gangctl.core.lifecycle.plan import Action, Plan

log = logging.getLogger(__name__)


class DecisionLog:
    """The log of one gang's decisions."""

    def __init__(self) -> None:
        self._last: tuple[int, str, str, tuple[Action, ...]] | None = None

    def decided(self, job: GangJob, plan: Plan) -> None:
        """Log a plan whose status is stored in ``job``."""
        if plan.status is None and not plan.actions and not plan.events:
            return
        attempt, phase = job.status.attempt, job.status.phase.value
        line = (attempt, phase, plan.because, plan.actions)
        if line == self._last:
            return
        self._last = line
        extra = {"phase": phase, "because": plan.because, "actions": [type(action).__name__ for action in plan.actions]}
        log.info("%s: %s", phase, plan.because, extra=extra)
