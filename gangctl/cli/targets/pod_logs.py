"""Logs of pods on a cluster: the subresource ``log``, followed over broken connections without a line twice."""

from __future__ import annotations

import asyncio
from typing import Final

from gangctl.cli.errors import UserError
from gangctl.cli.output import print_err
from gangctl.cli.targets.port import LogOptions, Sink
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube.client import Client

MOST_FOLLOWED: Final = 100
"""So many logs are followed at once: each is a connection that the API server and a kubelet keep."""
AGAIN_SECONDS: Final = 1.0
"""After a connection broke."""
_SECONDS: Final = len("2026-01-31T12:00:00")
_FRACTION: Final = len("2026-01-31T12:00:00.123456789")
"""Where the zone begins: the kubelet writes all nine digits."""


async def stream_logs(
    client: Client, namespace: str, options: LogOptions, pods: dict[str, tuple[str, str]], sink: Sink
) -> None:
    """Give the logs, member by member, or all at once while they are followed.

    ``pods``: member -> its pod's name and the container's.

    Raises:
        UserError: too many are to be followed.
        ClusterError: a log can't be read.
    """
    logs = [
        _Log(client, f"/api/v1/namespaces/{namespace}/pods/{pod}/log", container, member, options, sink)
        for member, (pod, container) in pods.items()
    ]
    if not options.follow:
        failures = [failure for log in logs if (failure := await log.read()) is not None]
    elif len(logs) > MOST_FOLLOWED:
        raise UserError(
            f"at most {MOST_FOLLOWED} logs are followed at once, not {len(logs)}: name a member or a --rank"
        )
    else:
        failures = [one for one in await asyncio.gather(*(log.follow() for log in logs)) if one is not None]
    if len(failures) == len(logs):
        raise failures[0]
    for failure in failures:
        print_err(str(failure))


class _Log:
    """One container's log. Lines come with their times, which are unique enough to go on from."""

    def __init__(self, client: Client, path: str, container: str, member: str, options: LogOptions, sink: Sink) -> None:
        self._client = client
        self._path = path
        self._member = member
        self._sink = sink
        self._last = b""
        """Time of the last line that was given."""
        self._given: set[bytes] = set()
        """The lines of that very time."""
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
        """Until the container has ended; what is in the way. Silence is broken by those in between: it goes on then."""
        while True:
            failure = await self.read()
            if not isinstance(failure, Retryable):
                return failure
            await asyncio.sleep(AGAIN_SECONDS)

    async def read(self) -> ClusterError | None:
        """To the end of the log, or of what comes while it is followed; what is in the way."""
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
            # The API server knows whole seconds; what it tells twice is left out when it goes on.
            self._query["sinceTime"] = (time[:_SECONDS] + time[_FRACTION:]).decode(errors="replace")
        self._given.add(text)
        self._sink(self._member, text)
