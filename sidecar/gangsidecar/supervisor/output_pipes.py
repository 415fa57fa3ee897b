"""The pipes between the processes of one attempt and the copier of their output.

The rule: the ends to read are kept open here until the copier has come to its end: if it dies, another goes on, and no
process of the worker fails because nothing reads what it writes. The ends to write are closed here as soon as all
processes have them: when the last of them is gone, the output is complete.
"""

from __future__ import annotations

import os

from gangsidecar.supervisor.copier import Stream


class OutputPipes:
    """One or two pipes for each process."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.readers: list[int] = []
        self._writers: list[int] = []
        self._processes = 0

    def add(self) -> tuple[int, int]:
        """What the next process gets as its standard output and standard error: one file where the two are one here.

        Raises:
            OSError: there are too many open files.
        """
        out = self._pipe(1)
        both = out, out if _are_one(1, 2) else self._pipe(2)
        self._processes += 1
        return both

    def close_writers(self) -> None:
        """Every process has its files."""
        _close(self._writers)

    def close_readers(self) -> None:
        """All output is copied."""
        _close(self.readers)

    def _pipe(self, sink: int) -> int:
        source, writer = os.pipe()
        self.streams.append(Stream(source, sink, self._processes))
        self.readers.append(source)
        self._writers.append(writer)
        return writer


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


def _are_one(file: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(file, other)
    except OSError:
        return False
