"""What others write at nodes, and drains: a gang leaves a node in one attempt and keeps off it, and only news count."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, sleepers
from e2e.installation import NAMESPACE, RELEASE
from e2e.whys import why
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
NODE = "node-3"
GRACE = 20
"""Seconds that a node which shuts down gives its pods: more than their own grace."""
SIGN = {"type": "GpuXidError", "status": "True", "reason": "Xid79", "message": "a GPU has fallen off the bus"}


def spread(name: str, directory: Path, **recovery: Any) -> dict[str, Any]:
    """Six members, two on each of three nodes."""
    document = sleepers(name, replicas=6, directory=str(directory), recovery=recovery)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    return document


def placed(gang: Gang) -> dict[str, str]:
    """Member -> node of its pod."""
    return {member: pod["spec"]["nodeName"] for member, pod in gang.pods().items()}


def on(gang: Gang, node: str) -> set[str]:
    """The members on a node."""
    return {member for member, where in placed(gang).items() if where == node}


def show(kubectl: Kubectl, node: str, **condition: str) -> None:
    """A health agent sets a condition of a node."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    whole = {"lastTransitionTime": now, "lastHeartbeatTime": now, **SIGN, **condition}
    patch = json.dumps({"status": {"conditions": [whole]}})
    kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p", patch)


def moved(gang: Gang, uids: dict[str, str], left: set[str], reason: str) -> dict[str, Any]:
    """The status after the one restart in which these members left the node; each was replaced once, no other was."""
    status = gang.runs(2, 120)
    pods = gang.pods()
    assert {member: pod["metadata"]["name"].rpartition("-")[2] for member, pod in pods.items()} == {
        member: "1" if member in left else "0" for member in uids
    }
    assert not on(gang, NODE)
    assert status["incidents"][0]["cause"]["reason"] == reason
    assert (len(status["incidents"]), status["restarts"]["counted"]) == (1, 0)
    return status


@pytest.fixture
def uncordoned(cluster: Cluster) -> Iterator[None]:
    """The nodes that a test cordons take pods again afterwards."""
    yield
    for node in ("node-1", "node-2"):
        cluster.kubectl("uncordon", node)


