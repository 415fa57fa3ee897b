"""GangJobs whose pods an unmodified Kueue places: required, preferred and in slices, replaced and moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.gangs import Gang
from e2e.queues.kueue import HOSTNAME, LABEL_QUEUE, pooled, queue
from e2e.queues.test_kueue import Queues, Submit, holds, waits
from e2e.scarce import ON_NODE, RESOURCE, needing_most, places
from tests.wait import until

ANNOTATION = "kueue.x-k8s.io/podset"
REQUIRED = {f"{ANNOTATION}-required-topology": HOSTNAME}
PREFERRED = {f"{ANNOTATION}-preferred-topology": HOSTNAME}
SLICES = {f"{ANNOTATION}-slice-required-topology": HOSTNAME, f"{ANNOTATION}-slice-size": str(ON_NODE)}
QUOTA = {RESOURCE: "8", "cpu": "2", "memory": "4Gi"}
"""More than the nodes have: only the topology decides."""


@pytest.fixture
def queues(cluster: Cluster, kueue_installed: Any, third_node: Any, namespace: str) -> Iterator[Queues]:  # noqa: ARG001
    """A queue with topology for two nodes with room for two members each. The third node is in no pool yet."""
    with places(cluster), queue(cluster.kubectl, namespace, QUOTA, ["node-2", "node-3"], topology=True) as name:
        yield Queues(name, namespace, cluster.kubectl)


def placed(name: str, queue: str, directory: Path, members: int, annotations: dict[str, str]) -> dict[str, Any]:
    """A gang in a queue, whose template asks for a topology."""
    recovery = {"lostPodGraceSeconds": 1}
    made = needing_most(name, str(directory / name), members=members, steps=True, recovery=recovery)
    made["metadata"]["labels"] = {LABEL_QUEUE: queue}
    made["spec"]["roles"][0]["template"]["metadata"] = {"annotations": annotations}
    return made


def nodes(gang: Gang) -> list[str]:
    """The nodes of its members, in their order."""
    found = gang.pods()
    return [found[f"worker-{at}"]["spec"].get("nodeName", "") for at in range(len(found))]


def assert_whole(queues: Queues, gang: str, uid: str) -> None:
    """The gang has the same Workload, which Kueue has never evicted, and in which no node is unhealthy."""
    (one,) = queues.workloads(gang)
    assert one["metadata"]["uid"] == uid
    assert holds(one, "Admitted")
    assert "Evicted" not in {found["type"] for found in one["status"]["conditions"]}
    assert "unhealthyNodes" not in one["status"]


def delete(gang: Gang, *members: str) -> None:
    """Delete the pods of these members."""
    found = gang.pods()
    names = [found[member]["metadata"]["name"] for member in members]
    gang.kubectl("delete", "pod", *names, "-n", gang.namespace, "--wait=false")


@pytest.mark.parametrize(
    ("annotations", "members", "apart"),
    [
        pytest.param(REQUIRED, 2, [[0, 1]], id="required"),
        pytest.param(PREFERRED, 3, [[0, 1], [2]], id="preferred"),
        pytest.param(SLICES, 4, [[0, 1], [2, 3]], id="slices"),
    ],
)
def test_members_are_placed_as_their_template_asks_and_replaced_ones_keep_their_place(
    queues: Queues, submit: Submit, shared_dir: Path, annotations: dict[str, str], members: int, apart: list[list[int]]
) -> None:
    gang = submit(placed("placed", queues.name, shared_dir, members, annotations))
    gang.runs(1)
    before, uids, admitted = nodes(gang), gang.uids(), queues.admitted("placed")
    assert sorted([at for at, node in enumerate(before) if node == one] for one in set(before)) == apart
    delete(gang, "worker-1")
    gang.runs(2)
    assert nodes(gang) == before
    assert {member for member, uid in gang.uids().items() if uid != uids[member]} == {"worker-1"}
    assert_whole(queues, "placed", admitted)
    if annotations is SLICES:  # Both nodes lack one: each gets the member that it had.
        delete(gang, "worker-1", "worker-2")
        gang.until("both are replaced", lambda status: status["attempt"] == 3 and status["phase"] == "Running")
        assert nodes(gang) == before
        assert_whole(queues, "placed", admitted)


def test_a_gang_that_no_domain_can_hold_waits_without_pods(queues: Queues, submit: Submit, shared_dir: Path) -> None:
    gang = submit(placed("large", queues.name, shared_dir, ON_NODE + 1, REQUIRED))
    waits(gang, queues.name, "topology")
    assert gang.pods() == {}


def test_members_of_a_lost_node_go_where_kueue_says_and_the_others_stay(
    cluster: Cluster, queues: Queues, submit: Submit, shared_dir: Path, third_node: Any
) -> None:
    gang = submit(placed("moved", queues.name, shared_dir, 4, SLICES))
    gang.runs(1)
    before, uids, admitted = nodes(gang), gang.uids(), queues.admitted("moved")
    lost = {at for at, node in enumerate(before) if node == third_node.name}
    assert lost in ({0, 1}, {2, 3})
    with pooled(cluster.kubectl, queues.namespace, ["node-1"]):
        third_node.machine.kill()
        gang.runs(2, 240)
        assert nodes(gang) == ["node-1" if at in lost else "node-2" for at in range(4)]
        assert all((gang.uids()[f"worker-{at}"] == uids[f"worker-{at}"]) == (at not in lost) for at in range(4))
        assert_whole(queues, "moved", admitted)


def test_a_gang_for_whose_lost_node_kueue_knows_no_other_waits_for_one_without_pods(
    cluster: Cluster, queues: Queues, submit: Submit, shared_dir: Path, third_node: Any
) -> None:
    gang = submit(placed("evicted", queues.name, shared_dir, 4, SLICES))
    gang.runs(1)
    third_node.machine.kill()
    waits(gang, queues.name)
    until("those on the other node are gone", lambda: not gang.pods())
    assert queues.admitted("evicted") == ""
    with pooled(cluster.kubectl, queues.namespace, ["node-1"]):
        status = gang.until("it runs again", lambda one: one if one["phase"] == "Running" else None, 240)
        assert set(nodes(gang)) == {"node-1", "node-2"}
        assert status["restarts"]["counted"] <= 1
