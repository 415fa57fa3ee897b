"""JobSet, Trainer and Kueue as they are, with JobSets of JobSet's controller and of gangctl's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.jobsets import jobset, trainer
from e2e.queues.kueue import HOSTNAME, LABEL_PRIORITY, LABEL_QUEUE, queue
from gangctl.annexes.jobset.names import CONTROLLER
from tests.wait import until

Document = dict[str, Any]

IMAGE = "gangctl/examples:e2e"
each_controller = pytest.mark.parametrize("controller", ["", CONTROLLER], ids=["jobset", "gangctl"])
QUOTA = {"cpu": "200m"}
"""For one JobSet of two pods."""
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def pod(script: str, cpu: str = "50m") -> dict[str, Any]:
    """The specification of a pod that runs a script."""
    resources = {"requests": {"cpu": cpu}}
    return {"containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", script], "resources": resources}]}


def create(cluster: Cluster, namespace: str, *documents: dict[str, Any]) -> None:
    """Create these objects in the namespace."""
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(documents))


def until_condition(cluster: Cluster, namespace: str, what: str, kind: str) -> None:
    """Wait until a condition of an object is True."""
    cluster.kubectl("wait", f"--for=condition={kind}", what, "-n", namespace, "--timeout=90s")


def get(cluster: Cluster, namespace: str, *what: str) -> dict[str, Any]:
    """The stored object, or the list."""
    return dict(json.loads(cluster.kubectl("get", *what, "-n", namespace, "-o", "json")))


def managed_by(controller: str) -> dict[str, str]:
    """The field of a JobSet's specification; empty if JobSet's own controller manages it."""
    return {"managedBy": controller} if controller else {}


@contextmanager
def runtime(cluster: Cluster, namespace: str, **spec: Any) -> Iterator[str]:
    """A runtime for TrainJobs with the namespace's name. ``spec``: more fields of its JobSets."""
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(trainer.runtime(namespace, IMAGE, **spec)))
    try:
        yield namespace
    finally:
        cluster.kubectl("delete", "clustertrainingruntime", namespace, "--wait=false")


@each_controller
@pytest.mark.usefixtures("jobset_running", "gangctl_runs_jobsets")
def test_a_jobset_completes_with_the_defaults_of_its_webhook(cluster: Cluster, namespace: str, controller: str) -> None:
    create(cluster, namespace, jobset.document("plain", pod("hostname"), replicas=2, **managed_by(controller)))
    until_condition(cluster, namespace, "jobset/plain", "Completed")
    made = get(cluster, namespace, "jobset", "plain")
    assert made["spec"]["network"]["enableDNSHostnames"] is True  # its webhook has filled this in
    assert len(get(cluster, namespace, "jobs")["items"]) == (0 if controller else 2)
    assert len(get(cluster, namespace, "gj")["items"]) == (1 if controller else 0)


