"""The Workload of a gang: what it asks for, how its status changes, and what an admission adds to a pod."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.cluster.kube.workload import (
    WORKLOADS,
    KubeFlavor,
    PodSetPlace,
    Priority,
    new_workload,
    place_pod,
    status_change,
    workload_name,
)
from gangctl.core.policy.admission import PodsAsked, QueueVerb, TellQueue

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EVICTED: list[dict[str, Any]] = [
    {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": "t0"},
    {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": "t0"},
    {"type": "PodsReady", "status": "True", "reason": "Started", "lastTransitionTime": "t1"},
    {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "to make room", "lastTransitionTime": "t2"},
]
POD: dict[str, Any] = {
    "metadata": {"name": "g-worker-0-0", "labels": {"a": "mine"}},
    "spec": {
        "hostname": "g-worker-0",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists", "key": "spot"}],
        "initContainers": [{"name": "gangctl", "restartPolicy": "Always", "resources": {"requests": {"cpu": "20m"}}}],
        "containers": [
            {"name": "main", "env": [{"name": "TOKEN", "value": "x"}], "resources": {"requests": {"cpu": 1}}}
        ],
        "volumes": [{"name": "v"}],
    },
}


def job(replicas: int = 2) -> GangJob:
    template = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}
    role = {"name": "worker", "replicas": replicas, "spares": 1, "template": template}
    metadata = {"name": "g", "namespace": "ns", "uid": "uid-g"}
    return GangJob.model_validate(
        {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": metadata, "spec": {"roles": [role]}}
    )


def stored(conditions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "metadata": {"name": "w", "uid": "uid-w", "resourceVersion": "7", "generation": 3},
        "status": {"conditions": conditions, "admission": {"clusterQueue": "cq"}},
    }


def test_it_asks_for_all_pods_and_for_nothing_that_a_queue_need_not_know() -> None:
    made = new_workload(job(), "v1beta2", "team-a", None, {"worker": POD})
    (podset,) = made["spec"]["podSets"]
    assert (podset["name"], podset["count"]) == ("worker", 3)
    assert podset["template"]["spec"] == {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists", "key": "spot"}],
        "initContainers": [{"name": "gangctl", "restartPolicy": "Always", "resources": {"requests": {"cpu": "20m"}}}],
        "containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}],
    }
    assert made["spec"]["queueName"] == "team-a"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-g"


def test_other_roles_are_another_workload() -> None:
    assert workload_name(job(2)) == workload_name(job(2)) != workload_name(job(3))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "v1beta2",
            {
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
                "priority": 9,
            },
        ),
        (
            "v1beta1",
            {
                "priorityClassName": "high",
                "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                "priority": 9,
            },
        ),
    ],
)
def test_the_priority_is_written_as_the_version_has_it(version: str, expected: dict[str, Any]) -> None:
    made = new_workload(job(), version, "q", Priority("WorkloadPriorityClass", "high", 9), {"worker": POD})
    assert made["apiVersion"] == f"kueue.x-k8s.io/{version}"
    assert {key: value for key, value in made["spec"].items() if key.startswith("priority")} == expected


def test_quota_is_given_back_once_and_only_if_the_queue_wants_it() -> None:
    change = status_change(stored(EVICTED), TellQueue(QueueVerb.RELEASE, "it waits"), NOW)
    assert change is not None
    assert change["metadata"] == {"resourceVersion": "7"}
    assert change["status"]["admission"] is None
    after = {one["type"]: one["status"] for one in change["status"]["conditions"]}
    assert after == {
        "QuotaReserved": "False",
        "Admitted": "False",
        "PodsReady": "False",
        "Evicted": "True",
        "Requeued": "True",
    }
    assert status_change(stored(change["status"]["conditions"]), TellQueue(QueueVerb.RELEASE, "it waits"), NOW) is None
    assert status_change(stored(EVICTED[:2]), TellQueue(QueueVerb.RELEASE, "it waits"), NOW) is None


@pytest.mark.parametrize(("reason", "state"), [("Deactivated", "False"), ("NodeFailures", "True")])
def test_a_gang_that_was_evicted_for_another_reason_is_queued_again_when_the_queue_says_so(
    reason: str, state: str
) -> None:
    evicted = [*EVICTED[:3], {**EVICTED[3], "reason": reason}]
    change = status_change(stored(evicted), TellQueue(QueueVerb.RELEASE, "it waits"), NOW)
    assert change is not None
    (requeued,) = (one for one in change["status"]["conditions"] if one["type"] == "Requeued")
    assert (requeued["status"], requeued["reason"]) == (state, reason)


@pytest.mark.parametrize("verb", [QueueVerb.SUCCEED, QueueVerb.FAIL, QueueVerb.READY])
def test_what_was_told_is_not_told_again(verb: QueueVerb) -> None:
    change = status_change(stored([]), TellQueue(verb, "x" * 2000), NOW)
    assert change is not None
    (one,) = change["status"]["conditions"]
    assert len(one["message"]) == 1024
    assert status_change(stored([one]), TellQueue(verb, "x"), NOW) is None


def test_a_pod_gets_the_nodes_of_its_flavors_and_what_checks_add() -> None:
    toleration = {"key": "pool", "operator": "Exists"}
    flavor = KubeFlavor("u", "big", {"pool": "big"}, (toleration,))
    update = {"name": "worker", "nodeSelector": {"zone": "z1"}, "labels": {"a": "theirs", "b": "c"}}
    pod = place_pod(POD, "worker", PodSetPlace(("big",), (update,)), {"big": flavor}.get)
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "big", "zone": "z1"}
    assert pod["spec"]["tolerations"] == [{"operator": "Exists", "key": "spot"}, toleration]
    assert pod["metadata"]["labels"] == {"a": "mine", "b": "c"}
    assert POD["spec"]["nodeSelector"] == {"disk": "ssd"}
    with pytest.raises(LookupError, match="small"):
        place_pod(POD, "worker", PodSetPlace(("small",)), {"big": flavor}.get)


def test_a_template_asks_for_its_topology_as_one_of_a_job_does() -> None:
    asked = {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "kueue.x-k8s.io/podset-slice-required-topology": "host",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": asked}}
    (pod_set,) = new_workload(job(), "v1beta2", "team-a", None, {"worker": pod})["spec"]["podSets"]
    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podSetSliceRequiredTopology": "host",
        "podSetSliceSize": 2,
        "podIndexLabel": "gangctl.io/index",
    }
    (plain,) = new_workload(job(), "v1beta2", "team-a", None, {"worker": POD})["spec"]["podSets"]
    assert "topologyRequest" not in plain


def test_a_pod_waits_for_the_domain_that_kueue_names() -> None:
    pod = place_pod(POD, "worker", PodSetPlace(topology="w"), dict[str, KubeFlavor]().get)
    assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
    assert pod["metadata"]["annotations"] == {
        "kueue.x-k8s.io/workload": "w",
        "kueue.x-k8s.io/podset-unconstrained-topology": "true",
    }


@pytest.mark.parametrize(
    ("asked", "unconstrained"),
    [({"slice-required-topology": "host", "slice-size": "2"}, True), ({"preferred-topology": "rack"}, False)],
)
def test_a_pod_in_slices_alone_may_be_anywhere_or_kueue_would_never_ungate_it(
    asked: dict[str, str], *, unconstrained: bool
) -> None:
    annotations = {f"kueue.x-k8s.io/podset-{key}": value for key, value in asked.items()}
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    placed = place_pod(pod, "worker", PodSetPlace(topology="w"), dict[str, KubeFlavor]().get)
    assert ("kueue.x-k8s.io/podset-unconstrained-topology" in placed["metadata"]["annotations"]) == unconstrained


def test_an_evicted_workload_admits_nothing_though_its_condition_says_so() -> None:
    body = {
        "metadata": {"uid": "w", "name": "w", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"queueName": "q"},
        "status": {"conditions": EVICTED},
    }
    item = WORKLOADS.item(json.dumps(body).encode())
    assert item is not None
    one = item.workload
    assert (one.admitted, one.reserved, one.evicted, one.ready, one.said) == (False, True, True, True, "to make room")
    assert item.owner == ""


ELASTIC = {"replicas": 4, "spares": 1, "minReplicas": 2}
KEEPS_THREE = TellQueue(QueueVerb.GIVE, pods=(PodsAsked("worker", 3),))


def elastic() -> GangJob:
    made = job()
    tier = {"name": "s", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}
    roles = [{**made.spec.roles[0].model_dump(by_alias=True, exclude_none=True), **ELASTIC}]
    spec = {"roles": roles, "checkpoint": {"tiers": [tier]}}
    return GangJob.model_validate({**made.model_dump(by_alias=True, exclude_none=True), "spec": spec})


def test_fewer_pods_are_enough_for_an_elastic_gang_unless_it_asks_for_a_topology() -> None:
    (podset,) = new_workload(elastic(), "v1beta2", "q", None, {"worker": POD})["spec"]["podSets"]
    assert (podset["count"], podset["minCount"]) == (5, 3)
    annotations = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    (podset,) = new_workload(elastic(), "v1beta2", "q", None, {"worker": pod})["spec"]["podSets"]
    assert "minCount" not in podset


def test_what_a_gang_grows_by_is_asked_for_by_another_workload() -> None:
    more = (PodsAsked("worker", 2, 1),)
    made = new_workload(elastic(), "v1beta2", "q", None, {"worker": POD}, more)
    (podset,) = made["spec"]["podSets"]
    assert (podset["count"], podset["minCount"]) == (2, 1)
    assert made["metadata"]["name"] == f"{workload_name(elastic())}-0"
    item = WORKLOADS.item(json.dumps({**made, "metadata": {**made["metadata"], "uid": "w"}}).encode())
    assert item is not None
    assert item.workload.pods == {"worker": 2}


def admitted(back: int = 0) -> dict[str, Any]:
    """A Workload of five pods, of which Kueue has admitted four."""
    assigned = [{"name": "worker", "count": 4, "flavors": {"cpu": "f"}}]
    body = stored(EVICTED[:2])
    body["spec"] = {"podSets": [{"name": "worker", "count": 5}]}
    given = {"reclaimablePods": [{"name": "worker", "count": back}]} if back else {}
    body["status"] |= {"admission": {"podSetAssignments": assigned}, **given}
    return body


@pytest.mark.parametrize(("back", "left"), [(0, 4), (1, 4), (2, 3)])
def test_quota_counts_as_kueue_counts_it(back: int, left: int) -> None:
    """Kueue takes what is given back off what was asked for, not off what was admitted."""
    item = WORKLOADS.item(json.dumps(admitted(back)).encode())
    assert item is not None
    assert item.workload.pods == {"worker": left}


def test_what_a_gang_keeps_is_told_once_as_what_it_gives_back() -> None:
    change = status_change(admitted(), KEEPS_THREE, NOW)
    assert change == {
        "metadata": {"resourceVersion": "7"},
        "status": {"reclaimablePods": [{"name": "worker", "count": 2}]},
    }
    assert status_change(admitted(2), KEEPS_THREE, NOW) is None
    released = status_change(stored(EVICTED), TellQueue(QueueVerb.RELEASE), NOW)
    assert released is not None
    assert released["status"]["reclaimablePods"] is None, "it asks for all again"
