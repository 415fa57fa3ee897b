"""What workers printed last, read from the ends of their logs.

A log goes on over attempts. So the size of each is noted when an attempt starts, before its processes do: what the
attempt printed lies between two sizes. They are in memory only: for the attempt that runs when another controller takes
the gang over, only lines of a supervisor between those of the worker tell which are of that attempt.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.core.facts.printed import Printed, last_lines

READ: Final = 1 << 16
"""Bytes of the end of a log that are read."""
_KEPT: Final = 2
"""Attempts of a pod whose begins are kept."""


class WorkerOutput:
    """The begin of the newest attempts in each log."""

    def __init__(self) -> None:
        self._begins: dict[Path, dict[int, int]] = {}

    def attempt_starts(self, folder: GangFolder, pods: Iterable[str], attempt: int) -> None:
        """Note how large the logs of these pods of a gang are; those of other pods are forgotten."""
        logs = [folder.pod(name).worker_log for name in pods]
        for log in [one for one in self._begins if one.is_relative_to(folder.path) and one not in logs]:
            del self._begins[log]
        for log in logs:
            known = self._begins.setdefault(log, {})
            for later in [one for one in known if one > attempt]:
                del known[later]  # They are of a gang of this name that is gone.
            known[attempt] = _size(log)
            for old in sorted(known)[:-_KEPT]:
                del known[old]

    def printed(self, pod: PodFolder, attempt: int) -> Printed:
        """What the worker of a pod printed last in an attempt; nothing if that can't be told."""
        begins = self._begins.get(pod.worker_log, {})
        begin = begins.get(attempt, 0)
        after = min((size for one, size in begins.items() if one > attempt), default=None)
        try:
            with pod.worker_log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begin = begin if begin <= size else 0  # It was emptied meanwhile.
                end = size if after is None or not begin <= after <= size else after
                first = file.seek(max(begin, end - READ))
                content = file.read(end - first)
        except OSError:
            return Printed()
        if first > begin:
            content = content.partition(b"\n")[2] or content  # Without the rest of a line.
        return last_lines(content, attempt, overtaken=attempt not in begins)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
