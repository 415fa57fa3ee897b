"""The records of nodes on a real cluster: a node that fails in three gangs is avoided by a fourth, and by the gate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import installation
from e2e.accelerators import gang_of
from e2e.cluster.device_plugin import Devices
from e2e.clusters import Cluster
from e2e.gangs import Gang
from e2e.installation import NAMESPACE, Installed
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
MAP = "gangctl-node-records"


@pytest.fixture(scope="module")
def recording(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Installed]:
    """The installed release with node records."""
    installation.enable(cluster, "nodeRecords")
    yield gangctl_installed
    installation.enable(cluster, "nodeRecords", wanted=False)
    cluster.kubectl("delete", "configmap", MAP, "-n", NAMESPACE, "--ignore-not-found")


def on_node_1(document: dict[str, Any]) -> dict[str, Any]:
    """The gang on the first node alone."""
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    return document


def device(gang: Gang) -> str:
    """The device of its only member."""
    pod = gang.pods()["worker-0"]["metadata"]["name"]
    return gang.kubectl("exec", pod, "-c", "main", "-n", gang.namespace, "--", "printenv", "FAKE_DEVICES").strip()


def shown(cluster: Cluster, *words: str) -> dict[str, Any]:
    """What a verb prints as JSON."""
    done = cluster.run(sys.executable, "-m", "gangctl", *words, "-n", NAMESPACE, "-o", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_node_that_fails_in_three_gangs_is_avoided_by_a_fourth(
    recording: Installed,  # noqa: ARG001 - the controller must keep records
    plugged: dict[str, Devices],
    cluster: Cluster,
    submit: Submit,
    shared_dir: Path,
) -> None:
    for name in ("first", "second", "third"):
        gang = submit(on_node_1(gang_of(name, shared_dir, 1)))
        gang.runs(1)
        broken = device(gang)
        plugged[broken].mark(broken, healthy=False)
        gang.runs(2)
        plugged[broken].mark(broken, healthy=True)
        cluster.kubectl("delete", "gj", name, "-n", gang.namespace, "--timeout=60s")

    def recorded() -> dict[str, Any] | None:
        nodes = {one["name"]: one for one in shown(cluster, "nodes")["nodes"]}
        found: dict[str, Any] | None = nodes.get("node-1")
        return found if found is not None and found["avoidedByNamespaces"] else None

    record = until("node-1 is avoided", recorded, every=0.5)
    assert record["faults"] == {"DeviceLost": pytest.approx(3, abs=0.1)}
    assert not record["avoided"], "by other namespaces it isn't"
    for name in ("fourth", "fifth"):
        gang = submit(gang_of(name, shared_dir, 1))
        gang.runs(1)
        pod = gang.pods()["worker-0"]["spec"]
        assert pod["nodeName"] == "node-2"
        (term,) = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["preference"]["matchFields"][0]["values"] == ["node-1"]
    selectors = ("--candidate", "kubernetes.io/hostname=node-1", "--baseline", "kubernetes.io/hostname=node-2")
    assert shown(cluster, "gate", *selectors)["outcome"] == "NotEnoughData"
