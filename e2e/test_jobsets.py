"""JobSets that name gangctl as their controller: JobSet's own names and status, and restarts in place."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e import installation, process_faults
from e2e.accelerators import RESOURCE
from e2e.cluster import programs
from e2e.cluster.device_plugin import Devices
from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS, WORKERS, Gang, Kubectl
from e2e.installation import CHART, RELEASE, Installed
from gangctl.annexes.jobset import names
from tests.wait import until

CRD = "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"


@pytest.fixture(scope="module")
def jobsets_run(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Installed]:
    """The installed release with JobSets, whose own controller isn't there."""
    if cluster.lab is None:
        pytest.skip("JobSet's definition comes from its Go module")
    cluster.kubectl("apply", "--server-side", "-f", str(programs.module("jobset") / CRD))
    installation.enable(cluster, "jobsets")
    yield gangctl_installed
    installation.enable(cluster, "jobsets", wanted=False)


@dataclass
class JobSet:
    """A JobSet by its name."""

    kubectl: Kubectl
    namespace: str
    name: str
    folder: Path

    def read(self) -> dict[str, Any]:
        """The object."""
        return dict(json.loads(self.kubectl("get", "jobset", self.name, "-n", self.namespace, "-o", "json")))

    @property
    def gang(self) -> Gang:
        """The gang that runs it."""
        return Gang(self.kubectl, self.namespace, self.name)

    def patch(self, *changes: dict[str, Any]) -> None:
        """Change it in one step."""
        words = ("patch", "jobset", self.name, "-n", self.namespace, "--type=json", "-p", json.dumps(changes))
        self.kubectl(*words)

    def until(self, what: str, holds: Callable[[dict[str, Any]], Any], seconds: float = 120.0) -> dict[str, Any]:
        """Wait until a condition holds for the status; the status."""

        def status() -> dict[str, Any] | None:
            found: dict[str, Any] = self.read().get("status", {})
            return found if holds(found) else None

        try:
            return until(what, status, seconds, every=0.25)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its status is {self.read().get('status')}") from None

    def ready(self, jobs: int) -> dict[str, Any]:
        """Wait until so many Jobs are ready; the status."""
        return self.until("all jobs are ready", lambda status: total(status, "ready") == jobs)

    def has(self, kind: str, state: str = "True") -> dict[str, Any]:
        """Wait until it has a condition; the condition."""
        status = self.until(f"{kind} is {state}", lambda found: condition(found, kind).get("status") == state)
        return condition(status, kind)

    def noted(self, host: str, times: int = 1) -> list[dict[str, Any]]:
        """What the workers of a pod have noted."""
        file = self.folder / host

        def lines() -> list[str] | None:
            found = file.read_text().splitlines() if file.exists() else []
            return found if len(found) >= times else None

        return [json.loads(line) for line in until(f"{host} notes {times} times", lines, every=0.25)]

    def events(self) -> set[str]:
        """The reasons of its Events."""
        words = ("get", "events", "-n", self.namespace, "--field-selector", "involvedObject.kind=JobSet", "-o", "json")
        return {one["reason"] for one in json.loads(self.kubectl(*words))["items"]}


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})


def total(status: dict[str, Any], field: str) -> int:
    return sum(one[field] for one in status.get("replicatedJobsStatus", ()))


def replicated(name: str, size: int, replicas: int = 1, **job: Any) -> dict[str, Any]:
    """A replicated job whose workers find their peers."""
    container = {
        "name": "main",
        "image": "gangctl/examples:e2e",
        "command": ["python3", f"{CHECKPOINTS}/peer.py"],
        "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
    }
    spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    beside = {"dependsOn": job.pop("dependsOn")} if "dependsOn" in job else {}
    made = {"parallelism": size, "completions": size, "completionMode": "Indexed", "backoffLimit": 0}
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {**made, **job, "template": {"spec": spec}}},
        **beside,
    }


Apply = Callable[..., JobSet]


