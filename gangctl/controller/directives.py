"""Directives for members. What all members of a gang share is computed once for each stored object."""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.core.lifecycle.directive import Directives
from gangsidecar.wire import Directive, Report


class DirectiveCache:
    """Keeps what the members of each gang share, as of its newest stored object."""

    def __init__(self) -> None:
        self._newest: dict[str, Directives] = {}

    def directive(self, job: GangJob, report: Report) -> Directive | None:
        """The directive for the supervisor that sent ``report``, from the stored ``job``."""
        directives = self._newest.get(job.metadata.uid)
        if directives is None or directives.job is not job:
            directives = self._newest[job.metadata.uid] = Directives(job)
        return directives.of(report)
