"""The scheduler's walk on small clusters: what each node answers, in kube-scheduler's words."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.explain.why.walk import scheduler_message, walk
from gangctl.explain.why.world import Claim
from gangctl.kubernetes.objects import Node, requests
from gangctl.kubernetes.schema import RawWholePodSpec
from tests.explain.why.clusters import GPU, cluster, node, pod

TAINT = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
NEEDS_ZONE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}


def apart(key: str = "kubernetes.io/hostname", **selector: Any) -> dict[str, Any]:
    term = {"labelSelector": selector or {"matchLabels": {"gang": "x"}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def near(key: str) -> dict[str, Any]:
    return {"podAffinity": apart(key)["podAntiAffinity"]}


LABELLED: dict[str, Any] = {"metadata": {"labels": {"gang": "x"}}}


@pytest.mark.parametrize(
    ("spec", "one", "said"),
    [
        ({}, node("a"), "1/1 nodes are available"),
        ({"gpus": 9}, node("a"), f"0/1 nodes are available: 1 Insufficient {GPU}"),
        ({}, node("a", cordoned=True), "0/1 nodes are available: 1 node(s) were unschedulable"),
        (
            {},
            node("a", taints=[TAINT]),
            "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: true}",
        ),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, node("a", taints=[TAINT]), "1/1 nodes are available"),
        ({}, node("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}]), "1/1 nodes are available"),
        (
            {"nodeSelector": {"pool": "h100"}},
            node("a"),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector",
        ),
        ({"affinity": NEEDS_ZONE}, node("a", labels={"zone": "a"}), "1/1 nodes are available"),
        (
            {"affinity": NEEDS_ZONE},
            node("a", labels={"zone": "b"}),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            {"gpus": 0, "containers": [{"name": "m", "resources": {"requests": {"cpu": "65", "memory": "1Ti"}}}]},
            node("a"),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory",
        ),
        ({}, node("a", allocatable={"pods": "0"}), "0/1 nodes are available: 1 Too many pods"),
    ],
)
def test_a_node_answers_as_the_scheduler_does(spec: dict[str, Any], one: Node, said: str) -> None:
    waiting = pod("w", **spec)
    assert scheduler_message(walk(waiting, cluster([one]))) == said


def test_a_cordoned_node_without_room_is_told_by_its_first_filter_only() -> None:
    waiting = pod("w", 9)
    there = cluster([node("a"), node("b", cordoned=True), node("c", taints=[TAINT])])
    assert scheduler_message(walk(waiting, there)) == (
        f"0/3 nodes are available: 1 Insufficient {GPU}, 1 node(s) had untolerated taint {{gpu: true}}, "
        "1 node(s) were unschedulable"
    )


def test_what_pods_on_a_node_request_is_not_free_whether_it_is_used_or_not() -> None:
    there = cluster([node("a")], pod("other", 5, on="a"))
    (answer,) = walk(pod("w", 4), there)
    (refusal,) = answer.refusals
    assert refusal.shortage is not None
    assert [int(each) for each in (refusal.shortage.needs, refusal.shortage.free, refusal.shortage.of)] == [4, 3, 8]


def test_a_host_port_is_free_on_one_node_and_taken_on_another() -> None:
    container = {"name": "m", "ports": [{"hostPort": 29500, "containerPort": 29500}]}
    there = cluster([node("a"), node("b")], pod("other", containers=[container], on="a"))
    answers = walk(pod("w", containers=[container]), there)
    assert [bool(one.refusals) for one in answers] == [True, False]
    assert answers[0].refusals[0].detail == "host port 29500"


def test_anti_affinity_counts_from_both_sides_and_only_in_its_namespace() -> None:
    nodes = [node("a"), node("b")]
    other = pod("other", on="a", **LABELLED)
    answers = walk(pod("w", affinity=apart()), cluster(nodes, other))
    assert [bool(one.refusals) for one in answers] == [True, False]
    against = pod("other", on="a", affinity=apart())
    answers = walk(pod("w", **LABELLED), cluster(nodes, against))
    assert [bool(one.refusals) for one in answers] == [True, False]
    elsewhere = pod("other", on="a", metadata={"labels": {"gang": "x"}, "namespace": "other"})
    assert not any(one.refusals for one in walk(pod("w", affinity=apart()), cluster(nodes, elsewhere)))


def test_the_first_pod_that_wants_to_be_near_its_gang_may_be_anywhere_and_the_second_may_not() -> None:
    nodes = [node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}), node("c")]
    first = pod("w", affinity=near("rack"), **LABELLED)
    answers = walk(first, cluster(nodes))
    assert [bool(one.refusals) for one in answers] == [False, False, True]
    there = pod("other", on="b", **LABELLED)
    assert [bool(one.refusals) for one in walk(first, cluster(nodes, there))] == [True, False, True]


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (Claim(name="data", exists=False, bound=False), 'persistentvolumeclaim "data" not found'),
        (Claim(name="data", deleting=True), 'persistentvolumeclaim "data" is being deleted'),
        (Claim(name="data", bound=False, waits_for_pod=False), "pod has unbound immediate PersistentVolumeClaims"),
        (Claim(name="data", bound=False, waits_for_pod=True), ""),
        (Claim(name="data", bound=False), ""),
        (
            Claim(
                name="data",
                volume="pv",
                nodes=({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},),
            ),
            "node(s) didn't match PersistentVolume's node affinity",
        ),
    ],
)
def test_a_volume_claim_keeps_a_pod_off_as_the_scheduler_has_it(claim: Claim, said: str) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    (answer,) = walk(pod("w", volumes=volumes), cluster([node("a", labels={"zone": "a"})], data=claim))
    assert [one.said for one in answer.refusals] == ([said] if said else [])


def test_a_pod_needs_what_its_containers_sidecars_and_overhead_need_or_its_largest_init_container() -> None:
    def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("a", "500m"), container("b", "1")],
        "initContainers": [container("s", "250m", restartPolicy="Always"), container("i", "3")],
        "overhead": {"cpu": "100m"},
    }
    assert str(requests(RawWholePodSpec.model_validate(spec))["cpu"]) == "3.350"
    assert (
        str(requests(RawWholePodSpec.model_validate({**spec, "resources": {"requests": {"cpu": "8"}}}))["cpu"])
        == "8.100"
    )
    only_limit = {"containers": [{"name": "a", "resources": {"limits": {GPU: 2}}}]}
    assert int(requests(RawWholePodSpec.model_validate(only_limit))[GPU]) == 2


def test_an_affinity_that_compares_a_label_by_number_which_is_none_matches_no_node() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["1"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    (answer,) = walk(pod("w", affinity=affinity), cluster([node("a", labels={"n": "x"})]))
    assert answer.refusals
