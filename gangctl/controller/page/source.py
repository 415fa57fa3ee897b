"""Where the page's contents come from: what the controller knows at this moment. It makes no request."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gangctl.api.gangjob import GangJob
from gangctl.cluster.port import Cluster
from gangctl.controller.loop import Loop
from gangctl.core.facts.world import Observed
from gangctl.story.incidents import TRACES, is_address

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """The gangs of one controller."""

    cluster: Cluster
    loop: Callable[[], Loop | None]
    """None while this controller doesn't lead."""
    leader: Callable[[], str] = lambda: ""
    """URL of the page of the controller that leads; empty if that is not known."""
    traces: str = ""
    """Address of Jaeger's pages; empty if it is not known."""

    def jobs(self) -> Iterator[GangJob]:
        """All gangs that can be read."""
        return (job for uid in self.cluster.uids() if (job := self.cluster.gang(uid)) is not None)

    def unreadable(self) -> int:
        """How many gangs this release can't read."""
        loop = self.loop()
        return 0 if loop is None else loop.unreadable.count

    def look(self, namespace: str, name: str) -> tuple[GangJob, Observed] | None:
        """A gang, and what is observed of it."""
        loop = self.loop()
        of_name = (job for job in self.jobs() if (job.metadata.namespace, job.metadata.name) == (namespace, name))
        job = next(of_name, None)
        return None if job is None or loop is None else (job, loop.observed(job.metadata.uid))


def traces_from_environment() -> str:
    """Address of Jaeger's pages; empty if it is not set, or can't be used, which the log tells."""
    text = os.environ.get(TRACES, "")
    if text and not is_address(text):
        log.warning("the page has no links to traces: $%s is %r, which is no http or https address", TRACES, text)
        return ""
    return text.rstrip("/")
