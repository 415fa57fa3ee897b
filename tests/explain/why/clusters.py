"""Small clusters in a few words, and pods as an API server has them."""

from __future__ import annotations

from typing import Any

from gangctl.explain.why.world import Inventory
from gangctl.kubernetes.objects import Node, WholePod, read_node, read_pod
from gangctl.kubernetes.schema import RawNode, RawWholePod
from gangctl.kubernetes.signals import SignalTable

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 8, **more: Any) -> Node:
    """A node with devices, and enough of everything else."""
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus), **more.pop("allocatable", {})}
    raw = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": more.pop("cordoned", False), "taints": more.pop("taints", [])},
        "status": {"allocatable": allocatable},
    }
    assert not more
    return read_node(SignalTable(()), RawNode.model_validate(raw))


def raw_pod(name: str, gpus: int | str = 1, *, on: str = "", **spec: Any) -> dict[str, Any]:
    """A pod as an API server has it. ``on``: its node."""
    metadata = {"name": name, "namespace": "lab", "uid": f"uid-{name}", **spec.pop("metadata", {})}
    limits = {GPU: str(gpus)} if gpus else {}
    containers = spec.pop("containers", [{"name": "main", "resources": {"limits": limits}}])
    status = {"phase": "Running" if on else "Pending", **spec.pop("status", {})}
    place = {"nodeName": on} if on else {}
    return {"metadata": metadata, "spec": {"containers": containers, **place, **spec}, "status": status}


def pod(name: str, gpus: int | str = 1, *, on: str = "", **spec: Any) -> WholePod:
    return read_pod(RawWholePod.model_validate(raw_pod(name, gpus, on=on, **spec)))


def cluster(nodes: list[Node], *pods: WholePod, **claims: Any) -> Inventory:
    there: dict[str, tuple[WholePod, ...]] = {}
    for one in pods:
        there[one.node] = (*there.get(one.node, ()), one)
    return Inventory(tuple(nodes), there, {one.name: one for one in claims.values()})
