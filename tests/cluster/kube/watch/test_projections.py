from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gangctl.api.names import ANNOTATION_HUB_CA
from gangctl.cluster.kube.projections import PODS, HubContact, KubePod
from gangctl.core.facts.world import Device, LastWords
from gangsidecar.wire import End, to_words
from tests.cluster.kube.objects import UID, pod


def at(time: str) -> float:
    return datetime.fromisoformat(f"2026-11-21T{time}").replace(tzinfo=UTC).timestamp()


def stamp(time: str) -> str:
    return f"2026-11-21T{time}Z"


def running(name: str, since: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": stamp(since)}},
        **fields,
    }


def ended(name: str, code: int, reason: str, **fields: Any) -> dict[str, Any]:
    times = {"startedAt": stamp("10:00:05"), "finishedAt": stamp("10:05:00")}
    return {
        "name": name,
        "restartCount": 0,
        "started": False,
        "state": {"terminated": {"exitCode": code, "reason": reason, **times}},
        **fields,
    }


def waiting(name: str, reason: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "started": False, "state": {"waiting": {"reason": reason}}, **fields}


SPEC = {
    "nodeName": "node-a",
    "initContainers": [{"name": "a-users-own"}, {"name": "gangctl", "restartPolicy": "Always"}],
    "containers": [{"name": "m"}],
}
PREPARED = ended("a-users-own", 0, "Completed")
SIDECAR = running("gangctl", "10:00:06")


def read(status: dict[str, Any], spec: dict[str, Any] = SPEC, **metadata: Any) -> KubePod:
    raw = pod("worker-3", 2, spec=spec, status=status)
    raw["metadata"] |= {"resourceVersion": "7", **metadata}
    found = PODS.item(json.dumps(raw).encode())
    assert found is not None
    return found


def scheduled(status: str = "True", **fields: str) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": status, "lastTransitionTime": stamp("10:00:02"), **fields}


def test_a_running_pod_is_read_with_all_fields_that_decisions_need() -> None:
    found = read(
        {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "qosClass": "Guaranteed",
            "conditions": [scheduled(), {"type": "Ready", "status": "True", "lastTransitionTime": None}],
            "initContainerStatuses": [PREPARED, SIDECAR],
            "containerStatuses": [
                running(
                    "m",
                    "10:00:09",
                    restartCount=2,
                    allocatedResourcesStatus=[
                        {
                            "name": "example.com/gpu",
                            "resources": [
                                {"resourceID": "gpu-0", "health": "Healthy"},
                                {"resourceID": "gpu-1", "health": "Unhealthy"},
                                {"resourceID": "gpu-2"},
                            ],
                        }
                    ],
                )
            ],
        }
    )
    one = found.pod
    assert (one.name, one.uid, one.member, one.incarnation) == ("g-worker-3-2", "uid-g-worker-3-2", "worker-3", 2)
    assert (one.node, one.created_at, one.scheduled_at) == ("node-a", at("10:00:00"), at("10:00:02"))
    assert (one.started_at, one.restarts) == (at("10:00:09"), 2)
    assert (one.deleting, one.terminated, one.reason) == (False, False, "")
    assert one.conditions == (("PodScheduled", "True", ""), ("Ready", "True", ""))
    assert one.devices == (
        Device("example.com/gpu", "gpu-0", "Healthy"),
        Device("example.com/gpu", "gpu-1", "Unhealthy"),
        Device("example.com/gpu", "gpu-2", "Unknown"),
    )
    assert (found.namespace, found.gang, found.owner, found.phase) == ("default", UID, UID, "Running")
    assert found.resource_version == "7"


@pytest.mark.parametrize(
    ("inits", "mains", "when"),
    [
        ([PREPARED, SIDECAR], [running("m", "10:00:09")], "10:00:09"),
        ([PREPARED, running("gangctl", "10:07:00")], [running("m", "10:00:09")], "10:07:00"),
        ([PREPARED, waiting("gangctl", "CrashLoopBackOff")], [running("m", "10:00:09")], None),
        ([PREPARED, running("gangctl", "10:00:06", started=False)], [running("m", "10:00:09")], None),
        ([PREPARED, SIDECAR], [waiting("m", "PodInitializing")], None),
        ([PREPARED, SIDECAR], [ended("m", 137, "Error")], None),
        ([PREPARED, SIDECAR], [], None),
        ([], [], None),
    ],
)
def test_a_pod_has_started_when_its_last_container_has(
    inits: list[dict[str, Any]], mains: list[dict[str, Any]], when: str | None
) -> None:
    found = read({"phase": "Running", "initContainerStatuses": inits, "containerStatuses": mains})
    assert found.pod.started_at == (None if when is None else at(when))


