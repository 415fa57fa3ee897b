"""The chain of a pod: placed, taken, started, healthy devices, CUDA, and what is seen inside."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.annexes.doctor.links import Inside, Link, LinkName, LinkState, NodeSurroundings, Unread
from gangctl.annexes.doctor.pod_chain import cuda_link, pod_chain
from gangctl.kubernetes.objects import PodContainer
from tests.annexes.doctor.clusters import GPU, around, condition, gpu_node, not_ready, pod, raw_pod

OLDER = "brand=unknown,driver>=535,driver<536 brand=tesla,driver>=535,driver<536"
OK, FAILED, ABSENT, UNKNOWN = LinkState.OK, LinkState.FAILED, LinkState.ABSENT, LinkState.UNKNOWN


def chain(seen: NodeSurroundings | None = None, inside: Inside | None = None, **more: Any) -> dict[LinkName, Link]:
    """The links of a user's pod with two GPUs on a node of the GPU operator."""
    image = more.pop("image", "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime")
    node = more.pop("node", "gpu-1")
    one = pod(raw_pod("train-0", node, {}, image, namespace="research", **{"requests": {GPU: 2}, **more}))
    return {link.name: link for link in pod_chain(one, gpu_node(), seen or around(), inside)}


def devices(*health: str) -> dict[str, Any]:
    """Status of a running pod with devices of this health."""
    told = [{"resourceID": f"GPU-{at}", "health": one, "message": "Xid 79"} for at, one in enumerate(health)]
    of_container = {
        "name": "main",
        "state": {"running": {}},
        "allocatedResourcesStatus": [{"name": GPU, "resources": told}],
    }
    return {"phase": "Running", "containerStatuses": [of_container]}


def test_a_pod_that_runs_is_taken_and_started() -> None:
    found = chain(status=devices("Healthy", "Healthy"))
    assert {one.state for one in found.values()} == {OK}
    assert found[LinkName.REQUESTS].seen == "the pod asks for 2 nvidia.com/gpu"
    assert found[LinkName.HEALTH].seen.startswith("healthy: nvidia.com/gpu GPU-0")


def test_a_pod_without_requests_gets_no_device() -> None:
    found = chain(requests={})
    assert (found[LinkName.REQUESTS].state, LinkName.HEALTH in found) == (ABSENT, False)


def test_devices_of_claims_are_not_followed_and_not_denied() -> None:
    found = chain(requests={}, spec={"resourceClaims": [{"name": "gpu"}]}, status=devices("Unhealthy"))
    assert (found[LinkName.REQUESTS].state, found[LinkName.HEALTH].state) == (UNKNOWN, FAILED)


def test_a_pod_that_is_not_placed_says_why_and_has_no_more_links() -> None:
    why = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    found = chain(node="", status={"phase": "Pending", "conditions": [why]})
    assert "0/3 nodes are available" in found[LinkName.SCHEDULING].seen
    assert set(found) == {LinkName.REQUESTS, LinkName.SCHEDULING}


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        ("UnexpectedAdmissionError", "check the device plugin on that node"),
        ("OutOfnvidia.com/gpu", "compare the node's allocatable"),
        ("TopologyAffinityError", "topologyManagerPolicy"),
        ("NodeAffinity", "the node's labels no longer match"),
    ],
)
def test_a_pod_that_the_kubelet_rejected_says_what_to_check(reason: str, check: str) -> None:
    words = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
    found = chain(status={"phase": "Failed", "reason": reason, "message": words, "conditions": []})[LinkName.ADMISSION]
    assert found.state is FAILED
    assert f"the kubelet of gpu-1 rejected the pod: {reason}: {words}" in found.seen
    assert check in found.todo


def test_a_container_that_cannot_start_has_the_runtimes_words() -> None:
    words = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6"
    found = chain(status=not_ready("CreateContainerError", words))[LinkName.START]
    assert (found.state, "unsatisfied condition: cuda>=12.6" in found.seen) == (FAILED, True)
    init = {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]}
    assert (
        chain(status=init)[LinkName.START].seen == "its containers do not run yet: init container fetch has not ended"
    )
    assert chain(status={"phase": "Pending", "containerStatuses": []})[LinkName.ADMISSION].state is UNKNOWN
    creating = chain(status={**not_ready("ContainerCreating"), "phase": "Pending"})
    assert (creating[LinkName.ADMISSION].state, creating[LinkName.START].state) == (OK, UNKNOWN)
    assert chain(status={"phase": "Succeeded"})[LinkName.START].state is ABSENT


def test_a_runtime_class_that_does_not_exist_fails() -> None:
    spec = {"runtimeClassName": "nvidia"}
    assert chain(spec=spec)[LinkName.POD_RUNTIME_CLASS].state is OK
    assert chain(around(runtime_classes=()), spec=spec)[LinkName.POD_RUNTIME_CLASS].state is FAILED
    blind = NodeSurroundings(runtime_classes=Unread("list runtimeclasses.node.k8s.io"))
    assert chain(blind, spec=spec)[LinkName.POD_RUNTIME_CLASS].state is UNKNOWN