@pytest.fixture
def apply(cluster: Cluster, jobsets_run: Installed, namespace: str, shared_dir: Path) -> Iterator[Apply]:  # noqa: ARG001
    """``apply(name, job, ..., **spec)`` creates a JobSet that is gangctl's; it is deleted afterwards."""
    made: list[str] = []
    shutil.copy(WORKERS / "peer.py", shared_dir)

    def do(name: str, *jobs: dict[str, Any], **spec: Any) -> JobSet:
        metadata = {"name": name, "annotations": spec.pop("annotations", {})}
        for job in jobs:
            size = job["template"]["spec"]["parallelism"]
            each = ((at, index) for at in range(job["replicas"]) for index in range(size))
            hosts = [f"{name}-{job['name']}-{at}-{index}.{name}" for at, index in each]
            template = job["template"]["spec"]["template"]["spec"]
            template["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(shared_dir)}}]
            template["containers"][0]["env"] = [{"name": "PEERS", "value": " ".join(hosts)}]
        whole = {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "managedBy": names.CONTROLLER,
            "replicatedJobs": list(jobs),
            **spec,
        }
        document = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": whole}
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(document))
        made.append(name)
        return JobSet(cluster.kubectl, namespace, name, shared_dir)

    yield do
    for name in made:
        words = (
            "delete",
            "jobset",
            name,
            "-n",
            namespace,
            "--ignore-not-found",
            "--timeout=60s",
            "--cascade=foreground",
        )
        cluster.kubectl(*words)


def test_a_killed_worker_restarts_in_the_pods_that_its_peers_know_by_name(apply: Apply, cluster: Cluster) -> None:
    jobset = apply("llama", replicated("workers", 2, 2), failurePolicy={"maxRestarts": 3})
    jobset.ready(2)
    hosts = [f"llama-workers-{job}-{index}" for job in range(2) for index in range(2)]
    notes = {host: jobset.noted(host)[0] for host in hosts}
    assert [notes[host]["index"] for host in hosts] == ["0", "1", "0", "1"]
    assert {tuple(one["foreign"]) for one in notes.values()} == {()}, "only what JobSet sets"
    assert len(set(notes[hosts[0]]["peers"].values())) == 4
    pods, uids = jobset.gang.pods(), jobset.gang.uids()
    labels = pods["workers-3"]["metadata"]["labels"]
    assert (labels["jobset.sigs.k8s.io/job-index"], labels["batch.kubernetes.io/job-completion-index"]) == ("1", "1")
    assert json.loads(cluster.kubectl("get", "jobs", "-n", jobset.namespace, "-o", "json"))["items"] == []
    services = ("get", "services", "-n", jobset.namespace, "-o", "name")
    cluster.kubectl("delete", "service", "llama", "-n", jobset.namespace)
    until("its Service is there again", lambda: "service/llama" in jobset.kubectl(*services))
    process_faults.kill(process_faults.worker(uids["workers-3"]))
    status = jobset.until(
        "it has restarted", lambda found: condition(found, "RestartingJobSet").get("status") == "False"
    )
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert condition(status, "RestartingJobSet")["reason"] == "JobsReady"
    for verb in ("why", "trace", "timeline"):
        assert "workers-3" in told(cluster, jobset.namespace, "jobset/llama", verb), verb
    again = {host: jobset.noted(host, 2)[1] for host in hosts}
    assert {host: one["peers"] for host, one in again.items()} == {host: one["peers"] for host, one in notes.items()}
    assert jobset.gang.uids() == uids
    (jobset.folder / "end").write_text("0")
    assert jobset.has("Completed")["reason"] == "AllJobsCompleted"
    status = jobset.read()["status"]
    assert (status["terminalState"], total(status, "succeeded")) == ("Completed", 2)
    until("its Events are there", lambda: {"DefaultFailurePolicy", "JobsReady", "AllJobsCompleted"} <= jobset.events())


def told(cluster: Cluster, namespace: str, named: str, verb: str) -> str:
    """What a verb of the command line prints about an object: jobset/llama."""
    command = [sys.executable, "-m", "gangctl", verb, named, "-n", namespace]
    return subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=True).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("part", ["container", "pod"])
