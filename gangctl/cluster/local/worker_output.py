"""What workers printed last, read from the ends of their logs.

A log goes on over attempts. So the size of each is noted when an attempt starts, before its processes do: what the
attempt printed lies between two sizes. It may have been rotated since: then the older part comes
before it. Sizes are in memory only: for the attempt that runs when another controller takes the gang over, only lines
of a supervisor between those of the worker tell which are of that attempt.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from gangctl.cluster.local.atomic_files import Stamp, stamp
from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.rotation import rotated
from gangctl.core.facts.printed import Printed, last_lines

READ: Final = 1 << 16
"""Bytes of the end of a log that are read."""
_KEPT: Final = 2
"""Attempts of a pod whose begins are kept."""


class _Begin(NamedTuple):
    """Where an attempt begins in a log."""

    size: int
    older: Stamp | None
    """The older part that was there then."""


class WorkerOutput:
    """The begin of the newest attempts in each log."""

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
            known[attempt] = _Begin(_size(log), stamp(rotated(log)))
            for old in sorted(known)[:-_KEPT]:
                del known[old]

    def printed(self, pod: PodFolder, attempt: int, rank: int | None = None) -> Printed:
        """What the worker of a pod printed last in an attempt; nothing if that can't be told."""
        begins = dict(self._begins.get(pod.worker_log, {}))
        try:
            with pod.worker_log.open("rb") as newer:
                fcntl.flock(newer, fcntl.LOCK_SH)
                content = _part(pod.worker_log, newer, begins, attempt)
        except OSError:
            return Printed()
        return last_lines(content, attempt, rank, overtaken=attempt not in begins)


def _part(log: Path, newer: BinaryIO, begins: dict[int, _Begin], attempt: int) -> bytes:
    """The end of what the attempt wrote, without the rest of a line. Places count from the begin of the older part."""
    older = stamp(rotated(log))
    before = 0 if older is None else older.size
    size = before + newer.seek(0, os.SEEK_END)
    places = {
        one: before + begin.size if begin.older == older else min(begin.size, before) for one, begin in begins.items()
    }
    begin = places.get(attempt, 0)
    begin = begin if begin <= size else before  # It was emptied by hand meanwhile.
    end = min((place for one, place in places.items() if one > attempt), default=size)
    end = end if begin <= end <= size else size
    first = max(begin, end - READ)
    content = b""
    if first < before:
        with rotated(log).open("rb") as file:
            file.seek(first)
            content = file.read(min(end, before) - first)
    newer.seek(max(0, first - before))
    content += newer.read(max(0, end - max(first, before)))
    return content if first == begin else content.partition(b"\n")[2] or content


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
