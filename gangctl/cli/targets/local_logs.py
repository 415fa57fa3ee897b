"""Logs of local pods: files without timestamps of their own, which outlive their pods and may be rotated."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gangctl.api.names import pod_name
from gangctl.api.status import ENDED
from gangctl.cli.errors import UserError
from gangctl.cli.printers.output import check_reader
from gangctl.cli.targets.own_lines import in_order
from gangctl.cli.targets.port import LogOptions, LogSource, Sink
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import pod_record
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.log_reader import LogReader

POLL_SECONDS: Final = 0.1
"""Poll interval of a log that is followed."""


def stream_logs(store: GangStore, options: LogOptions, sink: Sink) -> None:
    """Pass the logs to the sink, member by member; with ``follow`` until nothing can be written any more.

    Raises:
        UserError: there is no such log, or --since is used.
        BrokenPipeError: the reader of the output is gone.
    """
    if options.since is not None:
        raise UserError("logs of this machine have no timestamps: use --tail LINES instead of --since")
    pods = {member: _pod(store.folder, member, previous=options.previous) for member in options.members}
    if not any(pods.values()):
        which = "no earlier pod" if options.previous else "no pod yet"
        raise UserError(f"there is no log: {', '.join(options.members[:8])} had {which}")
    logs = [_Log(member, _files(pod, options.source), sink) for member, pod in pods.items() if pod is not None]
    for log in logs:
        log.begin(options.tail)
    while options.follow:
        is_last = not _goes_on(store)
        for log in logs:
            log.poll()
        if is_last:
            break
        check_reader(POLL_SECONDS)
    for log in logs:
        log.end()


def _goes_on(store: GangStore) -> bool:
    """Whether a process of the gang may still write, or will: not once it has ended with its pods, or was removed."""
    try:
        has_ended = store.read().status.phase in ENDED
        return not has_ended or not all(one.terminated for one in pod_record.load_all(store.folder))
    except ClusterError:
        return store.stamp() is not None  # A damaged file may be restored.


class _Log:
    """The log of one member, of one file or of several whose lines have times."""

    def __init__(self, member: str, paths: Iterable[Path], sink: Sink) -> None:
        self._member = member
        self._sink = sink
        self._files = [_Lines(path) for path in paths]

    def begin(self, tail: int | None) -> None:
        """Pass the existing lines, or the last ones."""
        self._pass(self._new() if tail is None else deque(self._new(), tail))

    def poll(self) -> None:
        """Pass the lines that were added since."""
        self._pass(self._new())

    def end(self) -> None:
        """Pass a last line without a newline."""
        self._pass(one.rest for one in self._files if one.rest)

    def _new(self) -> Iterator[bytes]:
        first, *others = (one.new() for one in self._files)
        return in_order([first, *others]) if others else first

    def _pass(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._sink(self._member, line)


class _Lines:
    """Reads one file line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = LogReader(path)
        self.rest = b""
        """The part of an incomplete line that was read."""

    def new(self) -> Iterator[bytes]:
        """The lines that were added since.

        Raises:
            UserError: they can't be read.
        """
        while piece := self._piece():
            *lines, self.rest = (self.rest + piece).split(b"\n")
            yield from lines

    def _piece(self) -> bytes:
        try:
            return self._reader.read()
        except OSError as error:
            raise UserError(f"{self._path} can't be read: {error.strerror}") from None


def _files(pod: PodFolder, source: LogSource) -> tuple[Path, ...]:
    match source:
        case LogSource.WORKER:
            return (pod.worker_log,)
        case LogSource.SIDECAR:
            return (pod.sidecar_log,)
        case LogSource.GANGCTL:
            return pod.supervisor_log, pod.sidecar_log


def _pod(folder: GangFolder, member: str, *, previous: bool) -> PodFolder | None:
    """The member's newest pod, or the one before; if it had only one, the newest of the gang before."""
    found = _incarnations(folder.pods, member)
    if previous:
        found = [*_incarnations(folder.before, member), *found[:-1]]
    return found[-1] if found else None


def _incarnations(pods: Path, member: str) -> list[PodFolder]:
    """The pods of a member in this folder, oldest first."""
    try:
        names = [path.name for path in pods.iterdir()]
    except OSError:
        return []
    prefix = f"{pods.parent.name}-{member}-"
    numbers = (name[len(prefix) :] for name in names if name.startswith(prefix))
    found = sorted(int(number) for number in numbers if number.isdecimal())
    return [PodFolder(pods / pod_name(pods.parent.name, member, number)) for number in found]
