"""What workers printed last, read from the ends of their logs.

A log goes on over attempts. So the size of each is noted when an attempt starts, before its processes do: what the
attempt printed lies between two sizes. They are in memory only, so a controller that takes a gang over knows nothing of
the attempt that runs then.
"""

from __future__ import annotations

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
            known[attempt] = _size(log)
            for old in sorted(known)[:-_KEPT]:
                del known[old]

    def printed(self, pod: PodFolder, attempt: int) -> Printed:
        """What the worker of a pod printed last in an attempt; nothing if that isn't known."""
        log = pod.worker_log
        begins = self._begins.get(log, {})
        if attempt not in begins:
            return Printed()
        after = min((begin for one, begin in begins.items() if one > attempt), default=None)
        try:
            with log.open("rb") as file:
                size = file.seek(0, 2)
                begin = begins[attempt] if begins[attempt] <= size else 0  # It was replaced by an empty one.
                end = size if after is None or not begin <= after <= size else after
                first = max(begin, end - READ)
                file.seek(first)
                content = file.read(end - first)
        except OSError:
            return Printed()
        if first > begin:
            content = content.partition(b"\n")[2] or content  # Without what is left of a line.
        return last_lines(content, attempt, overtaken=False)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
