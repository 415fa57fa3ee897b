"""The decision log: one line for each decision that changed something, with its reason.

The rule: the same line must not come twice in a row, since a retried action or a refreshed summary is no new decision.
Nor is a plan that only still wants what the one before wanted: its actions are under way.
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
        self._wanted: frozenset[Action] = frozenset()
        """By the plan before."""

    def decided(self, job: GangJob, plan: Plan) -> None:
        """Log a plan whose status is stored in ``job``."""
        before, self._wanted = self._wanted, frozenset(plan.actions)
        if plan.status is None and not plan.events and self._wanted <= before:
            return
        attempt, phase = job.status.attempt, job.status.phase.value
        line = (attempt, phase, plan.because, plan.actions)
        if line == self._last:
            return
        self._last = line
        extra = {"phase": phase, "because": plan.because, "actions": [type(action).__name__ for action in plan.actions]}
        log.info("%s: %s", phase, plan.because, extra=extra)
