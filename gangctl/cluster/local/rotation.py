"""Rotation: keeps the logs of a state directory small, without the programs that write them.

A program writes straight into its file, opened for appending, and must not notice. So a log of over :data:`MOST_BYTES`
is copied to ``NAME.1``, in the place of the one before, and then emptied:

    NAME.1 is complete   before   NAME is emptied

If the controller is killed in between, the next one copies again: nothing is lost, and at last nothing is there twice.
What is written in the microseconds between the last read and the truncation is lost, as with logrotate's copytruncate.
Of a file of over twice the size (its writer is very fast, or no controller ran) only the newest part is kept. A reader
holds a shared lock on NAME while it looks; then a log is rotated the next time.

Nothing rotates while no controller runs.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from pathlib import Path
from typing import Final

from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory

log = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
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


def rotated(path: Path) -> Path:
    """The older part of a log."""
    return path.with_name(f"{path.name}.1")


def rotate(path: Path, most: int = MOST_BYTES) -> bool:
    """Rotate one log if it has more than ``most`` bytes; returns whether it did.

    Raises:
        OSError: it can't be copied or emptied.
    """
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
            temporary.replace(rotated(path))
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
            rotate(path)
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