def test_a_container_that_ended_with_0_counts_as_started() -> None:
    spec = {**SPEC, "containers": [{"name": "m"}, {"name": "fetch"}]}
    mains = [running("m", "10:00:09"), ended("fetch", 0, "Completed")]
    found = read({"initContainerStatuses": [PREPARED, SIDECAR], "containerStatuses": mains}, spec)
    assert found.pod.started_at == at("10:00:09")


@pytest.mark.parametrize(
    ("phase", "inits", "mains", "deleting", "terminated"),
    [
        ("Succeeded", [PREPARED, ended("gangctl", 0, "Completed")], [ended("m", 0, "Completed")], False, True),
        ("Failed", [PREPARED, ended("gangctl", 0, "Completed")], [ended("m", 1, "Error")], False, True),
        # Refused by the kubelet: nothing was ever started.
        ("Failed", [], [], False, True),
        # On a lost node others write the phase.
        ("Failed", [PREPARED, SIDECAR], [running("m", "10:00:09")], True, False),
        # The worker has ended, the sidecar hasn't yet.
        ("Running", [PREPARED, SIDECAR], [ended("m", 0, "Completed")], True, False),
        # All are restarted: for a moment all have ended.
        ("Running", [PREPARED, ended("gangctl", 143, "Error")], [ended("m", 1, "Error")], False, False),
        ("Running", [PREPARED, ended("gangctl", 143, "Error")], [ended("m", 1, "Error")], True, True),
        ("Pending", [], [], True, False),
    ],
)
def test_a_pod_is_terminated_when_no_container_runs_or_will_run(
    phase: str, inits: list[dict[str, Any]], mains: list[dict[str, Any]], *, deleting: bool, terminated: bool
) -> None:
    metadata: dict[str, Any] = {"deletionTimestamp": stamp("10:05:00")} if deleting else {}
    found = read({"phase": phase, "initContainerStatuses": inits, "containerStatuses": mains}, **metadata)
    assert (found.pod.terminated, found.pod.deleting) == (terminated, deleting)


@pytest.mark.parametrize("reason", ["DeletionByPodGC", "DeletionByTaintManager", "DeletionByDeviceTaintManager"])
@pytest.mark.parametrize(
    ("main", "terminated"),
    [(waiting("m", "PodInitializing"), False), (ended("m", 1, "Error"), True)],
    ids=["as of before", "by the kubelet"],
)
def test_a_phase_that_the_control_plane_writes_for_a_node_does_not_end_a_pod(
    reason: str, main: dict[str, Any], *, terminated: bool
) -> None:
    inits = [PREPARED, ended("gangctl", 0, "Completed") if terminated else waiting("gangctl", "PodInitializing")]
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    status = {"phase": "Failed", "conditions": conditions, "initContainerStatuses": inits, "containerStatuses": [main]}
    assert read(status, deletionTimestamp=stamp("10:05:00")).pod.terminated is terminated


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}, "Evicted"),
        ({"containerStatuses": [waiting("m", "ImagePullBackOff")]}, "ImagePullBackOff"),
        ({"containerStatuses": [waiting("m", "ContainerCreating")]}, ""),
        ({"containerStatuses": [waiting("m", "PodInitializing")]}, ""),
        ({"initContainerStatuses": [waiting("gangctl", "CreateContainerError")]}, "CreateContainerError"),
        ({"phase": "Failed", "containerStatuses": [ended("m", 137, "OOMKilled")]}, "OOMKilled"),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [PREPARED, ended("gangctl", 143, "Error")],
                "containerStatuses": [ended("m", 137, "OOMKilled")],
            },
            "OOMKilled",
        ),
        ({"phase": "Succeeded", "containerStatuses": [ended("m", 0, "Completed")]}, ""),
        (
            {
                "conditions": [
                    scheduled(
                        "False", reason="Unschedulable", message="0/2 nodes are available: 2 Insufficient memory."
                    )
                ]
            },
            "0/2 nodes are available: 2 Insufficient memory.",
        ),
    ],
)
def test_the_reason_of_a_pod_is_kubernetes_own(status: dict[str, Any], reason: str) -> None:
    assert read(status).pod.reason == reason


def test_a_pod_that_was_evicted_says_for_what() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}
    pod = read(status).pod
    assert (pod.is_evicted, pod.detail) == (True, "The node was low on resource: memory")


def test_the_newest_end_of_a_restarted_container_is_read() -> None:
    worker = running("m", "10:05:02", lastState=ended("m", 137, "OOMKilled")["state"])
    beside = running("log", "10:05:02", lastState=ended("log", 137, "Error")["state"])
    sidecar = running("gangctl", "10:06:00", lastState=ended("gangctl", 1, "Error")["state"])
    seen = read({"phase": "Running", "initContainerStatuses": [sidecar], "containerStatuses": [beside, worker]})
    assert (seen.pod.ended_at, seen.pod.ended_reason) == (at("10:05:00"), "OOMKilled")
    assert read({"containerStatuses": [running("m", "10:00:05")]}).pod.ended_at is None


