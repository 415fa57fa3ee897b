"""A DaemonSet is rolled by canary on a real cluster, with a gate that passes, fails, and has not enough data."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.installation import NAMESPACE, ROOT
from gangctl.annexes.node_records import stored
from gangctl.annexes.node_records.records import HOUR, Hour, NodeRecord

pytestmark = pytest.mark.nightly

MAP = "gangctl-node-records"
FOLDER = ROOT / "examples" / "rollout"
OLD, NEW = "gangctl/examples:e2e", "docker.io/gangctl/examples:e2e"
"""Two names of one image, which is on all nodes."""
LABEL = "rollout.gangctl.io/driver"


@pytest.fixture
def rolling(cluster: Cluster, namespace: str) -> Iterator[str]:
    """The DaemonSet in the test's namespace, and the namespace of a controller whose records the gate reads."""
    cluster.image("examples")
    made = yaml.safe_load((FOLDER / "driver.yaml").read_text())
    container = made["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": OLD, "imagePullPolicy": "Never", "command": ["sleep", "1000000"]}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(made))
    cluster.kubectl("wait", "-n", namespace, "pod", "-l", "app=driver", "--for=condition=Ready", "--timeout=90s")
    cluster.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    )
    yield namespace
    cluster.kubectl("label", "nodes", "--all", f"{LABEL}-")
    cluster.kubectl("delete", "configmap", MAP, "-n", NAMESPACE, "--ignore-not-found")


def record(cluster: Cluster, hours: int, faults: int = 0) -> None:
    """Store records of two nodes that were observed for some hours, and of faults of the candidate in the last ones."""
    this = int(time.time() // HOUR)
    seen = {this - at: Hour(HOUR) for at in range(hours)}
    bad = seen | {this - at: Hour(HOUR, fault=True, restart=True) for at in range(faults)}
    made = {"node-1": NodeRecord(time.time(), hours=bad), "node-2": NodeRecord(time.time(), hours=seen)}
    data = {stored.KEY: stored.write(made, time.time())}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP, "namespace": NAMESPACE}, "data": data}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(body))


def roll(cluster: Cluster, namespace: str, tools: Path) -> subprocess.CompletedProcess[str]:
    """Run the example, with ``gangctl`` of this working tree."""
    wrapper = tools / "gangctl"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m gangctl "$@"\n')
    wrapper.chmod(0o755)
    words = (str(FOLDER / "roll.sh"), namespace, "driver", f"driver={NEW}", "node-1", "--since", "2d", "--detect", "5")
    return cluster.run("env", f"PATH={tools}:{cluster.programs}:/usr/bin:/bin", *words)


def images(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Node -> the image of its pod."""
    found = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-l", "app=driver", "-o", "json"))["items"]
    return {one["spec"]["nodeName"]: one["spec"]["containers"][0]["image"] for one in found}


def marked(cluster: Cluster) -> str:
    return cluster.kubectl("get", "nodes", "-l", LABEL, "-o", "name").strip()


def test_a_rollout_waits_without_data_and_goes_on_with_a_pass(rolling: str, cluster: Cluster, tmp_path: Path) -> None:
    record(cluster, hours=1)
    done = roll(cluster, rolling, tmp_path)
    assert (done.returncode, "NOT ENOUGH DATA" in done.stdout) == (3, True), done.stderr
    assert images(cluster, rolling) == {"node-1": NEW, "node-2": OLD}
    assert marked(cluster) == "node/node-1"
    record(cluster, hours=40)
    done = roll(cluster, rolling, tmp_path)
    assert (done.returncode, "PASS" in done.stdout) == (0, True), done.stderr
    assert images(cluster, rolling) == {"node-1": NEW, "node-2": NEW}
    assert marked(cluster) == ""


def test_a_rollout_goes_back_when_the_gate_fails(rolling: str, cluster: Cluster, tmp_path: Path) -> None:
    record(cluster, hours=40, faults=15)
    done = roll(cluster, rolling, tmp_path)
    assert (done.returncode, "FAIL" in done.stdout) == (1, True), done.stderr
    assert images(cluster, rolling) == {"node-1": OLD, "node-2": OLD}
    assert marked(cluster) == ""
