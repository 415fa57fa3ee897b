"""GangJobs under an unmodified Kueue: admission, quota, preemption, and what must not cost the quota."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS, STEP, Gang, Kubectl, gang, has_stepped
from e2e.installation import NAMESPACE, Installed
from e2e.queues.kueue import HIGH, LABEL_PRIORITY, LABEL_QUEUE, LOW, priorities, queue
from tests.wait import until

NODE = "node-2"
MEMBER = {"cpu": "100m", "memory": "32Mi"}
QUOTA = {"cpu": "300m", "memory": "4Gi"}
"""For one gang of two members with their sidecars (240m), and not for two."""

Submit = Callable[[dict[str, Any]], Gang]


@dataclass(frozen=True)
class Queues:
    """The queue of a test: its name, and what Kueue says of a gang in it."""

    name: str
    namespace: str
    kubectl: Kubectl

    def workloads(self, gang: str) -> list[dict[str, Any]]:
        """The Workloads that the gang owns."""
        found = json.loads(self.kubectl("get", "workloads.v1beta2.kueue.x-k8s.io", "-n", self.namespace, "-o", "json"))
        owners = ((one, one["metadata"]["ownerReferences"]) for one in found["items"])
        return [one for one, of in owners if (of[0]["kind"], of[0]["name"]) == ("GangJob", gang)]

    def admitted(self, gang: str) -> str:
        """UID of the gang's admitted Workload; empty if it has none."""
        return next((one["metadata"]["uid"] for one in self.workloads(gang) if holds(one, "Admitted")), "")


def holds(workload: dict[str, Any], kind: str) -> bool:
    """Whether a condition of a Workload is True."""
    found = workload.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == (kind, "True") for one in found)


def workers(
    name: str, queue: str, directory: Path, *, priority: str = "", replicas: int = 2, **spec: Any
) -> dict[str, Any]:
    """A gang that waits in a queue; its workers end when a file says so, with the code in it."""
    folder = directory / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    script = (
        f"({STEP} && echo $GANG_ATTEMPT >> {CHECKPOINTS}/steps) & "
        f"until [ -s {CHECKPOINTS}/end-$GANG_ATTEMPT ]; do sleep 0.2; done; exit $(cat {CHECKPOINTS}/end-$GANG_ATTEMPT)"
    )
    container = {
        "name": "main",
        "image": "gangctl/examples:e2e",
        "command": ["sh", "-c", script],
        "resources": {"requests": MEMBER},
        "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
    }
    document = gang(name, container, replicas=replicas, directory=str(folder), **spec)
    labels = {LABEL_QUEUE: queue, **({LABEL_PRIORITY: priority} if priority else {})}
    document["metadata"]["labels"] = labels
    return document


def end(directory: Path, name: str, attempt: int, code: int) -> None:
    """Let all workers of an attempt end."""
    (directory / name / f"end-{attempt}").write_text(str(code))


@pytest.fixture
def queues(cluster: Cluster, kueue_installed: Installed, namespace: str) -> Iterator[Queues]:  # noqa: ARG001
    """A queue with quota for one gang of two, on a node that others keep off."""
    with queue(cluster.kubectl, namespace, QUOTA, [NODE]) as name, priorities(cluster.kubectl):
        yield Queues(name, namespace, cluster.kubectl)


def waits(one: Gang, queue: str, words: str = "") -> dict[str, Any]:
    """Wait until the status says that it waits in the queue, and why; the status."""
    return one.until(
        "it waits in its queue",
        lambda status: (
            status
            if status.get("phase") == "Suspended"
            and f"queue {queue}" in status["message"]
            and words in status["message"]
            else None
        ),
    )


def test_a_gang_waits_for_quota_and_keeps_it_through_restarts_and_replacements(
    cluster: Cluster, queues: Queues, submit: Submit, shared_dir: Path
) -> None:
    first = submit(workers("first", queues.name, shared_dir))
    first.runs(1)
    admitted = queues.admitted("first")
    assert admitted
    assert {pod["spec"]["nodeName"] for pod in first.pods().values()} == {NODE}
    second = submit(workers("second", queues.name, shared_dir))
    status = waits(second, queues.name, "insufficient unused quota")
    suspended = next(one for one in status["conditions"] if one["type"] == "Suspended")
    assert (suspended["status"], suspended["reason"]) == ("True", "Queued")
    words = [sys.executable, "-m", "gangctl", "status", "second", "-n", queues.namespace]
    shown = subprocess.run(words, env=cluster.env, capture_output=True, text=True, check=True).stdout
    assert f"queue {queues.name}" in shown
    assert second.pods() == {}

    uids = first.uids()
    until("a step", lambda: has_stepped(shared_dir / "first", 1))
    end(shared_dir, "first", 1, 3)  # restarted in place
    first.runs(2)
    assert (first.uids(), queues.admitted("first")) == (uids, admitted)
    until("a step", lambda: has_stepped(shared_dir / "first", 2))
    pod = first.pods()["worker-1"]["metadata"]["name"]
    cluster.kubectl("delete", "pod", pod, "-n", queues.namespace, "--wait=false")
    first.runs(3)
    assert first.uids()["worker-1"] != uids["worker-1"]
    assert first.pods()["worker-1"]["spec"]["nodeName"] == NODE
    assert queues.admitted("first") == admitted
    assert second.status["phase"] == "Suspended"

    end(shared_dir, "first", 3, 0)
    first.ends()
    second.runs(1)
    (ended,) = queues.workloads("first")
    assert holds(ended, "Finished")
    assert not holds(ended, "Admitted") or second.status["phase"] == "Running"
    end(shared_dir, "second", 1, 0)
    second.ends()


