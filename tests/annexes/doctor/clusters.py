"""Nodes, pods and DaemonSets as the API server sends them, made by hand from the manifests that the table names.

NVIDIA's GPU operator on a node with eight GPUs, AMD's GPU operator, and a bare device plugin.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from gangctl.annexes.doctor.links import Link, LinkName, LinkState, NodeSurroundings
from gangctl.annexes.doctor.node_chain import node_chain
from gangctl.kubernetes.objects import Node, WholePod, read_daemon_set, read_node, read_pod
from gangctl.kubernetes.schema import RawDaemonSet, RawNode, RawWholePod
from gangctl.kubernetes.signals import SignalTable, default_rows

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
GPU_LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "550.90.07",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/gpu.deploy.device-plugin": "true",
}
OPERANDS = {
    "nvidia-driver-daemonset": "nvcr.io/nvidia/driver:550.90.07",
    "nvidia-container-toolkit-daemonset": "nvcr.io/nvidia/k8s/container-toolkit:v1.17.8",
    "nvidia-device-plugin-daemonset": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
    "gpu-feature-discovery": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
    "nvidia-mig-manager": "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.1",
    "nvidia-dcgm-exporter": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3",
    "nvidia-operator-validator": "nvcr.io/nvidia/cloud-native/gpu-operator-validator:v25.3.0",
}
"""Label app of the GPU operator's pods -> image."""


def raw_node(name: str, capacity: dict[str, int], labels: dict[str, str] | None = None, **status: Any) -> Object:
    """A node that is ready, with all of its devices allocatable."""
    amounts = {"cpu": "8", "memory": "32Gi"} | {key: str(amount) for key, amount in capacity.items()}
    info = {"kernelVersion": "5.15.0", "kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.1"}
    whole = {"capacity": amounts, "allocatable": amounts, "nodeInfo": info, "conditions": [condition("Ready", "True")]}
    return {"metadata": {"name": name, "uid": name, "labels": labels or {}}, "spec": {}, "status": whole | status}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def raw_pod(name: str, node: str, labels: dict[str, str], image: str = "i:1", **more: Any) -> Object:
    """A pod that is ready; ``more``: container, requests, namespace, status, spec."""
    container = {"name": more.get("container", "main"), "image": image, **more.get("of_container", {})}
    if "requests" in more:
        container["resources"] = {"limits": {key: str(amount) for key, amount in more["requests"].items()}}
    ready: Object = {"phase": "Running", "conditions": [condition("Ready", "True")]}
    ready["containerStatuses"] = [{"name": container["name"], "state": {"running": {}}}]
    return {
        "metadata": {"name": name, "namespace": more.get("namespace", "gpu-operator"), "labels": labels},
        "spec": {"nodeName": node, "containers": [container], **more.get("spec", {})},
        "status": ready | more.get("status", {}),
    }


def not_ready(reason: str, message: str = "") -> Object:
    """Status of a pod whose container can't run."""
    waiting = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Running", "conditions": [condition("Ready", "False")], "containerStatuses": [waiting]}


def raw_daemon_set(name: str, labels: dict[str, str], **spec: Any) -> Object:
    container = {"name": spec.pop("container", "main"), "image": "i:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    return {"metadata": {"name": name, "namespace": "gpu-operator"}, "spec": {"template": template}}


def node(raw: Object) -> Node:
    raw = json.loads(json.dumps(raw))
    return read_node(SignalTable(default_rows()), RawNode.model_validate(raw))


def pod(raw: Object) -> WholePod:
    return read_pod(RawWholePod.model_validate(raw))


def daemon_set(raw: Object) -> WholePod:
    return read_daemon_set(RawDaemonSet.model_validate(raw))


def operands(at: str, but: tuple[str, ...] = ()) -> list[Object]:
    """The pods of the GPU operator on a node, but these."""
    return [raw_pod(f"{app}-x", at, {"app": app}, image) for app, image in OPERANDS.items() if app not in but]


def gpu_node(**labels: str) -> Node:
    """A node of the GPU operator with eight GPUs."""
    return node(raw_node("gpu-1", {GPU: 8}, GPU_LABELS | labels))


def around(
    *pods: Object, daemon_sets: tuple[Object, ...] = (), runtime_classes: tuple[str, ...] = ("nvidia",)
) -> NodeSurroundings:
    return NodeSurroundings(
        pods=tuple(map(pod, pods)), daemon_sets=tuple(map(daemon_set, daemon_sets)), runtime_classes=runtime_classes
    )


def links(of: Node, seen: NodeSurroundings) -> dict[LinkName, Link]:
    """The links of a node by name; there must be one of each."""
    found = node_chain(of, seen)
    by_name = {one.name: one for one in found}
    assert len(by_name) == len(found)
    return by_name


def states(found: dict[LinkName, Link]) -> dict[LinkName, LinkState]:
    return {name: one.state for name, one in found.items()}


def with_allocatable(of: Node, resource: str, left: int) -> Node:
    return replace(of, allocatable={**of.allocatable, resource: Decimal(left)})
