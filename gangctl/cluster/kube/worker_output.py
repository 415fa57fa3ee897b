"""Read what workers printed last from the logs of their containers.

The rule: only the container of the worker at fault is asked, once: the end of its log and, if that begins after the
attempt, the log of the container before. The kubelet may have the last lines a moment late, so a log that tells nothing
of the end of the process is read once more. Nothing is requested where the installation says so: logs may hold secrets.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import parse_member_name, pod_name
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound, Rejected
from gangctl.core.facts.printed import Printed, ReadOutput, last_lines

TAIL_LINES: Final = 100
"""Lines of the end of a log. A container runtime cuts lines at 16 KiB, so these have at most 1.6 MiB."""
MAX_ANSWER_BYTES: Final = 2 << 20
"""Bytes of an answer. One that has more is not read."""
REQUEST_SECONDS: Final = 3.0
"""For one request: a kubelet that answers later is left alone."""
AGAIN_SECONDS: Final = 0.5


class KubeletLogReader:
    """Reads what workers printed from the kubelets."""

    def __init__(self, client: Client, gang: Callable[[str], GangJob | None], *, enabled: bool) -> None:
        """``gang``: the stored gang of a UID."""
        self._client = client
        self._gang = gang
        self._enabled = enabled

    async def printed(self, job: GangJob, query: ReadOutput) -> Printed:
        role = next((one for one in job.spec.roles if one.name == parse_member_name(query.member)[0]), None)
        if not self._enabled or role is None:
            return Printed()
        path = f"{paths.pod(job.metadata.namespace, pod_name(job.metadata.name, query.member, query.incarnation))}/log"
        options = {"container": role.worker.name, "tailLines": str(TAIL_LINES), "limitBytes": str(MAX_ANSWER_BYTES)}
        found = await self._read(path, options, job, query)
        if not found.is_complete:
            await asyncio.sleep(AGAIN_SECONDS)
            found = await self._read(path, options, job, query)
        return found

    async def _read(self, path: str, options: dict[str, str], job: GangJob, query: ReadOutput) -> Printed:
        """Return what the log of the container tells, or that of the container before."""
        refused: Rejected | None = None
        try:
            log = await self._client.request("GET", path, query=options, timeout=REQUEST_SECONDS, most=MAX_ANSWER_BYTES)
            found = last_lines(log, query.attempt, query.rank, overtaken=self._is_overtaken(job, query))
            if found.lines or found.is_complete or found.has_begin:
                return found
        except NotFound:
            return Printed()
        except Rejected as error:
            refused = error  # The container waits for its next start.
        try:
            before = {**options, "previous": "true"}
            log = await self._client.request("GET", path, query=before, timeout=REQUEST_SECONDS, most=MAX_ANSWER_BYTES)
        except Rejected:
            if refused is not None:
                raise refused from None
            return Printed()
        return last_lines(log, query.attempt, query.rank, overtaken=False)

    def _is_overtaken(self, job: GangJob, query: ReadOutput) -> bool:
        """Return whether a later attempt has started by now."""
        now = self._gang(job.metadata.uid) or job
        return now.status.started_attempt > query.attempt
