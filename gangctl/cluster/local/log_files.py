"""The log files of pods: kept small, read once and in order, and searched for what workers printed last."""

import asyncio
import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.atomic_files import Stamp, stamp
from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory
from gangctl.core.facts.printed import Printed, last_lines

# Rotation: keeps the logs of a state directory small, without the programs that write them.
#
# A program writes straight into its file, opened for appending, and must not notice. So a log of over
# :data:`ROTATE_BYTES` is copied to ``NAME.1``, in the place of the one before, and then emptied:
#
#     NAME.1 is complete   before   NAME is emptied
#
# If the controller is killed in between, the next one copies again: nothing is lost, and at last nothing is there
# twice. What is written in the microseconds between the last read and the truncation is lost, as with logrotate's
# copytruncate. Of a file of over twice the size (its writer is very fast, or no controller ran) only the newest part is
# kept. A reader holds a shared lock on NAME while it looks; then a log is rotated the next time.
#
# Nothing rotates while no controller runs.


log = logging.getLogger(__name__)

ROTATE_BYTES: Final = 64 << 20
"""A log with more is rotated."""
LOOK_SECONDS: Final = 1.0
_PIECE: Final = 1 << 20


async def rotate_logs(state: StateDirectory) -> None:
    """Rotate the logs of a state directory until cancelled."""
    told: set[Path] = set()
    while True:
        for path, error in await asyncio.to_thread(_rotate_all, state):
            if path not in told:
                log.warning("%s can't be rotated and grows on: %s", path, error.strerror)
                told.add(path)
        await asyncio.sleep(LOOK_SECONDS)


def rotated_path(path: Path) -> Path:
    """The path of the older part of a log."""
    return path.with_name(f"{path.name}.1")


