"""Reads a log that is written, and rotated, at the same time: each byte once, in order.

A shared lock on the log keeps it from being rotated while it is looked at, and is held for one read only: a reader that
waits for its own reader must not hold up the rotation. One that is later than two rotations misses what was between.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Final

from gangctl.cluster.local.atomic_files import Stamp, stamp
from gangctl.cluster.local.rotation import rotated

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
            self._older, self._at = stamp(rotated(path)), _size(path)

    def read(self, most: int = READ_BYTES) -> bytes:
        """The next bytes; none if there are no more yet, or no log.

        Raises:
            OSError: it can't be read.
        """
        try:
            with self._path.open("rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return self._next(file, most)
        except FileNotFoundError:
            return b""

    def _next(self, newer: BinaryIO, most: int) -> bytes:
        older = stamp(rotated(self._path))
        if older != self._older and older is not None:
            self._at = 0 if self._in_older else self._at
            self._in_older = True
        self._older = older
        if self._in_older:
            piece = _read(rotated(self._path), self._at, most)
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


def _read(path: Path, at: int, most: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        return file.read(most)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