def test_a_preempted_gang_stops_uncharged_and_comes_back(queues: Queues, submit: Submit, shared_dir: Path) -> None:
    low = submit(workers("low", queues.name, shared_dir, priority=LOW))
    low.runs(1)
    asked = low.read()["metadata"]["uid"]
    high = submit(workers("high", queues.name, shared_dir, priority=HIGH))
    waits(low, queues.name, "Preempted")
    high.runs(1)
    assert low.pods() == {}
    assert not queues.admitted("low")
    end(shared_dir, "high", 1, 0)
    high.ends()
    status = low.runs(2)
    assert low.read()["metadata"]["uid"] == asked
    assert status["restarts"]["counted"] == 0
    end(shared_dir, "low", 2, 0)
    low.ends()


def test_two_gangs_that_each_need_most_of_the_quota_run_one_after_the_other(
    queues: Queues, submit: Submit, shared_dir: Path
) -> None:
    gangs = {name: submit(workers(name, queues.name, shared_dir)) for name in ("one", "two")}

    def running() -> str:
        return next((name for name, one in gangs.items() if one.status.get("phase") == "Running"), "")

    first = until("one of them runs", running, every=0.25)
    other = "two" if first == "one" else "one"
    gangs[first].runs(1)
    waits(gangs[other], queues.name)
    assert gangs[other].pods() == {}
    end(shared_dir, first, 1, 0)
    gangs[first].ends()
    gangs[other].runs(1)
    end(shared_dir, other, 1, 0)
    gangs[other].ends()


def test_what_people_do_to_a_queued_gang(cluster: Cluster, queues: Queues, submit: Submit, shared_dir: Path) -> None:
    one = submit(workers("one", queues.name, shared_dir))
    one.runs(1)
    (workload,) = queues.workloads("one")
    cluster.kubectl("delete", "workloads.kueue.x-k8s.io", workload["metadata"]["name"], "-n", queues.namespace)
    one.runs(2)  # stopped, and admitted anew
    (again,) = queues.workloads("one")
    assert again["metadata"]["uid"] != workload["metadata"]["uid"]
    assert one.status["restarts"]["counted"] == 0

    one.patch(suspend=True)  # leaves the queue, so another gang has the quota
    until("it has left the queue", lambda: queues.workloads("one") == [], every=0.25)
    two = submit(workers("two", queues.name, shared_dir))
    two.runs(1)
    one.apply(workers("one", queues.name, shared_dir, replicas=1, suspend=True))
    one.patch(suspend=False)
    waits(one, queues.name, "insufficient")
    cluster.kubectl("delete", "gj", "two", "-n", queues.namespace, "--timeout=60s")
    one.runs(3)
    (asked,) = queues.workloads("one")
    assert [podset["count"] for podset in asked["spec"]["podSets"]] == [1]
    until("the Workload of the deleted gang is gone", lambda: queues.workloads("two") == [], every=0.25)


def test_a_new_leader_keeps_who_runs_and_who_waits(
    cluster: Cluster, queues: Queues, submit: Submit, shared_dir: Path
) -> None:
    first = submit(workers("first", queues.name, shared_dir))
    first.runs(1)
    second = submit(workers("second", queues.name, shared_dir))
    waits(second, queues.name)
    before = (first.uids(), queues.admitted("first"), [one["metadata"]["uid"] for one in queues.workloads("second")])
    words = ("-n", NAMESPACE, "-l", "app.kubernetes.io/name=gangctl")
    cluster.kubectl("delete", "pod", *words, "--grace-period=0", "--force")
    cluster.kubectl("rollout", "status", "deployment/gangctl", "-n", NAMESPACE, "--timeout=120s")
    end(shared_dir, "first", 1, 0)
    first.ends()
    assert first.status["attempt"] == 1
    second.runs(1)
    assert before[2] == [one["metadata"]["uid"] for one in queues.workloads("second")]
