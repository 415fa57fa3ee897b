"""The fleet: pools, what differs in them, and what has failed."""

from __future__ import annotations

from typing import Any

from gangctl.annexes.doctor.links import LinkName, NodeSurroundings, Unread
from gangctl.annexes.doctor.survey import PoolNode, pools
from tests.annexes.doctor.clusters import GPU, GPU_LABELS, node, pod, raw_node, raw_pod

TYPE = "node.kubernetes.io/instance-type"


def member(
    name: str, image: str = "plugin:1", count: int = 8, labels: dict[str, str] | None = None, **status: Any
) -> PoolNode:
    """A node of a pool, with its device plugin."""
    plugin = pod(raw_pod("p", name, {"name": "nvidia-device-plugin-ds"}, image))
    made = node(raw_node(name, {GPU: count}, GPU_LABELS | {TYPE: "p5.48xlarge"} | (labels or {}), **status))
    return made, NodeSurroundings(pods=(plugin,), all_pods=False)


def test_nodes_that_are_alike_have_no_difference() -> None:
    (only,) = pools([member("b"), member("a")])
    assert (only.name, only.nodes, only.resources, only.failed) == ("p5.48xlarge", ("a", "b"), (GPU,), False)


def test_each_property_is_compared_by_value_with_the_most_frequent_first() -> None:
    info = {"kernelVersion": "6.8.0", "kubeletVersion": "v1.36.1", "containerRuntimeVersion": "containerd://2.2"}
    odd = member("d", "plugin:2", 7, {"nvidia.com/cuda.driver-version.full": "560.35.03"}, nodeInfo=info)
    (only,) = pools([member("a"), member("b"), member("c"), odd])
    assert {one.what: one.values for one in only.differences} == {
        "driver": (("550.90.07", ("a", "b", "c")), ("560.35.03", ("d",))),
        "device plugin": (("plugin:1", ("a", "b", "c")), ("plugin:2", ("d",))),
        "kernel": (("5.15.0", ("a", "b", "c")), ("6.8.0", ("d",))),
        "kubelet": (("v1.36.0", ("a", "b", "c")), ("v1.36.1", ("d",))),
        "container runtime": (("containerd://2.1", ("a", "b", "c")), ("containerd://2.2", ("d",))),
        GPU: (("8", ("a", "b", "c")), ("7", ("d",))),
    }


def test_a_node_that_does_not_tell_differs_too() -> None:
    mute = member("b", labels={"nvidia.com/cuda.driver-version.full": ""})
    (only,) = pools([member("a"), mute])
    assert only.differences[0].values == (("", ("b",)), ("550.90.07", ("a",)))


def test_pools_are_the_providers_then_the_type_of_the_machine_then_the_resources() -> None:
    found = pools(
        [
            member("a", labels={"cloud.google.com/gke-nodepool": "train"}),
            member("b", labels={"karpenter.sh/nodepool": "burst"}),
            member("c"),
            (node(raw_node("d", {"example.com/accelerator": 4})), NodeSurroundings()),
            (node(raw_node("e", {"example.com/accelerator": 3})), NodeSurroundings()),
            (node(raw_node("cpu", {})), NodeSurroundings()),
        ]
    )
    assert {one.name: one.nodes for one in found} == {
        "train p5.48xlarge": ("a",),
        "burst p5.48xlarge": ("b",),
        "p5.48xlarge": ("c",),
        "example.com/accelerator": ("d", "e"),
    }


def test_what_has_failed_on_a_node_is_named_and_allocations_are_not_asked_for() -> None:
    amounts = {"cpu": "8", GPU: "8"}
    short = member("b", allocatable=amounts | {GPU: "6"})
    (only,) = pools([member("a"), short])
    assert [(one.node, one.link.name, one.link.seen) for one in only.findings] == [
        ("b", LinkName.ALLOCATABLE, "6 of 8: the device plugin calls 2 unhealthy")
    ]


def test_images_that_may_not_be_read_make_no_difference() -> None:
    blind = NodeSurroundings(pods=Unread("list pods in all namespaces"), all_pods=False)
    (only,) = pools([(member(name)[0], blind) for name in ("a", "b")])
    assert not only.failed
