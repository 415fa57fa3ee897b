"""Suspected nodes are handed over on a real cluster: once, whichever replica leads, until the record is cleared.

NVSentinel itself doesn't run here, and its CRD, which is generated, isn't in this repository: here are the fields that
gangctl writes, with their types, and the rules of its webhook. Sources, in github.com/NVIDIA/NVSentinel:
data-models/protobufs/health_event.proto (264bfab8), and in lifecycle-manager/pkg/webhook/v1alpha1
maintenancerequest_webhook.go (63f459bd).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import installation
from e2e.clusters import Cluster
from e2e.installation import NAMESPACE, RELEASE, Installed, scale
from gangctl.annexes.node_records import records, stored
from gangctl.annexes.node_records.records import Finding
from tests.wait import until

pytestmark = pytest.mark.nightly

MAP = "gangctl-node-records"
GROUP = "nvsentinel.dgxc.nvidia.com"
FINALIZER = f"{GROUP}/maintenance-request-cleanup"
"""NVSentinel keeps a request that is being deleted until it has uncordoned the node."""
TEXT, YES_OR_NO = {"type": "string"}, {"type": "boolean"}
ACTIONS = """
NONE COMPONENT_RESET CONTACT_SUPPORT RUN_FIELDDIAG RESTART_VM RESTART_BM REPLACE_VM RUN_DCGMEUD RESTART_APP CUSTOM
UNKNOWN
"""
EVENT = {
    **dict.fromkeys(("agent", "componentClass", "checkName", "message", "nodeName", "id", "generatedTimestamp"), TEXT),
    **dict.fromkeys(("isFatal", "isHealthy"), YES_OR_NO),
    "version": {"type": "integer", "format": "uint32"},
    "recommendedAction": {"x-kubernetes-int-or-string": True, "enum": ACTIONS.split()},
    "errorCode": {"type": "array", "items": TEXT},
    "metadata": {"type": "object", "additionalProperties": TEXT},
}
RULES = ("self.version > 0", "self.nodeName != ''", "!has(self.isHealthy) || !self.isHealthy")
"""What NVSentinel's webhook asks of a request that is created."""


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def crd() -> dict[str, Any]:
    """The CRD of MaintenanceRequests."""
    names = {"kind": "MaintenanceRequest", "plural": "maintenancerequests", "singular": "maintenancerequest"}
    asked = {"required": ["version", "nodeName"], "x-kubernetes-validations": [{"rule": one} for one in RULES]}
    schema = _object(spec=_object(healthEvent=_object(**EVENT) | asked, startTime=TEXT), status=_object())
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": f"maintenancerequests.{GROUP}"}, "spec": spec}


@pytest.fixture(scope="module")
def handing_over(cluster: Cluster, gangctl_installed: Installed) -> Iterator[None]:
    """The installed release, which hands nodes over that have failed in one namespace."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(crd()))
    cluster.until_served(f"maintenancerequests.{GROUP}")
    ways = ("condition=true", "maintenanceRequests=true", "suspectNamespaces=1")
    installation.enable(cluster, "nodeRecords", *(f"nodeRecords.{one}" for one in ways))
    yield
    installation.enable(cluster, "nodeRecords", wanted=False)
    cluster.kubectl("delete", "configmap", MAP, "-n", NAMESPACE, "--ignore-not-found")
    cluster.kubectl("delete", "crd", f"maintenancerequests.{GROUP}")
    assert gangctl_installed.release == RELEASE


def record_faults(cluster: Cluster, *nodes: str) -> None:
    """Store what a leader does that dies before it announces anything."""
    now = time.time()
    each = [(node, f"g{at}") for node in nodes for at in range(3)]
    found = [Finding(node, "research", gang, "DeviceLost", "gpu-3", now, is_fault=True) for node, gang in each]
    data = {stored.KEY: stored.write(records.with_findings({}, found, now), now)}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP, "namespace": NAMESPACE}, "data": data}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(made))


def requests(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "maintenancerequests", "-o", "json"))["items"]
    return found


def condition(cluster: Cluster, node: str) -> dict[str, str]:
    found = json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["status"]["conditions"]
    its: dict[str, str] = next((one for one in found if one["type"] == "GangctlSuspected"), {})
    return its


def until_announced(cluster: Cluster, node: str, status: str, count: int) -> list[dict[str, Any]]:
    until(
        f"{node} is announced: {status}",
        lambda: condition(cluster, node).get("status") == status and len(requests(cluster)) == count,
        every=0.5,
    )
    return requests(cluster)


def test_a_node_is_handed_over_once_and_given_back_after_its_repair(handing_over: None, cluster: Cluster) -> None:  # noqa: ARG001
    scale(cluster, 0)
    record_faults(cluster, "node-1")
    scale(cluster, 2)
    (made,) = until_announced(cluster, "node-1", "True", 1)
    event = made["spec"]["healthEvent"]
    assert (made["metadata"]["name"], event["nodeName"], event["errorCode"]) == (
        "gangctl-node-1",
        "node-1",
        ["DeviceLost"],
    )
    assert (event["isHealthy"], event["recommendedAction"], event["version"]) == (False, "NONE", 1)
    before = condition(cluster, "node-1")
    assert "DeviceLost 3.0" in before["message"]

    finalizers = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
    cluster.kubectl("patch", "maintenancerequest", "gangctl-node-1", "--type=merge", "-p", finalizers)
    scale(cluster, 0)  # the leader is gone; kubelets write their conditions meanwhile
    scale(cluster, 2)
    record_faults(cluster, "node-1", "node-2")  # two nodes of two would be too many, and the first one was announced
    again = until_announced(cluster, "node-1", "True", 1)
    assert [one["metadata"]["uid"] for one in again] == [made["metadata"]["uid"]]
    assert condition(cluster, "node-1")["lastTransitionTime"] == before["lastTransitionTime"]
    assert condition(cluster, "node-2") == {}


def test_a_record_that_is_cleared_while_no_controller_runs_gives_the_node_back(
    handing_over: None,  # noqa: ARG001
    cluster: Cluster,
) -> None:
    record_faults(cluster, "node-1")
    (made,) = until_announced(cluster, "node-1", "True", 1)
    scale(cluster, 0)
    done = cluster.run(sys.executable, "-m", "gangctl", "nodes", "node-1", "--clear", "-n", NAMESPACE)
    assert done.returncode == 0, done.stderr
    scale(cluster, 2)
    until("the condition is False", lambda: condition(cluster, "node-1").get("status") == "False", every=0.5)
    until("the request is being deleted", lambda: "deletionTimestamp" in requests(cluster)[0]["metadata"], every=0.5)
    cluster.kubectl(
        "patch",
        "maintenancerequest",
        made["metadata"]["name"],
        "--type=merge",
        "-p",
        '{"metadata":{"finalizers":null}}',
    )
    until_announced(cluster, "node-1", "False", 0)
