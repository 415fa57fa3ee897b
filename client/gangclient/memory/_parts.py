"""The parts in a member's folder: whole or absent.

A part is two files: ``STEP.RANK`` with the bytes as they were given, and ``STEP.RANK.json``, written last, with the
gang, the attempt that wrote the bytes, their number and their checksum. What has no second file, or doesn't agree with
it, is none. There is no fsync: it is memory.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Callable, Iterable, List, NamedTuple, Optional, Union

PIECE = 4 << 20
"""Bytes that are read or checked at a time."""
Bytes = Union[bytes, bytearray, memoryview]
Data = Union[Bytes, Iterable[Bytes], Callable[[BinaryIO], object]]


class TornError(ValueError):
    """The bytes are not those that were saved."""


class Part(NamedTuple):
    """One rank's part of one step."""

    step: int
    rank: int
    attempt: int
    """That wrote the bytes. All parts of a step are of one attempt: those of another are of a history that is over."""
    size: int
    crc: int


class Writer:
    """The file that ``save`` gives to a function: it can be written to, and no more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.crc = 0

    def write(self, data: Bytes) -> int:
        """Write all of it."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: it is flushed in the end."""


class Folder:
    """The parts of one gang in one folder."""

    def __init__(self, path: str, gang: str) -> None:
        """Create it, closed to others.

        Raises:
            OSError: it can't be created.
        """
        self.path = Path(path)
        self._gang = gang
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def place(self, step: int, rank: int) -> Path:
        """The file with the bytes."""
        return self.path / f"{step}.{rank}"

    def parts(self) -> List[Part]:
        """Those that look whole; their bytes are not read."""
        found = [self._read(meta) for meta in self.path.glob("*.json")]
        return sorted(part for part in found if part is not None)

    def torn(self, step: int) -> List[int]:
        """The ranks of whose part of this step there is something, but not all."""
        there = {int(path.name.split(".")[1]) for path in self.path.glob(f"{step}.*")}
        return sorted(rank for rank in there if self.find(step, rank) is None)

    def write(self, step: int, rank: int, attempt: int, data: Data) -> Part:
        """Keep a part, in place of the one that was there.

        Raises:
            OSError: there is no room, or the folder is gone. Nothing is left of the part.
        """
        whole, part = self.place(step, rank), self.path / f"{step}.{rank}.{attempt}.part"
        try:
            with part.open("wb") as file:
                writer = Writer(file)
                if callable(data):
                    data(writer)  # type: ignore[arg-type]  # it is a BinaryIO as far as it goes
                else:
                    for piece in (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data:
                        writer.write(piece)
            made = Part(step, rank, attempt, writer.size, writer.crc)
            self.drop(step, rank)
            part.rename(whole)
            self._mark(made)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return made

    def open(self, part: Part) -> BinaryIO:
        """The bytes, after they were checked.

        Raises:
            TornError: they are not those that were saved.
            OSError: they are gone.
        """
        file = self.place(part.step, part.rank).open("rb")
        crc = size = 0
        for piece in iter(lambda: file.read(PIECE), b""):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
        if (crc, size) != (part.crc, part.size):
            file.close()
            raise TornError(f"{file.name} has {size} bytes with checksum {crc:08x} instead of {part}")
        file.seek(0)
        return file

    def find(self, step: int, rank: int) -> Optional[Part]:
        """The part, if it looks whole."""
        return self._read(self._meta(step, rank))

    def drop(self, step: int, rank: int) -> None:
        """Delete the part; what marks it whole goes first."""
        for path in (self._meta(step, rank), self.place(step, rank)):
            with suppress(FileNotFoundError):
                path.unlink()

    def clear_unfinished(self, attempt: int) -> None:
        """Delete what processes of earlier attempts had begun to write."""
        for path in self.path.glob("*.part"):
            if int(path.name.split(".")[2]) < attempt:
                path.unlink(missing_ok=True)

    def free(self) -> int:
        """Bytes that there is room for."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def _meta(self, step: int, rank: int) -> Path:
        return self.path / f"{step}.{rank}.json"

    def _mark(self, part: Part) -> None:
        meta = self._meta(part.step, part.rank)
        new = self.path / f"{part.step}.{part.rank}.{part.attempt}.json.part"
        new.write_text(json.dumps({"gang": self._gang, **part._asdict()}))
        new.rename(meta)

    def _read(self, meta: Path) -> Optional[Part]:
        try:
            told = json.loads(meta.read_bytes())
            part = Part(*(int(told[name]) for name in Part._fields))
            size = self.place(part.step, part.rank).stat().st_size
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return part if told["gang"] == self._gang and size == part.size and meta == self._meta(*part[:2]) else None
