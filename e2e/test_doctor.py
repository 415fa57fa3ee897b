"""What `gangctl doctor` says of real nodes, with a device plugin whose devices do not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.device_plugin import devices
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from tests.wait import until

pytestmark = pytest.mark.nightly

GPU = "nvidia.com/gpu"
NAMES = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
DRIVER = "nvidia.com/cuda.driver-version.full"
POOL = "cloud.google.com/gke-nodepool"
Doctor = Callable[..., dict[str, Any]]


@pytest.fixture
def doctor(cluster: Cluster, namespace: str, tmp_path: Path) -> Doctor:
    """Run `gangctl doctor -o json`; what it prints, with its exit code."""

    def run(*words: str) -> dict[str, Any]:
        env = {key: value for key, value in cluster.env.items() if key != "GANGCTL_STATE_DIR"}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-m", "gangctl", "doctor", *words, "-n", namespace, "-o", "json"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found | {"code": done.returncode}

    return run


def link(found: dict[str, Any], name: str, resource: str = "") -> tuple[str, str]:
    """State and text of a link of the test's devices."""
    (one,) = [one for one in mine(found) if one["link"] == name and one.get("resource", "") == resource]
    return one["state"], one["seen"]


def mine(found: dict[str, Any]) -> list[dict[str, str]]:
    """The links without those of resources that other tests have left on the node."""
    return [one for one in found["links"] if one.get("about", "NVIDIA GPUs") == "NVIDIA GPUs"]


def user(name: str, image: str, **spec: Any) -> str:
    """A pod with one device."""
    limits = {"limits": {GPU: 1}}
    container = {"name": "main", "image": image, "command": ["sleep", "100000"], "resources": limits}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def test_a_node_is_followed_from_healthy_to_a_sick_device_to_a_plugin_that_is_gone(
    lab: Lab, cluster: Cluster, namespace: str, doctor: Doctor
) -> None:
    image = cluster.image("examples")

    def submit(name: str) -> None:
        text = user(name, image, nodeName="node-2")
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)

    with devices(lab.node(2), GPU, NAMES) as plugged:
        until("they are allocatable", lambda: "4 of 4" in told(doctor("node-2")), every=0.5)
        submit("taken")
        cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/taken", "--timeout=60s")
        healthy = doctor("pod/taken", "--exec")
        node = healthy["node"]
        assert (failing(node), link(node, "Capacity", GPU)) == ({}, ("Ok", "4"))
        assert link(node, "Allocations", GPU) == ("Ok", f"1 of 4: {namespace}/taken 1")
        assert link(node, "Driver")[0] == link(node, "DevicePlugin")[0] == "Absent"
        assert link(healthy, "Health")[0] == "Ok"
        # the plugin gives no files
        assert link(healthy, "Inside") == ("Failed", "container main has no /dev/nvidia[0-9]*")
        assert healthy["code"] == 1

        plugged.mark("gpu-3", healthy=False)
        sick = until("it is told", lambda: failing(doctor("node-2")), every=0.5)
        assert sick["Allocatable"] == "3 of 4: the device plugin calls 1 unhealthy"
        for name in NAMES:
            plugged.mark(name, healthy=False)
        until("none is left", lambda: "0 of 4" in failing(doctor("node-2")).get("Allocatable", ""), every=0.5)
        submit("refused")
        found = until("it is rejected", lambda: failing(doctor("refused")).get("Admission"), every=0.5)
        assert "the kubelet of node-2 rejected the pod: UnexpectedAdmissionError" in found
    gone = until("the plugin is missed", lambda: failing(doctor("node-2")), every=0.5)
    assert gone["Allocatable"].startswith("0 of 4: the device plugin is gone")


def test_a_bad_rollout_of_a_driver_on_one_pool_is_named_by_the_fleet(
    lab: Lab, cluster: Cluster, doctor: Doctor
) -> None:
    with ExitStack() as stack:
        for number in (1, 2):
            stack.enter_context(devices(lab.node(number), GPU, NAMES))
            name = f"node-{number}"
            cluster.kubectl("label", "node", name, f"{POOL}=train", f"{DRIVER}=550.90.07")
            stack.callback(cluster.kubectl, "label", "node", name, f"{POOL}-", f"{DRIVER}-")
        alike = until("both have devices", lambda: pool(doctor()), every=0.5)
        assert "driver" not in {one["what"] for one in alike["differences"]}
        cluster.kubectl("label", "--overwrite", "node", "node-2", f"{DRIVER}=560.35.03")
        found = doctor()
        assert found["code"] == 1
        (driver,) = [one for one in pool(found)["differences"] if one["what"] == "driver"]
        assert driver["values"] == [
            {"value": "550.90.07", "nodes": ["node-1"]},
            {"value": "560.35.03", "nodes": ["node-2"]},
        ]


def told(found: dict[str, Any]) -> str:
    """All that was seen."""
    return "\n".join(one["seen"] for one in mine(found))


def failing(found: dict[str, Any]) -> dict[str, str]:
    """The links that failed, with what was seen."""
    return {one["link"]: one["seen"] for one in mine(found) if one["state"] == "Failed"}


def pool(fleet: dict[str, Any]) -> dict[str, Any]:
    """The pool of the test, once no node differs in the number of its GPUs or lacks some; empty before."""
    (train,) = [one for one in fleet["pools"] if one["name"].startswith("train")] or [{}]
    short = [one for one in train.get("findings", []) if one.get("resource") == GPU]
    differs = [one for one in train.get("differences", []) if one["what"] == GPU]
    return {} if short or differs or GPU not in train.get("resources", []) else train
