"""Logs of pods on a cluster, through the ``log`` subresource; following resumes after a broken connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from operator import itemgetter
from typing import Any, Final

from gangctl.api.names import SIDECAR
from gangctl.cli.errors import UserError
from gangctl.cli.printers.output import check_reader, print_err
from gangctl.cli.targets.own_lines import own_part, workers_part
from gangctl.cli.targets.port import LogOptions, LogSource, Sink
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube.client import Client

MOST_FOLLOWED: Final = 100
"""Maximum number of logs to follow at once: each one is a connection to the API server and a kubelet."""
RECONNECT_SECONDS: Final = 1.0
"""Pause before a reconnect."""
READER_SECONDS: Final = 0.25
"""Interval at which is looked whether the reader of what is followed is still there."""
OTHER_LINES: Final = 32
"""So many lines more than --tail names are asked for at first, because some are left out."""
_SECONDS: Final = len("2026-01-31T12:00:00")
_FRACTION: Final = len("2026-01-31T12:00:00.123456789")
"""Length of a timestamp without its zone: the kubelet writes all nine digits."""
_Line = tuple[bytes, bytes]
"""Time and text."""
_Part = Callable[[bytes], bytes | None]
"""What is shown of a line; None: nothing."""


async def stream_logs(
    client: Client, namespace: str, options: LogOptions, pods: dict[str, tuple[str, str]], sink: Sink
) -> None:
    """Pass the logs to the sink: member by member, or concurrently if they are followed.

    ``pods``: member -> name of its pod and of the worker's container.

    Raises:
        UserError: too many logs to follow.
        ClusterError: no log can be read.
        BrokenPipeError: the reader of the output is gone.
    """
    logs = {
        member: [
            _Log(client, f"/api/v1/namespaces/{namespace}/pods/{pod}/log", name, part, options)
            for name, part in _containers(options.source, container)
        ]
        for member, (pod, container) in pods.items()
    }
    count = sum(map(len, logs.values()))
    if options.follow and count > MOST_FOLLOWED:
        raise UserError(
            f"at most {MOST_FOLLOWED} logs can be followed at once, not {count}: select a member or a --rank"
        )
    if options.follow:
        failures = await _followed([_follow(member, its, options, sink) for member, its in logs.items()])
    else:
        failures = [one for member, its in logs.items() for one in await _print(member, its, options, sink)]
    if len(failures) == count:
        raise failures[0]
    for failure in failures:
        print_err(str(failure))


def _containers(source: LogSource, worker: str) -> Sequence[tuple[str, _Part]]:
    """The containers whose logs have what is asked for, and which part of their lines it is."""
    match source:
        case LogSource.WORKER:
            return ((worker, workers_part),)
        case LogSource.SIDECAR:
            return ((SIDECAR, bytes),)
        case LogSource.GANGCTL:
            return (worker, own_part), (SIDECAR, bytes)


async def _followed(members: Sequence[Coroutine[Any, Any, list[ClusterError]]]) -> list[ClusterError]:
    """Wait for all of them, as long as there is a reader."""
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_watch_reader())
        following = [tasks.create_task(one) for one in members]
        await asyncio.wait(following)
        watching.cancel()
    return [failure for one in following for failure in one.result()]


async def _watch_reader() -> None:
    while True:
        check_reader()
        await asyncio.sleep(READER_SECONDS)


async def _print(member: str, logs: Sequence[_Log], options: LogOptions, sink: Sink) -> list[ClusterError]:
    """Pass what is there now; return the errors."""
    if len(logs) == 1 and options.tail is None:
        failure = await logs[0].read(lambda line: sink(member, line[1]))
        return [] if failure is None else [failure]
    lines: list[_Line] = []
    failures = [failure for log in logs if (failure := await log.last(options.tail, lines)) is not None]
    lines.sort(key=itemgetter(0))
    for _, text in lines if options.tail is None else lines[max(0, len(lines) - options.tail) :]:
        sink(member, text)
    return failures


async def _follow(member: str, logs: Sequence[_Log], options: LogOptions, sink: Sink) -> list[ClusterError]:
    """Pass what is there and what comes; return the errors."""
    if options.tail is not None or len(logs) > 1:
        failures = [one for one in await _print(member, logs, options, sink) if not isinstance(one, Retryable)]
        if len(failures) == len(logs):
            return failures
    found = await asyncio.gather(*(log.follow(lambda line: sink(member, line[1])) for log in logs))
    return [one for one in found if one is not None]


class _Log:
    """Log of one container. Lines have timestamps, which are precise enough to resume from."""

    def __init__(self, client: Client, path: str, container: str, part: _Part, options: LogOptions) -> None:
        self._client = client
        self._path = path
        self._part = part
        self._query = {"container": container, "timestamps": "true"}
        if options.previous:
            self._query["previous"] = "true"
        self._from = {} if options.since is None else {"sinceSeconds": str(options.since)}
        """Where to begin."""
        self._last = b""
        """Timestamp of the last line read."""
        self._given: set[bytes] = set()
        """Lines read with this timestamp."""
        self._count = 0
        """Number of lines read."""

    async def last(self, tail: int | None, lines: list[_Line]) -> ClusterError | None:
        """Add the last lines, all without ``tail``. Return the error."""
        begin = self._from
        ask = 0 if tail is None else tail + OTHER_LINES
        while True:
            self._from = {**begin, **({} if tail is None else {"tailLines": str(ask)})}
            self._last, self._given, self._count = b"", set(), 0
            found: list[_Line] = []
            failure = await self.read(found.append)
            if failure is not None or tail is None or len(found) >= tail or self._count < ask:
                lines += found
                if not self._last:
                    self._from = begin
                return failure
            ask *= 8

    async def follow(self, take: Callable[[_Line], None]) -> ClusterError | None:
        """Follow the log until the container ends, and reconnect if a proxy cuts the connection. Return the error."""
        self._query["follow"] = "true"
        while True:
            failure = await self.read(take)
            if not isinstance(failure, Retryable):
                return failure
            await asyncio.sleep(RECONNECT_SECONDS)

    async def read(self, take: Callable[[_Line], None]) -> ClusterError | None:
        """Read to the end of the log or of the connection. Return the error."""
        last, given = self._last, frozenset(self._given)
        gone: BrokenPipeError | None = None
        try:
            async with self._client.lines(self._path, query={**self._query, **self._from}) as lines:
                async for line in lines:
                    time, _, text = line.partition(b" ")
                    if time > last or (time == last and text not in given):
                        try:
                            self._take(time, text, take)
                        except BrokenPipeError as error:
                            gone = error  # The client would take it for an error of the network.
                            break
        except ClusterError as error:
            return error
        if gone is not None:
            raise gone
        return None

    def _take(self, time: bytes, text: bytes, take: Callable[[_Line], None]) -> None:
        self._count += 1
        if time != self._last:
            self._last, self._given = time, set()
            # sinceTime has whole seconds, so repeated lines are skipped after a reconnect
            self._from = {"sinceTime": (time[:_SECONDS] + time[_FRACTION:]).decode(errors="replace")}
        self._given.add(text)
        part = self._part(text)
        if part is not None:
            take((time, part))
