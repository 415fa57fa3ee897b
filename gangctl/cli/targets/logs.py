"""Stream the logs of workers and of gangctl, from the files of this machine or from the kubelets of a cluster.

Files have no timestamps of their own, outlive their pods and may be rotated. The log of a container comes through the
``log`` subresource; following it resumes after a broken connection. In a worker's container, the supervisor writes into
the same log: its lines begin with a time, a level and a name that no worker uses; if the worker has not ended its own
line before, the line of the supervisor follows on it.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gangctl.api.names import SIDECAR
from gangctl.api.status import ENDED
from gangctl.cli.errors import UserError
from gangctl.cli.printers.output import check_reader, print_err
from gangctl.cli.targets.port import LogOptions, LogSource, Sink
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, PodFolder, pods_by_member
from gangctl.cluster.local.log_files import LineReader
from gangsidecar.wire import SUPERVISOR_LOG_NAME

if TYPE_CHECKING:
    from gangctl.cluster.kube.client import Client  # it imports aiohttp, which gangs of this machine don't need

_POLL_SECONDS: Final = 0.1
"""Poll interval of a log that is followed."""
_MOST_FOLLOWED: Final = 100
"""Maximum number of logs to follow at once: each one is a connection to the API server and a kubelet."""
_RECONNECT_SECONDS: Final = 1.0
"""Pause before a reconnect."""
_READER_SECONDS: Final = 0.25
"""Interval of the check whether the reader of a followed log is still there."""
_OTHER_LINES: Final = 32
"""The number of lines to request beyond --tail at first, because some are left out."""
_SECONDS: Final = len("2026-01-31T12:00:00")
_FRACTION: Final = len("2026-01-31T12:00:00.123456789")
"""Length of a timestamp without its zone: the kubelet writes all nine digits."""
_TimedLine = tuple[bytes, bytes]
"""Time and text."""
_Part = Callable[[bytes], bytes | None]
"""The part of a line to show; None: nothing."""
_TIME: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_OWN: Final = re.compile(_TIME + rb" (?:info|warning|error) " + SUPERVISOR_LOG_NAME.encode() + rb": ")
_STAMPED: Final = re.compile(rb"(" + _TIME + rb") ")


def stream_files(store: GangStore, options: LogOptions, sink: Sink) -> None:
    """Pass the logs of this machine to the sink, member by member; with ``follow`` until nothing can be written."""
    if options.since is not None:
        raise UserError("logs of this machine have no timestamps: use --tail LINES instead of --since")
    pods = _chosen(store.folder, options)
    if not pods:
        which = "no earlier pod" if options.previous else "no pod yet"
        raise UserError(f"there is no log: {', '.join(options.members[:8])} had {which}")
    logs = {member: _FileLog(member, options.source, sink, pods.get(member)) for member in options.members}
    for log in logs.values():
        log.begin(options.tail)
    while options.follow:
        is_last = not _may_grow(store)
        pods = _chosen(store.folder, options)
        for member, log in logs.items():
            log.poll(pods.get(member))
        if is_last:
            break
        check_reader(_POLL_SECONDS)
    for log in logs.values():
        log.end()


def _may_grow(store: GangStore) -> bool:
    """Return whether a process of the gang may still write: not once it has ended with its pods, or was removed."""
    try:
        has_ended = store.read().status.phase in ENDED
        return not has_ended or not all(one.terminated for one in pod_record.load_all(store.folder))
    except ClusterError:
        return store.stamp() is not None  # A damaged file may be restored.


class _FileLog:
    """The log of one member, of one file or of several whose lines have times. Its pod may be replaced."""

    def __init__(self, member: str, source: LogSource, sink: Sink, pod: PodFolder | None) -> None:
        self._member = member
        self._source = source
        self._sink = sink
        self._open(pod)

    def begin(self, tail: int | None) -> None:
        """Pass the existing lines, or the last ones."""
        self._pass(self._new() if tail is None else deque(self._new(), tail))

    def poll(self, newest: PodFolder | None) -> None:
        """Pass the lines that were added since. If the member has another pod, the one before has ended."""
        self._pass(self._new())
        if newest not in {None, self._pod}:
            self.end()
            self._open(newest)
            self._pass(self._new())

    def end(self) -> None:
        """Pass a last line without a newline."""
        self._pass(line for one in self._files for line in one.rest())

    def _open(self, pod: PodFolder | None) -> None:
        self._pod = pod
        self._files = [] if pod is None else [LineReader(path) for path in _files(pod, self._source)]

    def _new(self) -> Iterator[bytes]:
        logs = [one.new() for one in self._files]
        return in_order(logs) if len(logs) > 1 else chain.from_iterable(logs)

    def _pass(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._sink(self._member, line)


def _files(pod: PodFolder, source: LogSource) -> tuple[Path, ...]:
    match source:
        case LogSource.WORKER:
            return (pod.worker_log,)
        case LogSource.SIDECAR:
            return (pod.sidecar_log,)
        case LogSource.GANGCTL:
            return pod.supervisor_log, pod.sidecar_log


def _chosen(folder: GangFolder, options: LogOptions) -> dict[str, PodFolder]:
    """By member, the newest pod, or the one before; if it had only one, the newest of the gang before."""
    found = pods_by_member(folder.pods)
    if options.previous:
        before = pods_by_member(folder.before)
        found = {one: [*before.get(one, ()), *found.get(one, ())[:-1]] for one in options.members}
    return {one: found[one][-1] for one in options.members if found.get(one)}


async def stream_pods(
    client: Client, namespace: str, options: LogOptions, pods: dict[str, tuple[str, str]], sink: Sink
) -> None:
    """Pass the logs to the sink: member by member, or concurrently if they are followed.

    ``pods``: member -> name of its pod and of the worker's container.
    """
    logs = {
        member: [
            _ContainerLog(client, f"/api/v1/namespaces/{namespace}/pods/{pod}/log", name, part, options)
            for name, part in _containers(options.source, container)
        ]
        for member, (pod, container) in pods.items()
    }
    count = sum(map(len, logs.values()))
    if options.follow and count > _MOST_FOLLOWED:
        raise UserError(
            f"at most {_MOST_FOLLOWED} logs can be followed at once, not {count}: select a member or a --rank"
        )
    if options.follow:
        failures = await _followed([_follow(member, its, options, sink) for member, its in logs.items()])
    else:
        failures = [one for member, its in logs.items() for one in await _print_now(member, its, options, sink)]
    if len(failures) == count:
        raise failures[0]
    for failure in failures:
        print_err(str(failure))


def _containers(source: LogSource, worker: str) -> Sequence[tuple[str, _Part]]:
    """The containers whose logs have what is asked for, and the part of their lines that it is."""
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
        await asyncio.sleep(_READER_SECONDS)


async def _print_now(member: str, logs: Sequence[_ContainerLog], options: LogOptions, sink: Sink) -> list[ClusterError]:
    """Pass what is there now; return the errors."""
    if len(logs) == 1 and options.tail is None:
        failure = await logs[0].read(lambda line: sink(member, line[1]))
        return [] if failure is None else [failure]
    lines: list[_TimedLine] = []
    failures = [failure for log in logs if (failure := await log.last(options.tail, lines)) is not None]
    lines.sort(key=itemgetter(0))
    for _, text in lines if options.tail is None else lines[max(0, len(lines) - options.tail) :]:
        sink(member, text)
    return failures


async def _follow(member: str, logs: Sequence[_ContainerLog], options: LogOptions, sink: Sink) -> list[ClusterError]:
    """Pass what is there and what comes; return the errors."""
    if options.tail is not None or len(logs) > 1:
        failures = [one for one in await _print_now(member, logs, options, sink) if not isinstance(one, Retryable)]
        if len(failures) == len(logs):
            return failures
    found = await asyncio.gather(*(log.follow(lambda line: sink(member, line[1])) for log in logs))
    return [one for one in found if one is not None]


class _ContainerLog:
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
        self._passed: set[bytes] = set()
        """Lines read with this timestamp."""
        self._count = 0
        """Number of lines read."""

    async def last(self, tail: int | None, lines: list[_TimedLine]) -> ClusterError | None:
        """Add the last lines, all without ``tail``. Return the error."""
        begin = self._from
        ask = 0 if tail is None else tail + _OTHER_LINES
        while True:
            self._from = {**begin, **({} if tail is None else {"tailLines": str(ask)})}
            self._last, self._passed, self._count = b"", set(), 0
            found: list[_TimedLine] = []
            failure = await self.read(found.append)
            if failure is not None or tail is None or len(found) >= tail or self._count < ask:
                lines += found
                if not self._last:
                    self._from = begin
                return failure
            ask *= 8

    async def follow(self, take: Callable[[_TimedLine], None]) -> ClusterError | None:
        """Follow the log until the container ends, and reconnect if a proxy cuts the connection. Return the error."""
        self._query["follow"] = "true"
        while True:
            failure = await self.read(take)
            if not isinstance(failure, Retryable):
                return failure
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def read(self, take: Callable[[_TimedLine], None]) -> ClusterError | None:
        """Read to the end of the log or of the connection. Return the error."""
        last, passed = self._last, frozenset(self._passed)
        gone: BrokenPipeError | None = None
        try:
            async with self._client.lines(self._path, query={**self._query, **self._from}) as lines:
                async for line in lines:
                    time, _, text = line.partition(b" ")
                    if time > last or (time == last and text not in passed):
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

    def _take(self, time: bytes, text: bytes, take: Callable[[_TimedLine], None]) -> None:
        self._count += 1
        if time != self._last:
            self._last, self._passed = time, set()
            # sinceTime has whole seconds, so repeated lines are skipped after a reconnect
            self._from = {"sinceTime": (time[:_SECONDS] + time[_FRACTION:]).decode(errors="replace")}
        self._passed.add(text)
        part = self._part(text)
        if part is not None:
            take((time, part))


def workers_part(line: bytes) -> bytes | None:
    """The part of a line that the worker has written; None if the line is gangctl's."""
    found = _OWN.search(line)
    if found is None:
        return line
    return line[: found.start()] or None


def own_part(line: bytes) -> bytes | None:
    """The part of a line that gangctl has written; None if the line is the worker's."""
    found = _OWN.search(line)
    return None if found is None else line[found.start() :]


def in_order(logs: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """The lines of several logs of gangctl in the order of their times. A line without one stays behind its own."""
    return (line for _, line in heapq.merge(*map(_stamped, logs), key=lambda one: one[0]))


def _stamped(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    time = b""
    for line in lines:
        found = _STAMPED.match(line)
        time = time if found is None else found[1]
        yield time, line
