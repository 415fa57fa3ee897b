"""Kueue preempts JobSets and gangs in each phase: they end without pods and quota, and go on when there is quota."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e import installation, process_faults
from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS, Gang
from e2e.installation import Installed
from e2e.jobsets import jobset
from e2e.jobsets.test_peers import IMAGE, create, pod, until_condition
from e2e.jobsets.test_queued_jobsets import admitted, gang_of
from e2e.queues.crashes import in_use, uses
from e2e.queues.kueue import HIGH, LABEL_PRIORITY, LABEL_QUEUE, LOW, priorities, queue
from gangctl.annexes.jobset.names import ANNOTATION_SPEC, CONTROLLER
from tests.wait import until

GATE = "example.com/later"
WORKER = pod("trap '' TERM; exec sleep 1000000", cpu="100m") | {"terminationGracePeriodSeconds": 1}
"""It ends by SIGKILL only, so a member stops when its grace is over."""
SLOW = f"case $(hostname) in *-1) until [ -e {CHECKPOINTS}/open ]; do sleep 0.2; done;; esac"
QUOTA = {"cpu": "300m", "memory": "4Gi"}
"""For two members with their sidecars, and not for four."""


@dataclass(frozen=True)
class Phase:
    """How a gang comes to a phase in which it is preempted, and what it needs to run when it is resumed."""

    name: str
    pod: dict[str, Any]
    """What is added to the pods' specification."""
    recovery: dict[str, Any]
    come: Callable[[Gang], None] = lambda _: None
    release: Callable[[Gang, Path], None] = lambda *_: None


def _fault(gang: Gang) -> None:
    gang.runs(1)
    process_faults.kill(process_faults.worker(gang.uids()["worker-0"]))


def _open_gates(gang: Gang, _folder: Path) -> None:
    until("both pods are there", lambda: len(gang.pods()) == 2, every=0.25)
    change = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    for one in gang.pods().values():
        gang.kubectl("patch", "pod", one["metadata"]["name"], "-n", gang.namespace, "--type=json", "-p", change)


PHASES = {
    "gated": Phase("Pending", {"schedulingGates": [{"name": GATE}]}, {}, release=_open_gates),
    "slow-member": Phase(
        "Pending",
        {
            "initContainers": [
                {
                    "name": "slow",
                    "image": IMAGE,
                    "command": ["sh", "-c", SLOW],
                    "volumeMounts": [{"name": "shared", "mountPath": CHECKPOINTS}],
                }
            ]
        },
        {},
        release=lambda _gang, folder: (folder / "open").touch(),
    ),
    "at-the-barrier": Phase("Gathering", {}, {"stopGracePeriodSeconds": 600}, _fault),
    "held": Phase("Held", {}, {"onExhausted": "Hold", "budget": {"maxRestarts": 0}}, _fault),
}


def document(kind: str, name: str, where: str, priority: str, **spec: Any) -> dict[str, Any]:
    """A JobSet or a GangJob with two workers in a queue. ``spec``: its pods', and its ``recovery``."""
    recovery = {"stopGracePeriodSeconds": 3, "plannedStopGracePeriodSeconds": 1, **spec.pop("recovery", {})}
    workers = WORKER | spec
    labels = {LABEL_QUEUE: where, LABEL_PRIORITY: priority}
    if kind == "gj":
        role = {"name": "worker", "replicas": 2, "template": {"spec": workers}}
        return {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": name, "labels": labels},
            "spec": {"roles": [role], "recovery": recovery},
        }
    made = jobset.document(name, workers, job="worker", managedBy=CONTROLLER, failurePolicy={"maxRestarts": 3})
    made["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 2, "completions": 2}
    made["metadata"] |= {"labels": labels, "annotations": {ANNOTATION_SPEC: json.dumps({"recovery": recovery})}}
    return made


@pytest.fixture(scope="module")
def gangs_queue(cluster: Cluster, gangctl_runs_jobsets: Installed) -> Iterator[None]:  # noqa: ARG001
    """The installed gangctl takes notice of the queues of GangJobs."""
    installation.enable(cluster, "kueue")
    yield
    installation.enable(cluster, "kueue", wanted=False)


@pytest.mark.parametrize("kind", ["jobset", "gj"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.usefixtures("kueue_running", "gangs_queue")
def test_what_is_preempted_gives_its_quota_back_in_each_phase_and_goes_on_later(
    cluster: Cluster, namespace: str, shared_dir: Path, phase: str, kind: str
) -> None:
    case, sidecars = PHASES[phase], kind == "gj"
    volumes = [{"name": "shared", "hostPath": {"path": str(shared_dir)}}]
    with priorities(cluster.kubectl), queue(cluster.kubectl, namespace, QUOTA, ["node-1"]) as name:
        low = document(kind, "low", name, LOW, volumes=volumes, recovery=case.recovery, **case.pod)
        create(cluster, namespace, low)
        gang = gang_of(cluster, namespace, "low")
        case.come(gang)
        attempt = gang.until(
            "it is in this phase", lambda one: one["attempt"] if one.get("phase") == case.name and gang.pods() else 0
        )
        create(cluster, namespace, document(kind, "high", name, HIGH))
        gang_of(cluster, namespace, "high").runs(1)
        gang.until("it is suspended", lambda one: one["phase"] == "Suspended")
        until("its pods are gone", lambda: not gang.pods(), every=0.25)
        assert admitted(cluster, namespace) == {"high"}
        uses(cluster.kubectl, namespace, sidecars=sidecars)
        if kind == "jobset":
            until_condition(cluster, namespace, "jobset/low", "Suspended")

        cluster.kubectl("delete", kind, "high", "-n", namespace)
        if kind == "gj" and phase == "held":  # Its user has to say that it goes on.
            assert gang.status["phase"] == "Suspended"
            gang.patch(restartToken="again")
        case.release(gang, shared_dir)
        gang.runs(attempt + 1)
        assert admitted(cluster, namespace) == {"low"}
        uses(cluster.kubectl, namespace, sidecars=sidecars)
        cluster.kubectl("delete", kind, "low", "-n", namespace)
        until("no quota is in use", lambda: in_use(cluster.kubectl, name) == 0, every=0.25)