def test_a_part_of_a_pod_or_a_pod_that_fails_costs_no_other(apply: Apply, cluster: Cluster, part: str) -> None:
    jobset = apply("llama", replicated("workers", 3), failurePolicy={"maxRestarts": 3})
    jobset.ready(1)
    before, pods = jobset.gang.uids(), jobset.gang.pods()
    for at in range(3):
        jobset.noted(f"llama-workers-0-{at}")
    if part == "container":
        process_faults.kill(process_faults.supervisor(before["workers-1"]))
    else:
        cluster.kubectl("delete", "pod", pods["workers-1"]["metadata"]["name"], "-n", jobset.namespace, "--wait=false")
    for at in range(3):
        jobset.noted(f"llama-workers-0-{at}", 2)
    after = jobset.gang.uids()
    assert {name for name in after if after[name] != before[name]} == ({"workers-1"} if part == "pod" else set())
    assert jobset.has("RestartingJobSet", "False")["reason"] == "JobsReady"


@pytest.mark.nightly
def test_a_lost_node_moves_one_pod_whose_name_stays(apply: Apply, third_node: Any) -> None:
    """JobSet's own controller would make all pods anew."""
    job = replicated("workers", 3)
    key = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    selector = {"labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "moved"}}}
    job["template"]["spec"]["template"]["spec"]["topologySpreadConstraints"] = [key | selector]
    soon = {names.ANNOTATION_SPEC: "recovery: {lostPodGraceSeconds: 1}"}
    jobset = apply("moved", job, failurePolicy={"maxRestarts": 3}, annotations=soon)
    jobset.ready(1)
    for at in range(3):
        jobset.noted(f"moved-workers-0-{at}")
    before, pods = jobset.gang.uids(), jobset.gang.pods()
    (lost,) = [name for name, pod in pods.items() if pod["spec"]["nodeName"] == third_node.name]
    third_node.machine.kill()
    jobset.gang.runs(2, 180)
    after = jobset.gang.uids()
    assert {name for name in after if after[name] != before[name]} == {lost}
    index = lost.rpartition("-")[2]
    other = next(name for name in after if name != lost)
    code = f"import socket; print(*socket.gethostbyname_ex('moved-workers-0-{index}.moved')[2])"
    words = ("exec", pods[other]["metadata"]["name"], "-c", "main", "-n", jobset.namespace, "--", "python3", "-c", code)
    address = jobset.gang.pods()[lost]["status"]["podIP"]
    until("its name leads to its new pod alone", lambda: jobset.kubectl(*words).split() == [address])
    assert jobset.until("the restart is over", lambda found: found["restarts"] == 1)["restartsCountTowardsMax"] == 0


@pytest.mark.nightly
def test_a_sick_device_moves_its_pod_and_a_hang_restarts_in_place(apply: Apply, plugged: dict[str, Devices]) -> None:
    job = replicated("workers", 2)
    job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: 1}}
    progress = 'progress: {source: {type: Log, pattern: "step (?P<step>[0-9]+)"}, timeoutSeconds: 4, onHang: Restart}'
    jobset = apply("sick", job, failurePolicy={"maxRestarts": 5}, annotations={names.ANNOTATION_SPEC: progress})
    jobset.ready(1)
    before = jobset.gang.uids()
    jobset.gang.until("steps are counted", lambda status: status.get("firstStep"))
    process_faults.worker(before["workers-1"]).send(signal.SIGSTOP)
    assert jobset.gang.runs(2)["incidents"][0]["cause"]["reason"] == "Hang"
    assert jobset.gang.uids() == before
    name = jobset.gang.pods()["workers-0"]["metadata"]["name"]
    words = ("exec", name, "-c", "main", "-n", jobset.namespace, "--", "printenv", "FAKE_DEVICES")
    device = jobset.kubectl(*words).strip()
    plugged[device].mark(device, healthy=False)
    assert jobset.gang.runs(3)["incidents"][0]["cause"]["reason"] == "DeviceLost"
    assert {one: uid == before[one] for one, uid in jobset.gang.uids().items()} == {
        "workers-0": False,
        "workers-1": True,
    }


