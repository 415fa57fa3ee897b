"""The records of nodes on a real cluster: who avoids a node that fails, what a tenant can't do, and what clears it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import installation, process_faults
from e2e.accelerators import gang_of
from e2e.cluster.device_plugin import Devices
from e2e.clusters import Cluster
from e2e.gangs import Gang, sleepers
from e2e.installation import NAMESPACE, Installed, scale
from gangctl.annexes.node_records import records, stored
from gangctl.annexes.node_records.records import Finding
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


def break_device(plugged: dict[str, Devices], gang: Gang) -> None:
    """The device of its only member fails, and is whole again when the gang has left it and is gone."""
    gang.runs(1)
    broken = device(gang)
    plugged[broken].mark(broken, healthy=False)
    gang.runs(2)
    plugged[broken].mark(broken, healthy=True)
    gang.kubectl("delete", "gj", gang.name, "-n", gang.namespace, "--timeout=60s")


def record_of(cluster: Cluster) -> dict[str, Any]:
    """What is known of node-1."""
    nodes = {one["name"]: one for one in shown(cluster, "nodes")["nodes"]}
    found: dict[str, Any] = nodes.get("node-1", {})
    return found


def avoided(cluster: Cluster) -> dict[str, Any] | None:
    found = record_of(cluster)
    return found if found.get("avoidedByNamespaces") else None


@pytest.mark.usefixtures("recording")
def test_a_node_that_fails_in_three_gangs_is_avoided_by_a_fourth(
    plugged: dict[str, Devices],
    cluster: Cluster,
    submit: Submit,
    shared_dir: Path,
) -> None:
    for name in ("first", "second", "third"):
        break_device(plugged, submit(on_node_1(gang_of(name, shared_dir, 1))))
    record = until("node-1 is avoided", lambda: avoided(cluster), every=0.5)
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


@pytest.mark.usefixtures("recording")
def test_a_tenant_that_breaks_devices_in_many_gangs_moves_nobody_elses_pods(
    plugged: dict[str, Devices],
    cluster: Cluster,
    submit: Submit,
    shared_dir: Path,
    namespace: str,
) -> None:
    clear(cluster)
    with cluster.namespace("victim") as other:
        victim = Gang(cluster.kubectl, other, "victim").apply(on_node_1(gang_of("victim", shared_dir / "victim", 1)))
        victim.runs(1)
        uids = victim.uids()
        for at in range(4):
            break_device(plugged, submit(on_node_1(gang_of(f"attack-{at}", shared_dir, 1))))
        until("all are recorded", lambda: record_of(cluster).get("faults", {}).get("DeviceLost", 0) > 3.9, every=0.5)
        record = record_of(cluster)
        assert record["avoidedByNamespaces"] == [namespace]
        assert (record["score"], record["avoided"]) == (pytest.approx(0.8, abs=0.01), False)
        answered = shown(cluster, "why", "node/node-1")
        assert answered["suspected"].startswith("no")
        victim.patch(restartToken="again")
        victim.runs(2)
        assert victim.uids() == uids
        later = Gang(cluster.kubectl, other, "later").apply(gang_of("later", shared_dir / "later", 1))
        later.runs(1)
        assert "affinity" not in later.pods()["worker-0"]["spec"]


@pytest.mark.usefixtures("recording")
def test_a_passed_check_after_the_repair_clears_the_record(
    cluster: Cluster,
    submit: Submit,
    shared_dir: Path,
    namespace: str,
) -> None:
    two_hours_ago = time.time() - 7200
    found = [Finding("node-1", namespace, f"g{at}", "DeviceLost", "", two_hours_ago, is_fault=True) for at in range(3)]
    scale(cluster, 0)
    data = {stored.KEY: stored.write(records.with_findings({}, found, time.time()), time.time())}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP, "namespace": NAMESPACE}, "data": data}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(made))
    scale(cluster, 2)
    assert record_of(cluster)["avoidedByNamespaces"] == [namespace]
    document = on_node_1(sleepers("repaired", replicas=1, directory=str(shared_dir), steps=True))
    document["spec"]["recovery"]["checks"] = [{"name": "gpu", "when": "Suspect", "command": ["true"]}]
    gang = submit(document)
    gang.runs(1)
    process_faults.kill(process_faults.worker(gang.uids()["worker-0"]))
    (result,) = gang.runs(2)["checks"]["results"]
    assert (result["result"], result["nodes"]) == ("Passed", ["node-1"])
    until("the record is cleared", lambda: record_of(cluster)["namespaces"] == {}, every=0.5)
    assert record_of(cluster)["checks"] == {"Passed": pytest.approx(1, abs=0.01)}


def clear(cluster: Cluster) -> None:
    """Let the controllers begin with no records."""
    scale(cluster, 0)
    cluster.kubectl("delete", "configmap", MAP, "-n", NAMESPACE, "--ignore-not-found")
    scale(cluster, 2)