def rotate_log(path: Path, most: int = ROTATE_BYTES) -> bool:
    """Rotate one log if it has more than ``most`` bytes; returns whether it did."""
    if _used(path.stat()) <= most:
        return False
    log_file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(log_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(log_file).st_size
        os.lseek(log_file, 0 if size <= 2 * most else size - most, os.SEEK_SET)
        temporary = path.with_name(f".{path.name}.tmp")
        copy = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            left = _copy(log_file, copy, 2 * most)
            temporary.replace(rotated_path(path))
            _copy(log_file, copy, left)
        finally:
            os.close(copy)
            temporary.unlink(missing_ok=True)  # It is there if the disk is full: it must not take what is left.
        os.ftruncate(log_file, 0)
    except BlockingIOError:
        return False
    finally:
        os.close(log_file)
    return True


def _rotate_all(state: StateDirectory) -> list[tuple[Path, OSError]]:
    """Rotate what has to be; returns what can't be rotated, and why."""
    failed: list[tuple[Path, OSError]] = []
    for path in _logs(state):
        try:
            rotate_log(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed.append((path, error))
    return failed


def _logs(state: StateDirectory) -> list[Path]:
    gangs = [GangFolder(path) for path in _entries(state.gangs)]
    pods = [PodFolder(path) for gang in gangs for path in _entries(gang.pods)]
    return [
        state.log,
        *(gang.events for gang in gangs),
        *(path for pod in pods for path in (pod.worker_log, pod.supervisor_log, pod.sidecar_log)),
    ]


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _used(found: os.stat_result) -> int:
    """Bytes on the disk: a program that has opened its log anew and writes at its own offset leaves a hole before."""
    return min(found.st_size, found.st_blocks * 512)


def _copy(source: int, target: int, most: int) -> int:
    """Copy to the end, at most so many bytes; returns how many more there may be."""
    while most > 0 and (piece := os.read(source, min(_PIECE, most))):
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(target, rest) :]
        most -= len(piece)
    return most


# Reads a log that is written, and rotated, at the same time: each byte once, in order.
#
# A shared lock on the log keeps it from being rotated while it is looked at, and is held for one read only: a reader
# that waits for its own reader must not hold up the rotation. One that is later than two rotations misses what was
# between.


READ_BYTES: Final = 1 << 20
"""The most that is read at once."""


class LogReader:
    """One reader of one log. The log need not exist yet."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """``from_end``: pass over what is there now."""
        self._path = path
        self._older: Stamp | None = None
        """The older part that was there at the last read."""
        self._in_older = False
        self._at = 0
        if from_end:
            self._older, self._at = stamp(rotated_path(path)), _size(path)

    def read(self, most: int = READ_BYTES) -> bytes:
        """The next bytes; none if there are no more yet, or no log."""
        try:
            with self._path.open("rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return self._next(file, most)
        except FileNotFoundError:
            return b""

    def _next(self, newer: BinaryIO, most: int) -> bytes:
        older = stamp(rotated_path(self._path))
        if older != self._older and older is not None:
            self._at = 0 if self._in_older else self._at
            self._in_older = True
        self._older = older
        if self._in_older:
            piece = _read(rotated_path(self._path), self._at, most)
            self._at += len(piece)
            if piece:
                return piece
            self._in_older, self._at = False, 0
        if os.fstat(newer.fileno()).st_size < self._at:
            self._at = 0  # Emptied by hand.
        newer.seek(self._at)
        piece = newer.read(most)
        self._at += len(piece)
        return piece


class LineReader:
    """Reads one log line by line."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """``from_end``: pass over what is there now."""
        self._path = path
        self._reader = LogReader(path, from_end=from_end)
        self._rest = b""
        """The part of an incomplete line that was read."""

    def new(self, most: int | None = None) -> Iterator[bytes]:
        """The lines that were added since: all, or those that end in the next ``most`` bytes.

        Raises:
            Terminal: the log can't be read.
        """
        try:
            while piece := self._reader.read(most or READ_BYTES):
                *lines, self._rest = (self._rest + piece).split(b"\n")
                yield from lines
                if most is not None:
                    break
        except OSError as error:
            raise Terminal(f"{self._path} can't be read: {error.strerror}") from None

    def rest(self, longer_than: int = 0) -> Iterator[bytes]:
        """What was read of a line that has no end yet, if it is longer than that; the next line begins after it."""
        if len(self._rest) > longer_than:
            yield self._rest
            self._rest = b""


def _read(path: Path, at: int, most: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        return file.read(most)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# Worker output: the last lines of workers, read from the ends of their logs.
#
# A log goes on over attempts. So the size of each is noted when an attempt starts, before its processes do: what the
# attempt printed lies between two sizes. It may have been rotated since: then the older part comes before it. Sizes are
# in memory only: for the attempt that runs when another controller takes the gang over, only lines of a supervisor
# between those of the worker tell which are of that attempt.


TAIL_BYTES: Final = 1 << 16
"""Bytes of the end of a log that are read."""
_KEPT: Final = 2
"""Attempts of a pod that are remembered."""


class _Begin(NamedTuple):
    """Where an attempt begins in a log."""

    size: int
    older: Stamp | None
    """The older part that was there then."""


class LogFileReader:
    """Reads logs, and knows where the newest attempts begin in each."""

    def __init__(self) -> None:
        self._begins: dict[Path, dict[int, _Begin]] = {}

    def attempt_starts(self, folder: GangFolder, pods: Iterable[str], attempt: int) -> None:
        """Note how large the logs of these pods of a gang are; those of other pods are forgotten."""
        logs = [folder.pod(name).worker_log for name in pods]
        for log in [one for one in self._begins if one.is_relative_to(folder.path) and one not in logs]:
            del self._begins[log]
        for log in logs:
            known = self._begins.setdefault(log, {})
            for later in [one for one in known if one > attempt]:
                del known[later]  # They are of a gang of this name that is gone.
            known[attempt] = _Begin(_size(log), stamp(rotated_path(log)))
            for old in sorted(known)[:-_KEPT]:
                del known[old]

    def printed(self, pod: PodFolder, attempt: int, rank: int | None = None) -> Printed:
        """The last lines of a pod's worker in an attempt; none if they can't be found."""
        begins = dict(self._begins.get(pod.worker_log, {}))
        try:
            with pod.worker_log.open("rb") as newer:
                fcntl.flock(newer, fcntl.LOCK_SH)
                content = _part(pod.worker_log, newer, begins, attempt)
        except OSError:
            return Printed()
        return last_lines(content, attempt, rank, overtaken=attempt not in begins)


def _part(log: Path, newer: BinaryIO, begins: dict[int, _Begin], attempt: int) -> bytes:
    """The end of what the attempt wrote, in whole lines. Places count from the beginning of the older part."""
    older = stamp(rotated_path(log))
    before = 0 if older is None else older.size
    size = before + newer.seek(0, os.SEEK_END)
    places = {
        one: before + begin.size if begin.older == older else min(begin.size, before) for one, begin in begins.items()
    }
    begin = places.get(attempt, 0)
    begin = begin if begin <= size else before  # It was emptied by hand meanwhile.
    end = min((place for one, place in places.items() if one > attempt), default=size)
    end = end if begin <= end <= size else size
    first = max(begin, end - TAIL_BYTES)
    content = b""
    if first < before:
        with rotated_path(log).open("rb") as file:
            file.seek(first)
            content = file.read(min(end, before) - first)
    newer.seek(max(0, first - before))
    content += newer.read(max(0, end - max(first, before)))
    return content if first == begin else content.partition(b"\n")[2] or content