@pytest.mark.usefixtures("third_node")
def test_a_node_with_a_bad_condition_is_left_at_once(
    submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gang = submit(spread("xid", shared_dir))
    gang.runs(1)
    uids, left = gang.uids(), on(gang, NODE)
    assert left
    began = time.monotonic()
    show(gang.kubectl, NODE)
    status = moved(gang, uids, left, "NodeUnhealthy")
    with capsys.disabled():
        print(f"\n  node condition set to all run again: {time.monotonic() - began:.1f} s ", end="")
    assert "condition GpuXidError=True (Xid79)" in status["incidents"][0]["cause"]["message"]
    assert not status["incidents"][0]["planned"]


def taken_by_an_autoscaler(kubectl: Kubectl) -> None:
    kubectl("taint", "node", NODE, "karpenter.sh/disrupted:NoSchedule")


def said_to_be_drained(kubectl: Kubectl) -> None:
    """By the condition of Kubernetes 1.37, which any release stores."""
    show(kubectl, NODE, type="DrainInProgress", reason="AdminRequested", message="a new kernel")


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
@pytest.mark.parametrize("told", [taken_by_an_autoscaler, said_to_be_drained])
def test_a_node_that_is_about_to_go_is_left_in_one_planned_restart(
    told: Callable[[Kubectl], None], submit: Submit, shared_dir: Path
) -> None:
    gang = submit(spread("taken", shared_dir))
    gang.runs(1)
    uids, left = gang.uids(), on(gang, NODE)
    told(gang.kubectl)
    assert moved(gang, uids, left, "NodeDrained")["incidents"][0]["planned"]


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
def test_a_taint_that_evicts_replaces_each_member_once(submit: Submit, shared_dir: Path) -> None:
    gang = submit(spread("tainted", shared_dir))
    gang.runs(1)
    uids, left = gang.uids(), on(gang, NODE)
    gang.kubectl("taint", "node", NODE, "example.com/out:NoExecute")
    moved(gang, uids, left, "NodeLost")


@pytest.mark.usefixtures("third_node")
def test_a_drain_of_a_node_with_several_members_is_one_restart(
    cluster: Cluster, submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gang = submit(spread("emptied", shared_dir))
    gang.runs(1)
    uids, left = gang.uids(), on(gang, NODE)
    assert len(left) > 1
    began = time.monotonic()
    drain(gang, NODE)
    status = moved(gang, uids, left, "Evicted")
    with capsys.disabled():
        print(f"\n  drain of {len(left)} members: one restart, {time.monotonic() - began:.1f} s ", end="")
    assert status["incidents"][0]["planned"]
    told = why(cluster, gang)
    last = told["restarts"]["last"]
    incident = last["incident"]
    assert (told["runs"], incident["reason"], incident["charged"], last["default"]["evidence"]) == (
        True,
        "Evicted",
        False,
        "Disruption",
    )
    assert f"node {NODE}" in incident["evidence"]


@pytest.mark.nightly
def test_a_node_that_shuts_down_is_left_in_one_planned_restart(
    third_node: Any, submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kubelet may tell pods to end a second apart, but first it says that the node shuts down."""
    third_node.heed_shutdowns(GRACE)
    gang = submit(spread("off", shared_dir))
    gang.runs(1)
    uids, left = gang.uids(), on(gang, NODE)
    assert len(left) > 1
    began = time.monotonic()
    third_node.announce_shutdown()
    status = gang.runs(2, 120)
    with capsys.disabled():
        print(f"\n  shutdown of a node with {len(left)} members: {time.monotonic() - began:.1f} s ", end="")
    assert {member for member, uid in gang.uids().items() if uid != uids[member]} == left
    assert not on(gang, NODE)
    (only,) = status["incidents"]
    assert (only["planned"], only["charged"], status["restarts"]["counted"]) == (True, False, 0)
    assert only["cause"]["reason"] in {"NodeDrained", "Disrupted"}


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node", "uncordoned")
def test_drains_of_two_nodes_in_a_row_are_one_restart(submit: Submit, shared_dir: Path) -> None:
    gang = submit(spread("row", shared_dir, coalesceSeconds=40))
    gang.runs(1)
    drain(gang, NODE)
    drain(gang, "node-2")
    status = gang.runs(2, 180)
    assert set(placed(gang).values()) == {"node-1"}
    assert (len(status["incidents"]), status["restarts"]["counted"]) == (1, 0)


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
def test_what_a_node_showed_before_moves_no_pod_also_under_a_new_leader(
    cluster: Cluster, submit: Submit, shared_dir: Path
) -> None:
    show(cluster.kubectl, NODE)
    cluster.kubectl("label", "node", NODE, "cloud.google.com/active-node-maintenance=ONGOING")
    gang = submit(spread("old", shared_dir))
    gang.runs(1)
    uids, there = gang.uids(), on(gang, NODE)
    assert there
    told = f"the node of {min(there)} shows condition GpuXidError=True (Xid79)"
    until("the gang's condition tells of it", lambda: told in json.dumps(gang.status["conditions"]), every=0.5)
    controllers = ("-n", NAMESPACE, "deployment", RELEASE)
    cluster.kubectl("rollout", "restart", *controllers)
    cluster.kubectl("rollout", "status", *controllers, "--timeout=120s")
    process_faults.kill(process_faults.worker(uids[min(there)]))
    status = gang.runs(2)
    assert (gang.uids(), status["incidents"][0]["cause"]["reason"]) == (uids, "Signal")


def drain(gang: Gang, node: str) -> None:
    """As people do it."""
    gang.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=150s", "--force")
