"""JobSets and TrainJobs that Kueue admits and gangctl runs: preempted, resumed, moved, and written by one only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e import process_faults
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Gang
from e2e.jobsets import jobset, trainer
from e2e.jobsets.test_peers import create, get, pod, runtime, until_condition
from e2e.queues.kueue import HIGH, HOSTNAME, LABEL_QUEUE, LOW, pooled, priorities, queue
from gangctl.annexes.jobset.names import ANNOTATION_SPEC, CONTROLLER
from tests.wait import until

SLEEPS = pod("sleep 1000000", cpu="100m") | {"terminationGracePeriodSeconds": 1}
PRIORITY = "kueue.x-k8s.io/priority-class"
REQUIRED = {"kueue.x-k8s.io/podset-required-topology": HOSTNAME}
PREFERRED = {"kueue.x-k8s.io/podset-preferred-topology": HOSTNAME}
SLICES = {"kueue.x-k8s.io/podset-slice-required-topology": HOSTNAME, "kueue.x-k8s.io/podset-slice-size": "2"}


def queued(name: str, where: str, size: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A JobSet of gangctl's in a queue, whose pods sleep."""
    made = jobset.document(name, SLEEPS, managedBy=CONTROLLER, failurePolicy={"maxRestarts": 3})
    made["metadata"]["labels"] = {LABEL_QUEUE: where}
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec |= {"parallelism": size, "completions": size}
    if annotations:
        spec["template"]["metadata"] = {"annotations": annotations}
    return made


def admitted(cluster: Cluster, namespace: str) -> set[str]:
    """The JobSets whose Workloads have quota."""
    return {
        one["metadata"]["ownerReferences"][0]["name"]
        for one in get(cluster, namespace, "workloads.v1beta2.kueue.x-k8s.io")["items"]
        if one.get("status", {}).get("admission")
    }


def gang_of(cluster: Cluster, namespace: str, name: str) -> Gang:
    """The gang of a JobSet with one role, once gangctl has made it."""

    def is_made() -> bool:
        return name in {one["metadata"]["name"] for one in get(cluster, namespace, "gangjobs")["items"]}

    until(f"gangctl has made {name}", is_made)
    return Gang(cluster.kubectl, namespace, name)


@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
def test_a_preempted_jobset_gives_its_quota_back_and_goes_on_when_it_is_admitted_again(
    cluster: Cluster, namespace: str
) -> None:
    with priorities(cluster.kubectl), queue(cluster.kubectl, namespace, {"cpu": "200m"}, ["node-1"]) as name:
        low, high = queued("low", name, 2), queued("high", name, 2)
        low["metadata"]["labels"][PRIORITY], high["metadata"]["labels"][PRIORITY] = LOW, HIGH
        create(cluster, namespace, low)
        gang = gang_of(cluster, namespace, "low")
        gang.runs(1)
        process_faults.kill(process_faults.worker(gang.uids()["workers-1"]))
        before = gang.uids()
        gang.runs(2)
        assert gang.uids() == before, "a restart in place needs no quota"
        assert admitted(cluster, namespace) == {"low"}
        create(cluster, namespace, high)
        until_condition(cluster, namespace, "jobset/low", "Suspended")
        gang_of(cluster, namespace, "high").runs(1)
        assert admitted(cluster, namespace) == {"high"}
        assert gang.pods() == {}
        cluster.kubectl("delete", "jobset", "high", "-n", namespace)
        status = gang.runs(3)
        assert status["restarts"]["counted"] == 1, "only the fault"
        assert admitted(cluster, namespace) == {"low"}
        conditions = {
            one["type"]: one["status"] for one in get(cluster, namespace, "jobset", "low")["status"]["conditions"]
        }
        assert conditions["Suspended"] == "False"