def test_what_a_queue_changes_while_a_jobset_is_suspended_is_in_its_pods(apply: Apply, cluster: Cluster) -> None:
    jobset = apply("queued", replicated("workers", 2), suspend=True)
    jobset.has("Suspended")
    assert total(jobset.read()["status"], "suspended") == 1
    assert jobset.gang.pods() == {}
    template = "/spec/replicatedJobs/0/template/spec/template"
    jobset.patch(
        {"op": "add", "path": f"{template}/metadata", "value": {"labels": {"by-queue": "yes"}}},
        {"op": "add", "path": f"{template}/spec/nodeSelector", "value": {"kubernetes.io/os": "linux"}},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    )
    jobset.ready(1)
    assert jobset.has("Suspended", "False")["reason"] == "ResumeJobs"
    for pod in jobset.gang.pods().values():
        assert pod["metadata"]["labels"]["by-queue"] == "yes"
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    jobset.patch({"op": "replace", "path": "/spec/suspend", "value": True})
    jobset.has("Suspended")
    until("its pods are gone", lambda: jobset.gang.pods() == {})
    assert "jobset.x-k8s.io" not in cluster.kubectl(
        "get", "gj", "queued", "-n", jobset.namespace, "-o", "jsonpath={.spec}"
    )


def test_a_jobset_fails_when_its_restarts_are_used_up_and_goes_when_its_time_is_over(
    apply: Apply, shared_dir: Path
) -> None:
    (shared_dir / "end").write_text("3")
    jobset = apply("worn", replicated("workers", 2), failurePolicy={"maxRestarts": 1}, ttlSecondsAfterFinished=3)
    failed = jobset.has("Failed")
    assert failed["reason"] == "ReachedMaxRestarts"
    assert "(first failed job: worn-workers-0)" in failed["message"]

    def is_gone() -> bool:
        words = ("get", "jobset,gj,service,pods", "-n", jobset.namespace, "-o", "name")
        return jobset.kubectl(*words).strip() == ""

    until("it is deleted with all that it owned", is_gone)


def test_a_job_that_waits_for_another_begins_when_that_is_complete(apply: Apply, shared_dir: Path) -> None:
    after = [{"name": "fetch", "status": "Complete"}]
    jobset = apply("staged", replicated("fetch", 1), replicated("node", 2, dependsOn=after))
    jobset.ready(1)
    assert set(Gang(jobset.kubectl, jobset.namespace, "staged-s0").pods()) == {"fetch-0"}
    assert jobset.gang.pods() == {}
    (shared_dir / "end").write_text("0")
    jobset.has("Completed")
    assert set(jobset.gang.pods()) == {"node-0", "node-1"}


def test_jobs_start_in_order_in_each_attempt_and_keep_their_pods(apply: Apply, shared_dir: Path) -> None:
    server = replicated("server", 1)
    (container,) = server["template"]["spec"]["template"]["spec"]["containers"]
    looks = ["test", "-e", f"{CHECKPOINTS}/open"]
    container["readinessProbe"] = {"exec": {"command": looks}, "periodSeconds": 1, "failureThreshold": 1}
    order = {"startupPolicyOrder": "InOrder"}
    jobset = apply("ordered", server, replicated("node", 2), startupPolicy=order, failurePolicy={"maxRestarts": 3})
    jobset.noted("ordered-server-0-0")
    status = jobset.until("it says that nodes wait", lambda _: "RolesWait" in reasons(jobset.gang))
    assert total(status, "active") == 1, "no Job of nodes, whose pods are there"
    assert set(jobset.gang.pods()) == {"server-0", "node-0", "node-1"}
    assert condition(status, "StartupPolicyInProgress")["status"] == "True"
    assert not (shared_dir / "ordered-node-0-0").exists()
    (shared_dir / "open").touch()
    jobset.noted("ordered-node-0-1")
    jobset.has("StartupPolicyCompleted")
    uids = jobset.gang.uids()
    (shared_dir / "open").unlink()
    process_faults.kill(process_faults.worker(uids["server-0"]))
    jobset.noted("ordered-server-0-0", 2)
    jobset.until("nodes wait again", lambda _: "RolesWait" in reasons(jobset.gang))
    assert len(jobset.noted("ordered-node-0-1")) == 1
    (shared_dir / "open").touch()
    jobset.noted("ordered-node-0-1", 2)
    assert jobset.gang.uids() == uids
    (shared_dir / "end").write_text("0")
    jobset.has("Completed")


