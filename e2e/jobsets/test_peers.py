"""JobSet, Trainer and Kueue as they are, with JobSets of JobSet's controller and of gangctl's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from e2e import process_faults
from e2e.clusters import Cluster
from e2e.gangs import Gang
from e2e.jobsets import jobset, trainer
from e2e.queues.kueue import HOSTNAME, LABEL_PRIORITY, LABEL_QUEUE, queue
from e2e.test_jobsets import told
from gangctl.annexes.jobset.names import CONTROLLER, EXCLUSIVE, JOB_INDEX
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


def managed_by(controller: str) -> dict[str, Any]:
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


TRAINS = """
import os, time
assert (os.environ["PET_NNODES"], os.environ["EPOCHS"]) == ("2", "1")
while not os.path.exists("/tmp/end"):
    time.sleep(0.1)
"""


@contextmanager
def trained(cluster: Cluster, namespace: str, name: str, controller: str) -> Iterator[list[dict[str, Any]]]:
    """A TrainJob as the SDK submits it, whose ranks run within the block: as it was then, and as it ended."""
    policy = {"maxRestarts": 3}
    with runtime(cluster, f"{namespace}-{name}", failurePolicy=policy, **managed_by(controller)) as of:
        made = trainer.train_job(name, of, 2, trainer.of_sdk(TRAINS))
        of_trainer = {"resourcesPerNode": {"requests": {"cpu": "50m"}}, "env": [{"name": "EPOCHS", "value": "1"}]}
        made["spec"]["trainer"] |= of_trainer
        create(cluster, namespace, made)

        def running() -> dict[str, Any] | None:
            found = get(cluster, namespace, "trainjob", name)
            return found if [one["ready"] for one in found.get("status", {}).get("jobsStatus", ())] == [1] else None

        seen = [until("its Job is ready", running, every=0.5)]
        yield seen
        for one in get(cluster, namespace, "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}")["items"]:
            cluster.kubectl("exec", one["metadata"]["name"], "-c", "node", "-n", namespace, "--", "touch", "/tmp/end")
        until_condition(cluster, namespace, f"trainjob/{name}", "Complete")
        seen.append(get(cluster, namespace, "trainjob", name))


def shown(cluster: Cluster, namespace: str, found: dict[str, Any]) -> tuple[Any, ...]:
    """What users see of a TrainJob: its status without times, and its Events."""
    name, status = found["metadata"]["name"], found["status"]
    conditions = [{key: one[key] for key in ("type", "status", "reason", "message")} for one in status["conditions"]]
    about = f"involvedObject.kind=TrainJob,involvedObject.name={name}"
    events = get(cluster, namespace, "events", "--field-selector", about)["items"]
    return conditions, status["jobsStatus"], [one["reason"] for one in events]


@pytest.mark.usefixtures("trainer_running", "gangctl_runs_jobsets")
def test_a_trainjob_of_the_sdk_restarts_in_place_and_shows_what_it_shows_under_jobset(
    cluster: Cluster, namespace: str
) -> None:
    with trained(cluster, namespace, "theirs", "") as theirs:
        pass
    with trained(cluster, namespace, "ours", CONTROLLER) as ours:
        gang = Gang(cluster.kubectl, namespace, "ours")
        before = gang.uids()
        process_faults.kill(process_faults.worker(before["node-1"]))
        gang.runs(2)
        assert gang.uids() == before
        for verb in ("status", "why", "trace", "timeline"):
            assert "node-1" in told(cluster, namespace, "trainjob/ours", verb), verb
    assert theirs[0]["status"]["jobsStatus"] == ours[0]["status"]["jobsStatus"]
    assert shown(cluster, namespace, theirs[1]) == shown(cluster, namespace, ours[1])
    status = get(cluster, namespace, "jobset", "ours")["status"]
    assert (status["terminalState"], status["restarts"]) == ("Completed", 1)


def true_conditions(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    """The reasons of the conditions of a JobSet that are True."""
    found = get(cluster, namespace, "jobset", name)["status"]["conditions"]
    return {one["type"]: one["reason"] for one in found if one["status"] == "True"}


@each_controller
@pytest.mark.usefixtures("jobset_running", "gangctl_runs_jobsets")
def test_a_jobset_completes_with_its_driver(cluster: Cluster, namespace: str, controller: str) -> None:
    made = jobset.document("driven", pod("sleep 300"), **managed_by(controller))
    made["spec"]["replicatedJobs"] += jobset.document("x", pod("sleep 2"), job="driver")["spec"]["replicatedJobs"]
    made["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    create(cluster, namespace, made)
    until_condition(cluster, namespace, "jobset/driven", "Completed")
    assert true_conditions(cluster, namespace, "driven") == {"Completed": "AllJobsCompleted"}
    until("no worker runs", lambda: not nodes_of(cluster, namespace, "driven"), every=0.5)


@each_controller
@pytest.mark.usefixtures("jobset_running", "gangctl_runs_jobsets")
def test_a_rule_of_a_jobset_ends_it_by_the_exit_code(cluster: Cluster, namespace: str, controller: str) -> None:
    rule = {"name": "fatal", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    policy = {"maxRestarts": 3, "rules": [rule]}
    made = jobset.document("fatal", pod("exit 42"), failurePolicy=policy, **managed_by(controller))
    codes = {"operator": "In", "values": [42]}
    job = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    create(cluster, namespace, made)
    until_condition(cluster, namespace, "jobset/fatal", "Failed")
    assert true_conditions(cluster, namespace, "fatal") == {"Failed": "FailJobSetFailurePolicyAction"}
    assert get(cluster, namespace, "jobset", "fatal")["status"].get("restarts", 0) == 0


@each_controller
@pytest.mark.usefixtures("jobset_running", "gangctl_runs_jobsets")
def test_each_job_that_has_a_node_to_itself_is_alone_there(cluster: Cluster, namespace: str, controller: str) -> None:
    made = jobset.document("alone", pod("sleep 300"), replicas=2, **managed_by(controller))
    made["metadata"]["annotations"] = {EXCLUSIVE: HOSTNAME}
    made["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 2, "completions": 2}
    create(cluster, namespace, made)
    until("all pods run", lambda: len(nodes_of(cluster, namespace, "alone")) == 4, every=0.5)
    nodes: dict[str, set[str]] = {}
    for one in get(cluster, namespace, "pods")["items"]:
        nodes.setdefault(one["metadata"]["labels"][JOB_INDEX], set()).add(one["spec"]["nodeName"])
    assert sorted(sorted(one) for one in nodes.values()) == [["node-1"], ["node-2"]]


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