BESIDE = {
    **SPEC,
    "initContainers": [*SPEC["initContainers"], {"name": "proxy", "restartPolicy": "Always"}],
    "containers": [{"name": "m"}, {"name": "log"}],
}
WORKER = {"annotations": {"gangctl.io/worker-container": "m"}}


@pytest.mark.parametrize(
    "beside",
    [
        ended("log", 0, "Completed"),
        ended("log", 137, "OOMKilled"),
        waiting("log", "CrashLoopBackOff", restartCount=9, lastState=ended("log", 1, "Error")["state"]),
    ],
    ids=["completed", "killed", "crashing"],
)
def test_what_happens_to_a_container_beside_the_worker_is_not_the_workers(beside: dict[str, Any]) -> None:
    end = beside["state"].get("terminated", {})
    end["message"] = to_words([End(3, 0, 0, exit_code=0)])
    proxy = running("proxy", "10:09:00", restartCount=9, lastState=ended("proxy", 1, "Error")["state"])
    status = {
        "phase": "Running",
        "initContainerStatuses": [PREPARED, SIDECAR, proxy],
        "containerStatuses": [running("m", "10:00:09"), beside],
    }
    one = read(status, BESIDE, **WORKER).pod
    assert (one.started_at, one.ended_at, one.last_words) == (at("10:00:09"), None, None)
    assert (one.restarts, one.reason, one.is_sound) == (0, "", True)


def test_what_keeps_the_worker_from_starting_is_shown() -> None:
    inits = [ended("gangctl", 1, "Error", restartCount=4), waiting("proxy", "ImagePullBackOff")]
    status = {"initContainerStatuses": inits, "containerStatuses": [waiting("m", "PodInitializing")]}
    one = read(status, BESIDE, **WORKER).pod
    assert (one.started_at, one.restarts, one.reason) == (None, 4, "ImagePullBackOff")


def test_a_pod_runs_while_a_container_beside_the_worker_does() -> None:
    mains = [ended("m", 0, "Completed"), running("log", "10:00:09")]
    inits = [PREPARED, ended("gangctl", 0, "Completed")]
    status = {"phase": "Running", "initContainerStatuses": inits, "containerStatuses": mains}
    assert not read(status, BESIDE, **WORKER, deletionTimestamp=stamp("10:05:00")).pod.terminated


def test_the_last_words_of_the_newest_supervisor_are_read() -> None:
    done, failed = End(3, 0, 0, exit_code=0), End(3, 1, 500, exit_code=7)

    def with_words(state: dict[str, Any], *ends: End) -> dict[str, Any]:
        state["terminated"]["message"] = f"{to_words(ends)}\nTraceback (most recent call last):"
        return state

    now = with_words(ended("m", 0, "Completed")["state"], done, failed)
    before = with_words(ended("m", 137, "Error")["state"], failed)
    before["terminated"]["finishedAt"] = stamp("10:04:00")
    beside = ended("log", 1, "Error")
    beside["state"]["terminated"]["message"] = "gangctl: not ours"
    over = {"name": "m", "state": now, "lastState": before}
    assert read({"containerStatuses": [beside, over]}).pod.last_words == LastWords(at("10:05:00"), (done, failed))
    again = running("m", "10:04:02", lastState=before)
    assert read({"containerStatuses": [again, beside]}).pod.last_words == LastWords(at("10:04:00"), (failed,))
    assert read({"containerStatuses": [beside]}).pod.last_words is None


def test_an_unscheduled_pod_has_no_scheduling_time() -> None:
    found = read({"conditions": [scheduled("False")]}, {"containers": [{"name": "m"}]})
    assert (found.pod.scheduled_at, found.pod.node) == (None, "")


def test_a_disruption_is_one_of_the_conditions() -> None:
    found = read({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]})
    assert found.pod.conditions == (("DisruptionTarget", "True", "EvictionByEvictionAPI"),)


def test_a_pod_without_its_labels_is_ignored() -> None:
    raw = pod()
    del raw["metadata"]["labels"]["gangctl.io/incarnation"]
    assert PODS.item(json.dumps(raw).encode()) is None


def test_only_the_controller_of_a_pod_owns_it() -> None:
    owners = [{"kind": "GangJob", "uid": UID}, {"kind": "Job", "uid": UID, "controller": True}]
    assert read({}, ownerReferences=owners).owner == ""


def test_an_annotation_that_nobody_of_gangctl_wrote_is_not_kept() -> None:
    """A tenant may write 250 KB with a gang's label."""
    found = PODS.item(json.dumps(pod(metadata={"annotations": {ANNOTATION_HUB_CA: "x" * 200_000}})).encode())
    assert found is not None
    assert found.contact == HubContact()
