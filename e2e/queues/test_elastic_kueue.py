"""Elastic gangs under an unmodified Kueue: what they give back, what they ask for again, and partial admission."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.queues.kueue import HIGH, LABEL_PRIORITY, LABEL_QUEUE, LOW, pooled, priorities, queue
from e2e.queues.test_kueue import MEMBER, Queues, Submit, end, holds, waits, workers
from e2e.test_elastic import begun, elastic, steps
from tests.wait import until

QUOTA = {"cpu": "400m", "memory": "4Gi"}
"""For three members with their sidecars (360m)."""


def document(directory: Path, name: str, *, replicas: int, **role: Any) -> dict[str, Any]:
    """An elastic gang that trains and waits in a queue."""
    made = elastic(directory)
    made["metadata"]["labels"] = {LABEL_QUEUE: name}
    made["spec"]["roles"][0] |= {"replicas": replicas, **role}
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": MEMBER}
    made["spec"]["recovery"]["shrinkAfterSeconds"] = 20
    return made


def counts(workload: dict[str, Any]) -> tuple[int, int, int]:
    """How many pods a Workload asks for, how many of them it was admitted with, and how many it has given back."""
    (asked,) = workload["spec"]["podSets"]
    status = workload.get("status", {})
    admission = status.get("admission", {}).get("podSetAssignments", [{"count": 0}])
    return asked["count"], admission[0]["count"], sum(one["count"] for one in status.get("reclaimablePods", []))


@pytest.mark.usefixtures("kueue_installed")
def test_a_gang_that_shrinks_gives_its_quota_to_another_and_grows_when_that_has_ended(
    cluster: Cluster, lab: Any, third_node: Any, namespace: str, submit: Submit, shared_dir: Path
) -> None:
    with queue(cluster.kubectl, namespace, QUOTA, ["node-1", "node-2", "node-3"]) as name:
        queues = Queues(name, namespace, cluster.kubectl)
        gang = submit(document(shared_dir, name, replicas=3))
        gang.runs(1)
        gang.until("a checkpoint", lambda _: any(shared_dir.glob("step-*/DONE")))
        other = submit(workers("other", name, shared_dir, replicas=1))
        waits(other, name, "insufficient unused quota")
        third_node.machine.kill()
        gang.until("it runs with two", lambda one: (one["attempt"], one["phase"]) == (2, "Running"), 240)
        other.runs(1, 30)
        assert [counts(one) for one in queues.workloads("elastic") if holds(one, "Admitted")] == [(3, 3, 1)]

        until("it asks for more", lambda: len(queues.workloads("elastic")) == 2, 60)
        gang.until("why it stays small", lambda one: "insufficient unused quota" in str(one["conditions"]), 90)
        words = [sys.executable, "-m", "gangctl", "why", "elastic", "-n", namespace]
        shown = " ".join(
            subprocess.run(words, env=cluster.env, capture_output=True, text=True, check=False).stdout.split()
        )
        assert f"it grows when queue {name} gives it quota for more (couldn't assign flavors" in shown
        node = lab.add_node(4)
        lab.load(lab.images.controller(), lab.images.sidecar(), lab.images.examples(), nodes=[node])
        lab.wait_ready(4)
        with pooled(cluster.kubectl, namespace, ["node-4"]):
            assert gang.status["attempt"] == 2  # There is a node, and no quota.
            assert len([pod for pod in gang.pods().values() if "deletionTimestamp" not in pod["metadata"]]) == 2
            end(shared_dir, "other", 1, 0)
            other.ends()
            status = gang.runs(3, 180)
            last = status["incidents"][0]
            assert (last["cause"]["reason"], last["charged"], last.get("lostSteps", 0)) == ("Growing", False, 0)
            assert sorted(counts(one) for one in queues.workloads("elastic")) == [(1, 1, 0), (3, 3, 1)]
            until("rank 2 begins again", lambda: begun(shared_dir, 2)[-1].endswith("3 of 3"), 60)
            until("it trains", lambda: steps(shared_dir)[-1][0] > last["restoredStep"], 60)
            numbers = [step for step, _ in steps(shared_dir)]
            assert numbers.count(last["restoredStep"] + 1) == 1  # Growing has cost no step.


@pytest.mark.usefixtures("kueue_installed", "third_node")
def test_a_gang_that_is_admitted_partially_starts_with_an_allowed_size_and_gives_the_rest_back(
    cluster: Cluster, namespace: str, submit: Submit, shared_dir: Path
) -> None:
    with queue(cluster.kubectl, namespace, QUOTA, ["node-1", "node-2", "node-3"]) as name:
        queues = Queues(name, namespace, cluster.kubectl)
        gang = submit(document(shared_dir, name, replicas=4, minReplicas=2, sizes={"type": "Step", "step": 2}))
        status = gang.until("it runs", lambda one: one if one["phase"] == "Running" else None)
        assert status["size"]["roles"] == [{"name": "worker", "members": 2}]
        (asked,) = queues.workloads("elastic")
        assert asked["spec"]["podSets"][0]["minCount"] == 2
        assert counts(asked)[:2] == (4, 3)
        until("the third is given back", lambda: counts(queues.workloads("elastic")[0]) == (4, 3, 2), 30)
        until("both begin", lambda: all(begun(shared_dir, rank) for rank in (0, 1)), 60)
        assert begun(shared_dir, 0)[0].endswith("2 of 4")
        assert len(gang.pods()) == 2
        other = submit(workers("other", name, shared_dir, replicas=1))
        other.runs(1)
        end(shared_dir, "other", 1, 0)
        other.ends()


@pytest.mark.usefixtures("kueue_installed", "third_node")
def test_a_gang_that_loses_the_quota_by_which_it_has_grown_goes_on_smaller_and_keeps_the_rest(
    cluster: Cluster, namespace: str, submit: Submit, shared_dir: Path
) -> None:
    with (
        priorities(cluster.kubectl),
        queue(cluster.kubectl, namespace, QUOTA, ["node-1", "node-2", "node-3"]) as name,
    ):
        queues = Queues(name, namespace, cluster.kubectl)
        other = submit(workers("other", name, shared_dir, replicas=1, priority=HIGH))
        other.runs(1)
        made = document(shared_dir, name, replicas=3)
        made["metadata"]["labels"][LABEL_PRIORITY] = LOW
        gang = submit(made)
        gang.until("it runs with two", lambda one: (one.get("phase"), one.get("ready")) == ("Running", "2/3"))
        first = queues.admitted("elastic")
        end(shared_dir, "other", 1, 0)
        other.ends()
        assert gang.runs(2, 180)["incidents"][0]["cause"]["reason"] == "Growing"
        assert sorted(counts(one)[:2] for one in queues.workloads("elastic")) == [(1, 1), (3, 2)]

        uids = gang.uids()
        high = submit(workers("high", name, shared_dir, replicas=1, priority=HIGH))
        high.runs(1)
        status = gang.until(
            "it runs with two again",
            lambda one: one if (one["attempt"], one["phase"], one["ready"]) == (3, "Running", "2/3") else None,
        )
        last = status["incidents"][0]
        assert (last["cause"]["reason"], last["charged"], last.get("lostSteps", 0)) == ("QuotaReclaimed", False, 0)
        (kept,) = queues.workloads("elastic")
        assert (kept["metadata"]["uid"], counts(kept)[:2]) == (first, (3, 2))
        assert "Evicted" not in {one["type"] for one in kept["status"]["conditions"]}
        left = gang.uids()
        assert len(left) == 2
        assert left.items() <= uids.items()
        end(shared_dir, "high", 1, 0)
        high.ends()
        assert gang.runs(4, 300)["incidents"][0]["cause"]["reason"] == "Growing"
