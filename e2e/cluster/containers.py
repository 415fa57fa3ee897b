"""The processes of a pod as the host sees them, so that tests can signal them and read when they started."""

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
"""The environment variable that only the workers of a supervisor have."""


@dataclass(frozen=True)
class Container:
    """A running container, and the machine that it runs on."""

    id: str
    name: str
    pod_uid: str
    machine: Machine

    def processes(self) -> list[Process]:
        """All its processes."""
        return [process for process in self.machine.everything() if self.id in _cgroup(process)]

    @property
    def first(self) -> Process:
        """Process 1; in a worker's container this is the supervisor.

        Raises:
            LookupError: the container has ended.
        """
        for process in self.processes():
            if process.inner_pid == 1:
                return process
        raise LookupError(f"{self.name} of pod {self.pod_uid} has no process 1")

    def workers(self) -> list[Process]:
        """The processes that the supervisor has started: the user's command, once or several times."""
        return [child for child in self.first.children if ATTEMPT in child.environment]


def containers(lab: Lab, pod_uid: str) -> dict[str, Container]:
    """The running containers of a pod by their name in the pod, without the sandbox."""
    found = {}
    for node in lab.nodes:
        machine = node.machine
        if machine.init is None:
            continue
        for path in (machine.here / TASKS).glob("*/config.json"):
            with contextlib.suppress(OSError, ValueError):  # the container ends at this moment
                annotations = json.loads(path.read_text()).get("annotations", {})
                if annotations.get("io.kubernetes.cri.sandbox-uid") == pod_uid and _is_container(annotations):
                    name = annotations["io.kubernetes.cri.container-name"]
                    one = Container(path.parent.name, name, pod_uid, machine)
                    if one.processes():
                        found[name] = one
    return found


def _is_container(annotations: dict[str, str]) -> bool:
    return annotations.get("io.kubernetes.cri.container-type") == "container"


def _cgroup(process: Process) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    return ""
