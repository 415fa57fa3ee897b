"""Reads what workers at fault printed, beside the decisions: neither a restart nor a pod ever waits for it.

The rule: a query of the newest plan is made once. What can't be read counts as nothing. An answer that comes when
another query was made meanwhile is dropped. At most ``AT_ONCE`` logs are read at the same time, for all gangs together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.port import Cluster
from gangctl.core.facts.printed import OutputRead, Printed, ReadOutput
from gangctl.telemetry import logs

log = logging.getLogger(__name__)

AT_ONCE: Final = 8


class OutputReader:
    """The newest query and answer of each gang."""

    def __init__(self, cluster: Cluster, wake: Callable[[str], None]) -> None:
        """``wake``: called with a gang's UID when there is an answer that says something."""
        self._cluster = cluster
        self._wake = wake
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._queries: dict[str, ReadOutput] = {}
        self._answers: dict[str, OutputRead] = {}

    def want(self, tasks: asyncio.TaskGroup, job: GangJob, queries: Iterable[ReadOutput]) -> None:
        """Make the query of a plan, unless it was made. ``job``: the stored object from which it follows."""
        uid = job.metadata.uid
        for query in queries:
            if self._queries.get(uid) != query:
                self._queries[uid] = query
                tasks.create_task(self._read(job, query), name=f"output of gang {job.metadata.name}")

    def answer(self, uid: str) -> OutputRead | None:
        """The newest answer for a gang."""
        return self._answers.get(uid)

    def forget(self, uid: str) -> None:
        """The gang is gone."""
        self._queries.pop(uid, None)
        self._answers.pop(uid, None)

    async def _read(self, job: GangJob, query: ReadOutput) -> None:
        uid, printed = job.metadata.uid, Printed()
        logs.set_gang(job)
        async with self._slots:
            if self._queries.get(uid) != query:
                return
            try:
                printed = await self._cluster.printed(job, query)
            except ClusterError as error:
                log.warning(
                    "what %s printed last can't be read, and the incident does without: %s", query.member, error
                )
            except Exception:
                log.exception("reading what %s printed last crashed, which is a bug", query.member)
        if self._queries.get(uid) == query:
            self._answers[uid] = OutputRead(query, printed)
            if printed.lines:
                self._wake(uid)
