"""Says in the log what was decided: one line for each decision that changed something, with its reason.

Never the same line twice in a row: what is tried again, or is brought up to date every half a minute, is no news.
"""

from __future__ import annotations

import logging

from gangctl.api.gangjob import GangJob
from gangctl.core.lifecycle.plan import Action, Plan

log = logging.getLogger(__name__)


class DecisionLog:
    """Of one gang."""

    def __init__(self) -> None:
        self._said: tuple[int, str, str, tuple[Action, ...]] | None = None

    def decided(self, job: GangJob, plan: Plan) -> None:
        """Say it. The status is stored."""
        if plan.status is None and not plan.actions and not plan.events:
            return
        attempt, phase = job.status.attempt, job.status.phase.value
        line = (attempt, phase, plan.because, plan.actions)
        if line == self._said:
            return
        self._said = line
        told = {"phase": phase, "because": plan.because, "actions": [type(action).__name__ for action in plan.actions]}
        log.info("%s: %s", phase, plan.because, extra=told)
