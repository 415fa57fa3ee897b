"""Directives of the newest object of each gang: what is the same for all members is found out once a write."""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.core.lifecycle.directive import Directives
from gangsidecar.wire import Directive, Report


class DirectiveCache:
    """Computes directives for the hub."""

    def __init__(self) -> None:
        self._newest: dict[str, Directives] = {}

    def directive(self, job: GangJob, report: Report) -> Directive | None:
        """What the supervisor that sent ``report`` is told, ``job`` being what is durable."""
        directives = self._newest.get(job.metadata.uid)
        if directives is None or directives.job is not job:
            directives = self._newest[job.metadata.uid] = Directives(job)
        return directives.of(report)
