"""The processes of a pod as this machine sees them: to be killed, frozen, and asked when they were started."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.lab import Lab
from e2e.cluster.machines import Machine
from e2e.cluster.processes import Process

TASKS = "state/io.containerd.runtime.v2.task/k8s.io"
ATTEMPT = "GANG_ATTEMPT"
"""What a supervisor gives to its workers, and nobody else has."""


@dataclass(frozen=True)
class Container:
    """A container that runs, on the machine that it runs on."""

    id: str
    name: str
    pod_uid: str
    machine: Machine

    def processes(self) -> list[Process]:
        """All of them."""
        return [process for process in self.machine.everything() if self.id in _cgroup(process)]

    @property
    def first(self) -> Process:
        """Process 1: in a worker's container the supervisor.

        Raises:
            LookupError: it has ended meanwhile.
        """
        for process in self.processes():
            if process.inner_pid == 1:
                return process
        raise LookupError(f"{self.name} of pod {self.pod_uid} has no process 1")

    def workers(self) -> list[Process]:
        """What the supervisor has started as the user's command, one or several."""
        return [child for child in self.first.children if ATTEMPT in child.environment]


def containers(lab: Lab, pod_uid: str) -> dict[str, Container]:
    """The containers of a pod that run, by their name in the pod; the sandbox isn't one of them."""
    found = {}
    for node in lab.nodes:
        machine = node.machine
        if machine.init is None:
            continue
        for path in (machine.here / TASKS).glob("*/config.json"):
            with contextlib.suppress(OSError, ValueError):  # it ends just now
                marks = json.loads(path.read_text()).get("annotations", {})
                if marks.get("io.kubernetes.cri.sandbox-uid") == pod_uid and _is_container(marks):
                    name = marks["io.kubernetes.cri.container-name"]
                    one = Container(path.parent.name, name, pod_uid, machine)
                    if one.processes():
                        found[name] = one
    return found


def _is_container(marks: dict[str, str]) -> bool:
    return marks.get("io.kubernetes.cri.container-type") == "container"


def _cgroup(process: Process) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    return ""