@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
def test_a_preempted_trainjob_goes_on_when_it_is_admitted_again(cluster: Cluster, namespace: str) -> None:
    with (
        runtime(cluster, namespace, managedBy=CONTROLLER, failurePolicy={"maxRestarts": 3}) as of,
        priorities(cluster.kubectl),
        queue(cluster.kubectl, namespace, {"cpu": "200m"}, ["node-1"]) as name,
    ):

        def submit(called: str, priority: str) -> Gang:
            labels = {LABEL_QUEUE: name, PRIORITY: priority}
            made = trainer.train_job(called, of, 2, ["sleep", "1000000"], labels=labels)
            made["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": "100m"}}
            create(cluster, namespace, made)
            return gang_of(cluster, namespace, called)

        low = submit("low", LOW)
        low.runs(1)
        submit("high", HIGH).runs(1)
        until_condition(cluster, namespace, "trainjob/low", "Suspended")
        until("its pods are gone", lambda: not low.pods(), every=0.25)
        assert admitted(cluster, namespace) == {"high"}
        cluster.kubectl("delete", "trainjob", "high", "-n", namespace)
        assert low.runs(2)["restarts"]["counted"] == 0
        assert admitted(cluster, namespace) == {"low"}


@pytest.mark.parametrize("annotations", [REQUIRED, PREFERRED, SLICES], ids=["required", "preferred", "slices"])
@pytest.mark.usefixtures("kueue_running", "gangctl_runs_jobsets")
def test_pods_of_a_lost_node_wait_for_kueue_to_name_another_and_keep_their_quota(
    cluster: Cluster, namespace: str, third_node: Any, annotations: dict[str, str]
) -> None:
    """Kueue assigns another node when the pods of the lost one end; gangctl makes new pods, which wait for that."""
    with queue(cluster.kubectl, namespace, {"cpu": "200m"}, [third_node.name], topology=True) as name:
        made = queued("placed", name, 2, annotations)
        made["metadata"]["annotations"] = {ANNOTATION_SPEC: "recovery: {lostPodGraceSeconds: 1}"}
        create(cluster, namespace, made)
        gang = gang_of(cluster, namespace, "placed")
        gang.runs(1)
        assert {found["spec"]["nodeName"] for found in gang.pods().values()} == {third_node.name}
        with pooled(cluster.kubectl, namespace, ["node-2"]):
            third_node.machine.kill()
            gang.runs(2, 240)
            assert {found["spec"]["nodeName"] for found in gang.pods().values()} == {"node-2"}
            assert admitted(cluster, namespace) == {"placed"}
            (workload,) = get(cluster, namespace, "workloads.v1beta2.kueue.x-k8s.io")["items"]
            assert "Evicted" not in {one["type"] for one in workload["status"]["conditions"]}
            assert "unhealthyNodes" not in workload["status"]


@pytest.mark.usefixtures("gangctl_runs_jobsets")
def test_neither_controller_writes_what_is_the_others(cluster: Cluster, namespace: str, jobset_running: Lab) -> None:
    """The API server's audit log has who wrote what, from the creation of both JobSets to their deletion."""
    create(cluster, namespace, jobset.document("theirs", SLEEPS))
    create(cluster, namespace, jobset.document("ours", SLEEPS, managedBy=CONTROLLER, failurePolicy={"maxRestarts": 1}))
    gang = gang_of(cluster, namespace, "ours")
    gang.runs(1)
    until("theirs is ready", lambda: _ready(cluster, namespace, "theirs"))
    until("ours is ready", lambda: _ready(cluster, namespace, "ours"))
    process_faults.kill(process_faults.worker(gang.uids()["workers-0"]))
    gang.runs(2)
    cluster.kubectl("delete", "jobsets", "--all", "-n", namespace)
    until("all pods are gone", lambda: not get(cluster, namespace, "pods")["items"])
    written: dict[str, set[str]] = {}
    for line in jobset_running.control_plane.audit.read_text().splitlines():
        request = json.loads(line)
        about = request["objectRef"]
        if about.get("namespace") == namespace and about.get("name") and request["responseStatus"]["code"] < 400:
            written.setdefault(request["user"]["username"], set()).add(about["name"].partition("-")[0])
    (ours,) = (names for user, names in written.items() if user.endswith(":gangctl"))
    assert ours == {"ours"}
    assert written["jobset"] == {"theirs"}


def _ready(cluster: Cluster, namespace: str, name: str) -> bool:
    status = get(cluster, namespace, "jobset", name).get("status", {})
    return [one["ready"] for one in status.get("replicatedJobsStatus", ())] == [1]
