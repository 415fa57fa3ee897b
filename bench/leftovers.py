"""What restarts leave behind: processes, open files, memory and files of a gang's pods and of the controllers.

The rule: what is lost once a restart must be found. So a sum over all pods may grow by less than one for two restarts,
which is more than the odd connection that is open at one of the two moments. Memory is judged for each process, since
an allocator takes it in large pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e import process_faults
from e2e.cluster.processes import Process, everything, inside

PIECES = 2048
"""KiB by which a process may grow, however few the restarts: pieces of its allocator's."""
A_RESTART = 32
"""KiB a restart by which it may grow beyond that: a lost thread, connection or report is more."""


@dataclass(frozen=True)
class Leftovers:
    """At one moment, for all pods of a gang."""

    counts: dict[str, int]
    memory: dict[str, int]
    """The largest process of its kind, in KiB that no other process shares."""

    @classmethod
    def now(cls, uids: Iterable[str]) -> Leftovers:
        """Look. ``uids``: those of the pods."""
        supervisors = [process_faults.supervisor(uid) for uid in uids]
        sidecars = [process_faults.sidecar(uid) for uid in uids]
        programs = {"supervisors": supervisors, "sidecars": sidecars, "controllers": controllers()}
        workers = [worker for uid in uids for worker in process_faults.workers(uid)]
        counts = {f"files of {name}": sum(map(_open_files, found)) for name, found in programs.items()}
        counts["files of workers"] = sum(map(_open_files, workers))
        counts["processes"] = sum(len(inside(one)) for one in (*supervisors, *sidecars))
        for folder in ("/dev/shm", "/run/gang", "/run/gang-state"):  # the containers' own
            counts[f"files in {folder}"] = sum(_files(one, folder) for one in supervisors)
        templates = [
            child for one in supervisors for child in one.children if child not in workers and child.inner_pid != 0
        ]
        memory = {**programs, "templates": templates, "workers": workers}
        return cls(counts, {name: max(map(_private, found)) for name, found in memory.items() if found})

    def grown(self, later: Leftovers, restarts: int) -> list[str]:
        """What has grown by more than it may in this number of restarts."""
        counts = [
            f"{name}: {self.counts[name]} before and {count} after {restarts} restarts"
            for name, count in later.counts.items()
            if count - self.counts[name] >= max(restarts / 2, 3)
        ]
        memory = [
            f"memory of {name}: {self.memory[name]} KiB before and {size} after {restarts} restarts"
            for name, size in later.memory.items()
            if size - self.memory.get(name, size) > PIECES + A_RESTART * restarts
        ]
        return counts + memory

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return f"{counts}; KiB: " + ", ".join(f"{name} {size}" for name, size in self.memory.items())


def controllers() -> list[Process]:
    """The controllers of all clusters on this machine."""
    return [one for one in everything() if "gangctl.controller.kube" in one.command and one.inner_pid == 1]


def _open_files(process: Process) -> int:
    try:
        return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    except OSError:
        return 0


def _files(process: Process, folder: str) -> int:
    return len(list(Path(f"/proc/{process.pid}/root{folder}").rglob("*")))


def _private(process: Process) -> int:
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
