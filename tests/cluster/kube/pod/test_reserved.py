"""What belongs to gangctl in a pod is refused in a template, with the path of the field; all else is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod_builder import build_pod
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.pod.podcases import CASES, CONTACT, SETTINGS, Case, job

BESIDE = [{"name": "x", "mountPath": "/run"}, {"name": "x", "mountPath": "/run/gang-data", "subPath": "d"}]


def built(**spec: Any) -> dict[str, Any]:
    """A pod whose template has a worker and this; ``worker`` is what its container has beside that."""
    worker = {"name": "main", "image": "train", "command": ["a"], **spec.pop("worker", {})}
    beside = spec.pop("containers", [])
    roles = [{"name": "worker", "template": {"spec": {**spec, "containers": [worker, *beside]}}}]
    made = Case("", job(json.dumps(roles)), CreatePod("worker-0", 0))
    found: dict[str, Any] = build_pod(made.job, made.create, SETTINGS, CONTACT, restart_all=True)["spec"]
    return found


def refusal(**spec: Any) -> str:
    """Why the template is refused, after the path of its spec."""
    with pytest.raises(Terminal) as refused:
        built(**spec)
    return str(refused.value).removeprefix("spec.roles[0].template.spec.")


@pytest.mark.parametrize("name", ["gangctl", "gangctl-state", "gangctl-hub"])
@pytest.mark.parametrize("key", ["initContainers", "containers", "volumes"])
def test_a_name_of_gangctl_is_refused(name: str, key: str) -> None:
    at = 1 if key == "containers" else 0
    assert refusal(**{key: [{"name": name}]}).startswith(f"{key}[{at}].name: {name} is a name that gangctl uses")


@pytest.mark.parametrize("name", ["gangctl", "gangctl-state", "gangctl-hub"])
@pytest.mark.parametrize("key", ["volumeMounts", "volumeDevices"])
def test_no_container_mounts_a_volume_of_gangctl_by_name(name: str, key: str) -> None:
    mounts = {key: [{"name": "mine", "mountPath": "/a"}, {"name": name, "mountPath": "/b"}]}
    words = f"{key}[1].name: {name} is a volume of gangctl"
    assert refusal(worker=mounts).startswith(f"containers[0].{words}")
    assert refusal(containers=[{"name": "logs", **mounts}]).startswith(f"containers[1].{words}")
    assert refusal(initContainers=[{"name": "first", **mounts}]).startswith(f"initContainers[0].{words}")


@pytest.mark.parametrize(
    "place",
    [
        "/run/gang",
        "/run/gang/",
        "/run/gang/client/gangclient",
        "//run//gang",
        "/run/./x/../gang/supervisor.sock",
        "run/gang",
        "/var/run/gang",
        "/var/run/gang-state/x",
        "/run/gang-state",
    ],
)
def test_nothing_lies_on_a_folder_of_gangctl_in_the_workers_container(place: str) -> None:
    words = f"{place} is used by gangctl's supervisor; choose a path elsewhere"
    mount, device = {"name": "x", "mountPath": place}, {"name": "x", "devicePath": place}
    assert refusal(worker={"volumeMounts": [mount]}) == f"containers[0].volumeMounts[0].mountPath: {words}"
    assert refusal(worker={"volumeDevices": [device]}) == f"containers[0].volumeDevices[0].devicePath: {words}"
    assert refusal(worker={"terminationMessagePath": place}) == f"containers[0].terminationMessagePath: {words}"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGQUIT", "SIGRTMIN+3"])
def test_a_stop_signal_that_the_supervisor_takes_for_the_end_is_kept(name: str) -> None:
    lifecycle = {"preStop": {"sleep": {"seconds": 1}}, "stopSignal": name}
    assert built(worker={"lifecycle": lifecycle})["containers"][0]["lifecycle"] == lifecycle


def test_another_stop_signal_is_refused_in_the_workers_container_alone() -> None:
    lifecycle = {"stopSignal": "SIGUSR1"}
    assert refusal(worker={"lifecycle": lifecycle}) == (
        "containers[0].lifecycle.stopSignal: 'SIGUSR1' doesn't stop gangctl's supervisor, which would send the worker "
        "SIGTERM; remove it, or choose from SIGTERM, SIGINT, SIGQUIT, SIGRTMIN+3"
    )
    logs = {"name": "logs", "lifecycle": lifecycle}
    assert built(containers=[logs])["containers"][1] == logs


def test_mounts_above_and_beside_are_kept_and_other_containers_mount_where_they_like() -> None:
    logs = {"name": "logs", "volumeMounts": [{"name": "x", "mountPath": "/run/gang"}]}
    spec = built(worker={"volumeMounts": BESIDE, "terminationMessagePath": "/run/words"}, containers=[logs])
    assert spec["containers"][0]["volumeMounts"][:2] == BESIDE
    assert spec["containers"][1] == logs


def test_a_mount_that_is_no_mapping_is_refused_with_its_path() -> None:
    assert refusal(worker={"volumeMounts": ["x"]}) == "containers[0].volumeMounts[0]: 'x' instead of a mapping"
    assert refusal(containers=[{"name": "a", "volumeMounts": {}}]).startswith("containers[1].volumeMounts: {} instead")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_containers_own_programs_are_read_only_and_what_only_gangctl_writes_has_a_limit(case: Case) -> None:
    spec = build_pod(case.job, case.create, SETTINGS, CONTACT, restart_all=case.restart_all)["spec"]
    writers = {
        mount["name"]: one["name"]
        for one in (*spec["initContainers"], *spec["containers"])
        for mount in one.get("volumeMounts", ())
        if mount["name"].startswith("gangctl") and not mount.get("readOnly")
    }
    role, _, _ = case.create.member.partition("-")
    worker = next(one.worker.name for one in case.job.spec.roles if one.name == role)
    assert writers == {"gangctl": "gangctl", "gangctl-state": worker}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes["gangctl"]["emptyDir"]["sizeLimit"] == "64Mi"
