"""The workers' output: new lines in the log files of a gang's pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gangctl.api.names import parse_pod_name
from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.log_files import LogReader

READ_BYTES: Final = 1 << 16
"""Maximum to read from one log at a time: a worker that floods its log must not block the display."""
LONGEST_LINE: Final = 4096


@dataclass
class LogFollower:
    """Follows all logs of a gang, from their end at the time of creation."""

    folder: GangFolder
    _readers: dict[Path, LogReader] = field(default_factory=dict, init=False)
    _rest: dict[Path, bytes] = field(default_factory=dict, init=False)
    """The part of an incomplete line that was read."""

    def __post_init__(self) -> None:
        self._readers = {path: LogReader(path, from_end=True) for path in self._logs()}

    def lines(self) -> Iterator[tuple[str, str]]:
        """New lines, as (member, line)."""
        for path in self._logs():
            pod = parse_pod_name(path.parent.name)
            for line in self._new(path):
                yield pod.member, line.decode(errors="replace")

    def _logs(self) -> list[Path]:
        try:
            pods = sorted(self.folder.pods.iterdir())
        except OSError:
            return []
        return [PodFolder(path).worker_log for path in pods if _is_pod(path.name)]

    def _new(self, path: Path) -> list[bytes]:
        try:
            content = self._readers.setdefault(path, LogReader(path)).read(READ_BYTES)
        except OSError:
            return []
        *lines, rest = (self._rest.get(path, b"") + content).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = b""
        self._rest[path] = rest
        return lines


def _is_pod(name: str) -> bool:
    try:
        parse_pod_name(name)
    except ValueError:
        return False
    return True
