"""Logs of local pods: append-only files without timestamps, which outlive their pods."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Final

from gangctl.api.names import pod_name
from gangctl.cli.errors import UserError
from gangctl.cli.targets.port import LogOptions, Sink
from gangctl.cluster.local.layout import GangFolder, PodFolder

POLL_SECONDS: Final = 0.1
"""Poll interval of a log that is followed."""


def stream_logs(folder: GangFolder, options: LogOptions, sink: Sink) -> None:
    """Pass the logs to the sink, member by member; with ``follow`` until interrupted.

    Raises:
        UserError: there is no such log, or --since is used.
    """
    if options.since is not None:
        raise UserError("logs of this machine have no timestamps: use --tail LINES instead of --since")
    paths = {member: _log(folder, member, options) for member in options.members}
    if not any(paths.values()):
        which = "no earlier pod" if options.previous else "no pod yet"
        raise UserError(f"there is no log: {', '.join(options.members[:8])} had {which}")
    tails = [_Tail(member, path, sink) for member, path in paths.items() if path is not None]
    for tail in tails:
        tail.begin(options.tail)
    while options.follow:
        time.sleep(POLL_SECONDS)
        for tail in tails:
            tail.poll()
    for tail in tails:
        tail.end()


class _Tail:
    """Reads one log, and remembers how far."""

    def __init__(self, member: str, path: Path, sink: Sink) -> None:
        self._member = member
        self._path = path
        self._sink = sink
        self._read_to = 0
        self._rest = b""
        """The part of an incomplete line that was read."""

    def begin(self, tail: int | None) -> None:
        """Pass the existing lines, or the last ones."""
        try:
            with self._path.open("rb") as file:
                lines = file if tail is None else deque(file, tail)
                for line in lines:
                    self._take(line)
                self._read_to = file.tell()
        except OSError as error:
            raise UserError(f"{self._path} can't be read: {error.strerror}") from None

    def poll(self) -> None:
        """Pass the lines that were added since."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                for line in file:
                    self._take(line)
                self._read_to = file.tell()
        except OSError:
            return  # removed together with its gang

    def end(self) -> None:
        """Pass a last line without a newline."""
        if self._rest:
            self._sink(self._member, self._rest)

    def _take(self, piece: bytes) -> None:
        line = self._rest + piece
        self._rest = b"" if line.endswith(b"\n") else line
        if line.endswith(b"\n"):
            self._sink(self._member, line[:-1])


def _log(folder: GangFolder, member: str, options: LogOptions) -> Path | None:
    """Log of the member's newest pod, or of the previous one."""
    try:
        names = [path.name for path in folder.pods.iterdir()]
    except OSError:
        return None
    prefix = f"{folder.path.name}-{member}-"
    numbers = (name[len(prefix) :] for name in names if name.startswith(prefix))
    incarnations = sorted(int(number) for number in numbers if number.isdecimal())
    at = -2 if options.previous else -1
    if len(incarnations) < -at:
        return None
    pod = PodFolder(folder.pods / pod_name(folder.path.name, member, incarnations[at]))
    return pod.sidecar_log if options.sidecar else pod.worker_log
