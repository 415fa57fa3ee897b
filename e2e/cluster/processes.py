"""Processes that outlive the command that started them. Process id and start time identify them without doubt."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NS_GET_PARENT = 0xB702
"""ioctl_ns(2): the parent of a PID namespace."""


@dataclass(frozen=True)
class Process:
    """One process of the host; ``born`` is its start in clock ticks since boot."""

    pid: int
    born: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this id now; None if there is none.

        A process with several threads is a zombie while the last of them end: until then, its files are open.
        """
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] not in {"Z", "X"} or int(fields[17]) > 1:
                return cls(pid, int(fields[19]))
        return None

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return Process.of(self.pid) == self

    @property
    def started(self) -> float:
        """When it was started: seconds since the epoch, to a hundredth."""
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime + self.born / os.sysconf("SC_CLK_TCK")

    @property
    def command(self) -> str:
        """Its command line; empty if it has ended."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        return ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment that it was started with; empty if it has ended."""
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{self.pid}/environ").read_bytes().decode(errors="replace")
            return dict(one.split("=", 1) for one in text.split("\0") if "=" in one)
        return {}

    @property
    def children(self) -> list[Process]:
        """The processes whose parent it is."""
        with contextlib.suppress(OSError):
            pids = [
                int(pid)
                for path in Path(f"/proc/{self.pid}/task").glob("*/children")
                for pid in path.read_text().split()
            ]
            return [child for pid in pids if (child := Process.of(pid))]
        return []

    @property
    def inner_pid(self) -> int:
        """Its process id in its own PID namespace: 1 for the first process of a container."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
        return 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                os.kill(self.pid, number)


def everything() -> Iterator[Process]:
    """Every process that the host shows."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := Process.of(int(entry.name))):
            yield found


def inside(init: Process) -> list[Process]:
    """Every process in the PID namespace of this one, or in one below: a node with all its containers."""
    try:
        own = Path(f"/proc/{init.pid}/ns/pid").stat().st_ino
    except OSError:
        return []
    return [process for process in everything() if own in _namespaces(process.pid)]


def _namespaces(pid: int) -> Iterator[int]:
    """The process' PID namespace, and those above it."""
    try:
        at = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    except OSError:
        return
    while True:
        yield os.fstat(at).st_ino
        try:
            above = fcntl.ioctl(at, NS_GET_PARENT)
        except OSError:  # the last one that this process may see
            return
        finally:
            os.close(at)
        at = above


def start(log: Path, *command: str, env: dict[str, str] | None = None) -> Process:
    """Start a background process that is no child of this one, and append its output to the log.

    Raises:
        RuntimeError: the process ended at once.
    """
    script = 'setsid "$@" >>"$0" 2>&1 </dev/null & echo $!'
    done = subprocess.run(
        ["sh", "-c", script, str(log), *command], stdout=subprocess.PIPE, text=True, check=True, env=env
    )
    started = Process.of(int(done.stdout))
    if started is None:
        raise RuntimeError(f"{command[0]} ended at once: see {log}")
    return started


class Registry:
    """The processes of a cluster by name, stored in a folder, so that another command finds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, name: str, process: Process) -> None:
        """Store a process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(f"{process.pid} {process.born}")

    def find(self, name: str) -> Process | None:
        """The process of this name, if it still runs."""
        with contextlib.suppress(OSError, ValueError):
            pid, born = (self.folder / name).read_text().split()
            kept = Process(int(pid), int(born))
            return kept if kept.alive else None
        return None

    def names(self) -> list[str]:
        """The names of all processes that were stored."""
        return sorted(path.name for path in self.folder.glob("*"))
