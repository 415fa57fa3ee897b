"""Pods without a node: which kind of shortage it is, with figures, and which pods would have to move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gangctl.core.facts.world import Pod
from gangctl.explain.why.findings import Finding, FindingKind
from gangctl.explain.why.pending import find_unscheduled
from gangctl.explain.why.walk import Moves
from gangctl.explain.why.world import GangSurroundings, Inventory
from gangctl.kubernetes.objects import Node, WholePod
from tests.core.test_linear import counted
from tests.explain.why.clusters import GPU, cluster, node, pod

SAID: dict[str, Any] = {
    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]}
}


def waiting(count: int, gpus: int, **spec: Any) -> tuple[WholePod, ...]:
    return tuple(pod(f"gang-worker-{at}-0", gpus, **SAID, **spec) for at in range(count))


def found(pods: tuple[WholePod, ...], there: Inventory | None) -> Finding:
    around = GangSurroundings(waiting=pods, cluster=there)
    members = {one.name: f"worker-{at}" for at, one in enumerate(pods)}
    (finding,) = find_unscheduled(around, members, "the gang waits")
    return finding


def moved(moves: Moves | None) -> list[tuple[str, str]]:
    assert moves is not None
    return [(one.pod, one.to) for one in moves.moves]


def halves() -> list[Node]:
    return [node("node-a"), node("node-b")]


def test_enough_in_total_and_not_on_one_node_names_the_nodes_and_what_would_have_to_move() -> None:
    there = cluster(
        halves(),
        pod("bert", 5, on="node-a"),
        pod("notebook", 1, on="node-a"),
        pod("t5", 5, on="node-b"),
    )
    finding = found(waiting(1, 4), there)
    assert finding.kind is FindingKind.FRAGMENTED
    assert finding.seen == (
        f"worker-0 has no node: it needs 4 {GPU}; enough in total, not on one node: 5 {GPU} free in total, at most 3 "
        "on one node"
    )
    assert [(one.node, one.needs, one.free, one.of, one.taken) for one in finding.nodes] == [
        ("node-a", "4", "2", "8", "lab/bert (5), lab/notebook (1)"),
        ("node-b", "4", "3", "8", "lab/t5 (5)"),
    ]
    assert finding.told == f"0/2 nodes are available: 2 Insufficient {GPU}"
    assert finding.moves is None  # 2 are lacking on node-a and 1 on node-b; no pod that frees as much fits elsewhere
    assert "no few pods that could move would make room" in finding.do


def test_a_profile_of_mig_is_a_resource_like_another() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    parts: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {mig: "4"}}}]}
    nodes = [node(name, 0, allocatable={mig: "7", "nvidia.com/mig-3g.40gb": "8"}) for name in ("node-a", "node-b")]
    there = cluster(nodes, pod("bert", on="node-a", **parts), pod("t5", on="node-b", **parts))
    finding = found((pod("gang-worker-0-0", **SAID, **parts),), there)
    assert finding.kind is FindingKind.FRAGMENTED
    assert finding.seen == (
        f"worker-0 has no node: it needs 4 {mig}; enough in total, not on one node: 6 {mig} free in total, at most 3 "
        "on one node"
    )


def test_the_smallest_pod_that_makes_room_and_fits_elsewhere_would_move() -> None:
    there = cluster(
        [*halves(), node("node-c", 2)],
        pod("bert", 5, on="node-a"),
        pod("notebook", 1, on="node-a"),
        pod("other", 1, on="node-a"),
        pod("t5", 4, on="node-b"),
        pod("small", 2, on="node-b"),
        pod("cpu-only", 0, on="node-b"),
    )
    finding = found(waiting(1, 4), there)
    assert finding.kind is FindingKind.FRAGMENTED
    assert moved(finding.moves) == [("lab/small", "node-c")]
    assert "make room on node-b: move lab/small (to node-c)" in finding.do
    assert "lab/small has no controller and would not come back" in finding.do


def test_of_several_pods_the_largest_move_first_and_each_needs_a_place() -> None:
    there = cluster(
        [node("node-a"), node("node-b", 3), node("node-c", 3)],
        *(pod(f"two-{at}", 2, on="node-a") for at in range(2)),
        pod("one", 1, on="node-a"),
    )
    finding = found(waiting(1, 7), there)
    assert moved(finding.moves) == [("lab/two-0", "node-b"), ("lab/two-1", "node-c")]


def work_of(pods: int) -> int:
    """The instructions of an answer for nodes with so many pods, of which none fits on another node."""
    nodes = [f"node-{at}" for at in range(5)]
    there = [pod(f"{name}-{at}", 2, on=name) for name in nodes for at in range(pods)]
    full = cluster([node(name, 2 * pods + 1) for name in nodes], *there)
    with counted() as work:
        finding = found(waiting(1, 4), full)
    assert (finding.kind, finding.moves) == (FindingKind.FRAGMENTED, None)
    return work.done


def test_of_pods_that_ask_for_the_same_one_is_tried_on_each_node() -> None:
    assert work_of(40) < 2.5 * work_of(20)


@pytest.mark.parametrize(
    "fixed",
    [
        {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}},
        {"metadata": {"ownerReferences": [{"kind": "Node", "controller": True}]}},
        {"metadata": {"deletionTimestamp": "2026-01-31T12:00:00Z"}},
        {"priority": 1000},
    ],
)
def test_a_pod_that_stays_is_not_named_as_one_that_could_move(fixed: dict[str, Any]) -> None:
    there = cluster([node("node-a", 4), node("node-b", 2)], pod("stays", 2, on="node-a", **fixed))
    finding = found(waiting(1, 4), there)
    assert finding.kind is FindingKind.FRAGMENTED
    assert finding.moves is None


def test_the_gang_s_own_pods_do_not_move() -> None:
    own = Pod(name="gang-worker-1-0", uid="uid-own", member="worker-1", incarnation=0)
    there = cluster([node("node-a", 4), node("node-b", 2)], pod("own", 2, on="node-a"))
    around = GangSurroundings(pods=(own,), waiting=waiting(1, 4), cluster=there)
    (finding,) = find_unscheduled(around, {}, "")
    assert finding.moves is None


def test_less_free_in_total_than_all_pods_need_is_not_a_matter_of_moving() -> None:
    there = cluster(halves(), pod("bert", 5, on="node-a"), pod("t5", 5, on="node-b"))
    finding = found(waiting(2, 4), there)
    assert finding.kind is FindingKind.NOT_ENOUGH
    assert finding.seen == f"worker-0 and worker-1 have no node: each needs 4 {GPU}, and 6 are free in total"
    assert finding.do == f"add nodes with 2 more {GPU}, free some, or lower the request"


def test_room_for_some_of_the_pods_is_told_and_what_the_others_lack() -> None:
    there = cluster(halves(), pod("t5", 5, on="node-b"))
    finding = found(waiting(3, 4), there)
    assert finding.kind is FindingKind.NOT_ENOUGH
    assert "there is room for 2 of 3; each needs 4" in finding.seen
    assert "3 are free beside that" in finding.seen


def test_a_request_that_no_node_can_ever_meet_is_told_at_once() -> None:
    finding = found(waiting(2, 16), cluster(halves()))
    assert finding.kind is FindingKind.TOO_LARGE
    assert f"each needs 16 {GPU}, and no node that would do has more than 8" in finding.seen
    assert finding.do == "lower the request, or add nodes that have as much"


def test_nodes_that_would_not_do_do_not_count_as_room() -> None:
    there = cluster([node("node-a", 8, cordoned=True), node("node-b", 2)])
    finding = found(waiting(1, 4), there)
    assert finding.kind is FindingKind.TOO_LARGE
    assert [(one.node, one.free, one.why) for one in finding.nodes] == [
        ("node-a", "", "were unschedulable (cordoned)"),
        ("node-b", "2", f"Insufficient {GPU}"),
    ]


def test_labels_and_taints_that_leave_no_node_are_named_with_what_to_do() -> None:
    taint = {"key": "maintenance", "value": "", "effect": "NoSchedule"}
    there = cluster(
        [node("node-a"), node("node-b", cordoned=True), node("node-c", labels={"pool": "h100"}, taints=[taint])]
    )
    finding = found(waiting(1, 4, nodeSelector={"pool": "h100"}), there)
    assert finding.kind is FindingKind.NO_NODE
    assert finding.seen == (
        "worker-0 has no node: no node would do, whatever is free: node-a: didn't match Pod's node affinity/selector "
        "(nodeSelector pool=h100); node-b is cordoned; node-c: had untolerated taint {maintenance: } "
        "(maintenance:NoSchedule)"
    )
    assert "kubectl uncordon NODE" in finding.do
    assert "add a toleration to the template" in finding.do
    assert "label nodes as the template asks" in finding.do


def test_pods_that_would_fit_wait_for_the_scheduler_or_for_one_that_does_not_run() -> None:
    finding = found(waiting(2, 4), cluster(halves()))
    assert finding.kind is FindingKind.FITS
    assert "the scheduler last said: 0/2 nodes are available" in finding.seen
    unseen = (pod("gang-worker-0-0", 4, schedulerName="volcano"),)
    finding = found(unseen, cluster(halves()))
    assert finding.kind is FindingKind.NO_SCHEDULER
    assert "check that the scheduler volcano runs" in finding.do


def test_a_gate_is_told_before_anything_is_counted() -> None:
    finding = found(waiting(1, 99, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), cluster([]))
    assert finding.kind is FindingKind.SCHEDULING_GATED
    assert "kueue.x-k8s.io/admission" in finding.seen


def test_without_nodes_the_scheduler_is_quoted() -> None:
    finding = found(waiting(1, 4), None)
    assert finding.kind is FindingKind.UNSCHEDULABLE
    assert finding.seen == "worker-0 has no node: 0/2 nodes are available"


def test_what_is_not_looked_at_is_said() -> None:
    finding = found(waiting(1, 4, resourceClaims=[{"name": "gpu"}]), cluster(halves()))
    assert finding.unread == ("resourceClaims",)


def test_tainted_devices_of_the_nodes_that_would_do_are_named_for_pods_with_claims() -> None:
    nodes = cluster([node("node-a"), node("node-b", cordoned=True)])
    nodes = replace(nodes, tainted={"node-a": ("d/node-a/gpu-0 (sick:NoSchedule)",), "node-b": ("d/node-b/gpu-0",)})
    finding = found(waiting(1, 0, resourceClaims=[{"name": "gpu"}]), nodes)
    assert finding.kind is FindingKind.FITS
    assert finding.tainted == ("d/node-a/gpu-0 (sick:NoSchedule)",)
    assert found(waiting(1, 1), nodes).tainted == ()


def test_roles_that_ask_for_different_things_are_findings_of_their_own() -> None:
    small, large = waiting(1, 1), (pod("gang-big-0-0", 16, **SAID),)
    around = GangSurroundings(waiting=(*small, *large), cluster=cluster([node("node-a", 0)]))
    findings = list(find_unscheduled(around, {}, ""))
    assert sorted(one.members for one in findings) == [("gang-big-0-0",), ("gang-worker-0-0",)]
