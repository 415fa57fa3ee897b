"""Logs of pods on a cluster, through the ``log`` subresource; following resumes after a broken connection."""

from __future__ import annotations

import asyncio
from typing import Final

from gangctl.cli.errors import UserError
from gangctl.cli.output import print_err
from gangctl.cli.targets.port import LogOptions, Sink
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube.client import Client

MOST_FOLLOWED: Final = 100
"""Maximum number of logs to follow at once: each one is a connection to the API server and a kubelet."""
RECONNECT_SECONDS: Final = 1.0
"""Pause before a reconnect."""
_SECONDS: Final = len("2026-01-31T12:00:00")
_FRACTION: Final = len("2026-01-31T12:00:00.123456789")
"""Length of a timestamp without its zone: the kubelet writes all nine digits."""


async def stream_logs(
    client: Client, namespace: str, options: LogOptions, pods: dict[str, tuple[str, str]], sink: Sink
) -> None:
    """Pass the logs to the sink: member by member, or concurrently if they are followed.

    ``pods``: member -> name of its pod and of the container.

    Raises:
        UserError: too many logs to follow.
        ClusterError: no log can be read.
    """
    logs = [
        _Log(client, f"/api/v1/namespaces/{namespace}/pods/{pod}/log", container, member, options, sink)
        for member, (pod, container) in pods.items()
    ]
    if not options.follow:
        failures = [failure for log in logs if (failure := await log.read()) is not None]
    elif len(logs) > MOST_FOLLOWED:
        raise UserError(
            f"at most {MOST_FOLLOWED} logs can be followed at once, not {len(logs)}: select a member or a --rank"
        )
    else:
        failures = [one for one in await asyncio.gather(*(log.follow() for log in logs)) if one is not None]
    if len(failures) == len(logs):
        raise failures[0]
    for failure in failures:
        print_err(str(failure))


class _Log:
    """Log of one container. Lines have timestamps, which are precise enough to resume from."""

    def __init__(self, client: Client, path: str, container: str, member: str, options: LogOptions, sink: Sink) -> None:
        self._client = client
        self._path = path
        self._member = member
        self._sink = sink
        self._last = b""
        """Timestamp of the last line passed."""
        self._given: set[bytes] = set()
        """Lines passed with this timestamp."""
        self._query = {"container": container, "timestamps": "true"}
        if options.previous:
            self._query["previous"] = "true"
        if options.follow:
            self._query["follow"] = "true"
        if options.tail is not None:
            self._query["tailLines"] = str(options.tail)
        if options.since is not None:
            self._query["sinceSeconds"] = str(options.since)

    async def follow(self) -> ClusterError | None:
        """Follow the log until the container ends, and reconnect if a proxy cuts the connection. Return the error."""
        while True:
            failure = await self.read()
            if not isinstance(failure, Retryable):
                return failure
            await asyncio.sleep(RECONNECT_SECONDS)

    async def read(self) -> ClusterError | None:
        """Read to the end of the log or of the connection. Return the error."""
        last, given = self._last, frozenset(self._given)
        try:
            async with self._client.lines(self._path, query=self._query) as lines:
                async for line in lines:
                    time, _, text = line.partition(b" ")
                    if time > last or (time == last and text not in given):
                        self._take(time, text)
        except ClusterError as error:
            return error
        return None

    def _take(self, time: bytes, text: bytes) -> None:
        if time != self._last:
            self._last, self._given = time, set()
            self._query.pop("tailLines", None)
            self._query.pop("sinceSeconds", None)
            # sinceTime has whole seconds, so repeated lines are skipped after a reconnect
            self._query["sinceTime"] = (time[:_SECONDS] + time[_FRACTION:]).decode(errors="replace")
        self._given.add(text)
        self._sink(self._member, text)