def test_the_health_of_devices_is_as_the_status_tells() -> None:
    sick = chain(status=devices("Healthy", "Unhealthy"))[LinkName.HEALTH]
    assert (sick.state, sick.seen) == (FAILED, "unhealthy: nvidia.com/gpu GPU-1 (Xid 79)")
    assert chain(status=devices("Healthy", "Unknown"))[LinkName.HEALTH].state is UNKNOWN
    assert chain()[LinkName.HEALTH].state is ABSENT


@pytest.mark.parametrize(
    ("image", "env", "supported", "state", "seen"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", {}, "12.4", OK, "CUDA 12.4 (by the image's tag)"),
        ("registry.example.com/nvidia/cuda:11.8.0-devel", {}, "12.4", OK, "CUDA 11.8"),
        ("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime", {}, "12.4", OK, "compatible within 12.x, with limits"),
        ("vllm:v0.6-cu130", {}, "12.4", FAILED, "CUDA 13.0"),
        ("mine", {"CUDA_VERSION": "13.1.0"}, "12.4", FAILED, "CUDA 13.1 (by CUDA_VERSION)"),
        ("mine", {"NVIDIA_REQUIRE_CUDA": "cuda>=12.2 brand=tesla"}, "12.4", OK, "by NVIDIA_REQUIRE_CUDA"),
        (
            "mine",
            {"CUDA_VERSION": "13.0.0", "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-13-0"},
            "12.2",
            UNKNOWN,
            "cuda-compat",
        ),
        ("mine", {"NVIDIA_REQUIRE_CUDA": f"cuda>=13.0 {OLDER}"}, "12.2", UNKNOWN, "only on data center GPUs"),
        ("mine", {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0,driver>=580"}, "12.2", FAILED, "CUDA 13.0"),
        ("nvidia/cuda:13.0.0-base-ubuntu22.04", {}, "12.2", UNKNOWN, "cuda-compat"),
        ("mine:cuda10.2", {}, "10.1", FAILED, "CUDA 10.2"),
        ("mine:cuda12.4", {}, "", UNKNOWN, "no label has what the driver supports"),
        ("nvidia/cuda:12.4.1-base@sha256:0", {}, "12.4", OK, "CUDA 12.4"),
    ],
)
def test_cuda_of_the_image_against_the_driver(
    image: str, env: dict[str, str], supported: str, state: LinkState, seen: str
) -> None:
    found = cuda_link(PodContainer(name="main", image=image, env=env), {}, supported, "NVIDIA GPUs")
    assert found is not None
    assert found.state is state
    assert seen in found.seen


@pytest.mark.parametrize("image", ["mine:1", "registry:5000/mine", "mine:focus12", "mine:cu1", "cuda12.4/mine:2"])
def test_an_image_that_does_not_tell_its_cuda_is_not_guessed(image: str) -> None:
    assert cuda_link(PodContainer(name="main", image=image), {}, "12.4", "NVIDIA GPUs") is None


def test_cuda_that_is_not_known_is_unknown_and_says_how_to_look() -> None:
    found = chain(image="mine:1")[LinkName.CUDA]
    assert (found.state, "--exec looks inside" in found.seen) == (UNKNOWN, True)
    inside = Inside(container="main", files=("/dev/nvidia0", "/dev/nvidia1"), env={"CUDA_VERSION": "13.0.1"})
    assert chain(image="mine:1", inside=inside)[LinkName.CUDA].state is FAILED


def test_what_is_seen_inside_is_compared_with_what_was_asked_for() -> None:
    both = Inside(container="main", files=("/dev/nvidia0", "/dev/nvidia1"))
    one = Inside(container="main", files=("/dev/nvidia0",))
    none = Inside(container="main")
    mute = Inside(container="main", failure="container main has no python3")
    assert LinkName.INSIDE not in chain()
    # the node's labels say mig.strategy=single, so that files and devices can't be compared
    states = [chain(inside=seen)[LinkName.INSIDE].state for seen in (both, one, none, mute)]
    assert states == [OK, OK, FAILED, UNKNOWN]
    whole = gpu_node(**{"nvidia.com/mig.strategy": "none", "nvidia.com/gpu.sharing-strategy": "none"})
    asking = pod(raw_pod("t", "gpu-1", {}, requests={GPU: 2}))
    last = pod_chain(asking, whole, around(), one)[-1]
    assert (last.state, last.seen) == (FAILED, "container main has 1: /dev/nvidia0; the pod asks for 2")
    other = pod(raw_pod("t", "gpu-1", {}, requests={"example.com/accelerator": 1}))
    assert pod_chain(other, None, around(), none)[-1].state is UNKNOWN