@pytest.mark.usefixtures("jobset_running")
def test_jobset_refuses_a_name_that_its_pods_cannot_have(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(RuntimeError, match="job names generated for this JobSet will exceed 63 characters"):
        create(cluster, namespace, jobset.document("a" * 60, pod("true")))


@each_controller
@pytest.mark.usefixtures("trainer_running", "gangctl_runs_jobsets")
def test_a_trainjob_completes(cluster: Cluster, namespace: str, controller: str) -> None:
    script = 'test "$PET_NNODES" = 2 && getent hosts "$PET_MASTER_ADDR"'
    with runtime(cluster, namespace, **managed_by(controller)) as name:
        create(cluster, namespace, trainer.train_job("train", name, 2, ["sh", "-c", script]))
        until_condition(cluster, namespace, "trainjob/train", "Complete")
        made = get(cluster, namespace, "jobset", "train")
    assert made["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    assert made["spec"].get("managedBy", "") == controller


@pytest.mark.usefixtures("trainer_running", "gangctl_runs_jobsets")
def test_a_trainjob_whose_runtime_names_gangctl_restarts_in_place(cluster: Cluster, namespace: str) -> None:
    script = "test -e /tmp/again && exit 0; touch /tmp/again; test $PET_NODE_RANK = 0 && exit 3; sleep 300"
    with runtime(cluster, namespace, **managed_by(CONTROLLER), failurePolicy={"maxRestarts": 3}) as name:
        create(cluster, namespace, trainer.train_job("train", name, 2, ["sh", "-c", script]))
        until_condition(cluster, namespace, "trainjob/train", "Complete")
        status = get(cluster, namespace, "jobset", "train")["status"]
        pods = get(cluster, namespace, "pods")["items"]
    assert (status["terminalState"], status["restarts"]) == ("Completed", 1)
    containers = [one for pod in pods for one in pod["status"]["containerStatuses"]]
    assert [one["restartCount"] for one in containers] == [0, 0]


def queued(name: str, queue_name: str, script: str, controller: str, *, on: str = "", priority: str = "") -> Document:
    """A JobSet of two pods in a queue. ``on``: the level of the topology at which they must be together."""
    made = jobset.document(name, pod(script, cpu="100m"), replicas=2, **managed_by(controller))
    made["metadata"]["labels"] = {LABEL_QUEUE: queue_name, **({LABEL_PRIORITY: priority} if priority else {})}
    if on:
        template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["metadata"] = {"annotations": {REQUIRED: on}}
    return made


def nodes_of(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """The nodes of the pods of a JobSet that run and aren't being deleted."""
    words = ("pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}", "--field-selector", "status.phase=Running")
    found = get(cluster, namespace, *words)["items"]
    return [one["spec"]["nodeName"] for one in found if "deletionTimestamp" not in one["metadata"]]


@each_controller
@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
def test_kueue_admits_one_jobset_after_the_other_and_chooses_their_nodes(
    cluster: Cluster, namespace: str, controller: str
) -> None:
    with queue(cluster.kubectl, namespace, QUOTA, ["node-1", "node-2"], topology=True) as name:
        for one in ("first", "second"):
            create(cluster, namespace, queued(one, name, "sleep 3", controller, on=HOSTNAME))
        until_condition(cluster, namespace, "jobset/first", "Completed")
        until_condition(cluster, namespace, "jobset/second", "Completed")
        nodes: dict[str, set[str]] = {"first": set(), "second": set()}
        for one in get(cluster, namespace, "pods")["items"]:
            nodes[one["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]].add(one["spec"]["nodeName"])
        assert {one: len(found) for one, found in nodes.items()} == {"first": 1, "second": 1}
        workloads = get(cluster, namespace, "workloads.v1beta2.kueue.x-k8s.io")["items"]
        assert len(workloads) == 2
        assert all("topologyAssignment" in one["status"]["admission"]["podSetAssignments"][0] for one in workloads)


@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
def test_a_pod_that_gangctl_replaces_joins_the_others_in_their_domain(cluster: Cluster, namespace: str) -> None:
    with queue(cluster.kubectl, namespace, QUOTA, ["node-1", "node-2"], topology=True) as name:
        made = queued("train", name, "sleep 300", CONTROLLER, on=HOSTNAME)
        made["spec"]["failurePolicy"] = {"maxRestarts": 3}
        create(cluster, namespace, made)
        nodes = until("both pods run", lambda: len(found := nodes_of(cluster, namespace, "train")) == 2 and found)
        pods = get(cluster, namespace, "pods")["items"]
        cluster.kubectl("delete", "pod", pods[1]["metadata"]["name"], "-n", namespace, "--wait=false")
        until("both run again", lambda: nodes_of(cluster, namespace, "train") == nodes, every=0.25)


@each_controller
@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
def test_kueue_admits_a_trainjob(cluster: Cluster, namespace: str, controller: str) -> None:
    with (
        runtime(cluster, namespace, **managed_by(controller)) as of,
        queue(cluster.kubectl, namespace, QUOTA, ["node-1"]) as name,
    ):
        made = trainer.train_job("train", of, 2, ["true"], labels={LABEL_QUEUE: name})
        made["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": "100m"}}
        create(cluster, namespace, made)
        until_condition(cluster, namespace, "trainjob/train", "Complete")
        (workload,) = get(cluster, namespace, "workloads.v1beta2.kueue.x-k8s.io")["items"]
        assert workload["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
        assert {one["spec"]["nodeName"] for one in get(cluster, namespace, "pods")["items"]} == {"node-1"}