def reasons(gang: Gang) -> set[str]:
    """The reasons of a gang's conditions."""
    return {one["reason"] for one in gang.status.get("conditions", ())}


def test_what_no_gang_can_do_is_a_condition_and_what_is_not_gangctls_is_left_alone(apply: Apply) -> None:
    refused = apply("refused", replicated("workers", 2, 2), successPolicy={"operator": "Any"})
    assert "spec.successPolicy.operator: Any of several Jobs" in refused.has("Accepted", "False")["message"]
    mute = replicated("workers", 2)
    del mute["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    unknown = apply("mute", mute)
    text = unknown.has("Accepted", "False")["message"]
    assert "spec.replicatedJobs[0]" in text
    assert "the worker container must have a command" in text
    other = apply("other", replicated("workers", 2), managedBy="example.com/other")
    later = apply("later", replicated("workers", 1))
    later.ready(1)
    assert "status" not in other.read()
    gangs = json.loads(later.kubectl("get", "gj", "-n", later.namespace, "-o", "json"))["items"]
    assert [one["metadata"]["name"] for one in gangs] == ["later"]


def test_gangctl_is_upgraded_while_a_jobset_trains(
    apply: Apply, cluster: Cluster, gangctl_installed: Installed
) -> None:
    jobset = apply("upgraded", replicated("workers", 2), failurePolicy={"maxRestarts": 3})
    jobset.ready(1)
    for at in range(2):
        jobset.noted(f"upgraded-workers-0-{at}")
    before, uids, status = jobset.gang.status["attempt"], jobset.gang.uids(), jobset.read()["status"]
    words = ("--reset-then-reuse-values", "--set", "logLevel=debug", "--wait", "--timeout=120s")
    installation.helm(cluster, "upgrade", RELEASE, str(CHART), "--namespace", gangctl_installed.namespace, *words)
    assert (jobset.gang.status["attempt"], jobset.gang.uids()) == (before, uids)
    assert jobset.read()["status"] == status, "the new leader writes the same"
    process_faults.kill(process_faults.worker(uids["workers-1"]))
    for at in range(2):
        assert len(jobset.noted(f"upgraded-workers-0-{at}", 2)) == 2
    assert jobset.gang.uids() == uids
    assert jobset.until("it counts", lambda found: found["restarts"] == 1)["restartsCountTowardsMax"] == 1


@pytest.mark.nightly
def test_jobsets_run_on_while_gangctl_is_not_installed(apply: Apply, cluster: Cluster) -> None:
    jobset = apply("kept", replicated("workers", 2), failurePolicy={"maxRestarts": 3})
    jobset.ready(1)
    for at in range(2):
        jobset.noted(f"kept-workers-0-{at}")
    uids = jobset.gang.uids()
    workers = {member: process_faults.worker(uid) for member, uid in uids.items()}
    installation.uninstall(cluster)
    assert all(one.alive for one in workers.values())
    installation.install(cluster)
    installation.enable(cluster, "jobsets")
    process_faults.kill(workers["workers-1"])
    for at in range(2):
        jobset.noted(f"kept-workers-0-{at}", 2)
    assert jobset.gang.uids() == uids
    (jobset.folder / "end").write_text("0")
    jobset.has("Completed")
