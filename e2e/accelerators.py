"""Two nodes with devices that don't exist, and gangs and pods that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from e2e.cluster.device_plugin import Devices, devices
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import sleepers

RESOURCE: Final = "example.com/accelerator"
EACH: Final = 4
"""Devices of each of the two nodes."""


@contextmanager
def plugged_in(lab: Lab, cluster: Cluster) -> Iterator[dict[str, Devices]]:
    """Both nodes with their devices: the name of each, and where to set its health."""
    with ExitStack() as stack:
        found: dict[str, Devices] = {}
        for number in (1, 2):
            names = [f"accelerator-{number}-{at}" for at in range(EACH)]
            found |= dict.fromkeys(names, stack.enter_context(devices(lab.node(number), RESOURCE, names)))
            path = rf"{{.status.allocatable.{RESOURCE.replace('.', chr(92) + '.')}}}"
            cluster.kubectl("wait", f"--for=jsonpath={path}={EACH}", f"node/node-{number}", "--timeout=60s")
        yield found


def gang_of(name: str, directory: Path, replicas: int, each: int = 1, **role: Any) -> dict[str, Any]:
    """Workers with so many devices each."""
    document = sleepers(name, replicas=replicas, directory=str(directory), steps=True)
    document["spec"]["roles"][0] |= role
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {RESOURCE: each}}
    return document


def holder(name: str, node: str, count: int) -> dict[str, Any]:
    """A pod that holds so many devices of a node and does nothing."""
    container = {
        "name": "main",
        "image": "gangctl/examples:e2e",
        "imagePullPolicy": "Never",
        "command": ["sleep", "1000000"],
        "resources": {"limits": {RESOURCE: count}},
    }
    spec = {"containers": [container], "nodeName": node, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
