"""Decodes what the chain of devices needs of nodes, pods and DaemonSets, from the API server's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import Field

from gangctl.cluster.kube.nodes.table import Condition, SignalTable
from gangctl.cluster.kube.watch.containers import WORDS, seconds
from gangctl.cluster.kube.watch.decoding import Raw
from gangctl.cluster.kube.watch.schema import (
    RawContainerStatus,
    RawMetadata,
    RawNode,
    RawNodeStatus,
    RawPodStatus,
    RawTaint,
)
from gangctl.core.facts.world import Device
from gangctl.explain.doctor.facts import Container, DaemonSet, Node, Pod, Signal, Taint

PLUGIN_FOLDER: Final = "/var/lib/kubelet/device-plugins"
"""Where device plugins register (Kubernetes, pkg/kubelet/apis/deviceplugin/v1beta1/constants.go)."""
_PRESSURES: Final = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_NO_PROBLEM: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that are no problem."""


class RawNodeInfo(Raw):
    """Versions of a node."""

    kernel_version: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _NodeStatus(RawNodeStatus):
    node_info: RawNodeInfo = RawNodeInfo()


class RawDeviceNode(RawNode):
    """A node."""

    status: _NodeStatus = _NodeStatus()


class _Resources(Raw):
    requests: Mapping[str, str | int] = Field(default_factory=dict)
    limits: Mapping[str, str | int] = Field(default_factory=dict)


class _Variable(Raw):
    name: str
    value: str = ""


class _Container(Raw):
    name: str
    image: str = ""
    restart_policy: str = ""
    env: tuple[_Variable, ...] = ()
    resources: _Resources = _Resources()


class _Claim(Raw):
    name: str = ""


class _HostPath(Raw):
    path: str = ""


class _Volume(Raw):
    host_path: _HostPath | None = None


class _Spec(Raw):
    node_name: str = ""
    runtime_class_name: str = ""
    init_containers: tuple[_Container, ...] = ()
    containers: tuple[_Container, ...] = ()
    resource_claims: tuple[_Claim, ...] = ()
    volumes: tuple[_Volume, ...] = ()
    node_selector: Mapping[str, str] = Field(default_factory=dict)
    affinity: Mapping[str, Any] = Field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


class _PodStatus(RawPodStatus):
    message: str = ""


class RawDevicePod(Raw):
    """A pod, or the template of one."""

    metadata: RawMetadata = RawMetadata()
    spec: _Spec = _Spec()
    status: _PodStatus = _PodStatus()


class _DaemonSetSpec(Raw):
    template: RawDevicePod = RawDevicePod()


class RawDaemonSet(Raw):
    """A DaemonSet."""

    metadata: RawMetadata
    spec: _DaemonSetSpec = _DaemonSetSpec()


class RawNamed(Raw):
    """An object whose name is enough."""

    metadata: RawMetadata


def node(raw: RawDeviceNode, signals: SignalTable) -> Node:
    """A node, with what the table of signals knows. Too few allocatable devices are a link of their own."""
    status = raw.status
    capacity, allocatable = _extended(status.capacity), _extended(status.allocatable)
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    shown = signals.shown(
        (
            Condition(one.type, one.status, one.reason, one.message, seconds(one.last_transition_time))
            for one in status.conditions
        ),
        ((one.key, one.effect) for one in raw.spec.taints),
        raw.metadata.labels,
    )
    return Node(
        name=raw.metadata.name,
        ready="" if ready is None else ready.status,
        why_not_ready="" if ready is None or ready.status == "True" else _words(ready.reason, ready.message),
        cordoned=raw.spec.unschedulable,
        pressures=tuple(one.type for one in status.conditions if one.type in _PRESSURES and one.status == "True"),
        labels=raw.metadata.labels,
        taints=tuple(map(_taint, raw.spec.taints)),
        capacity=capacity,
        allocatable={name: allocatable.get(name, 0) for name in capacity},
        signals=tuple(Signal(one.answer, one.what) for one in shown),
        kernel=status.node_info.kernel_version,
        kubelet=status.node_info.kubelet_version,
        runtime=status.node_info.container_runtime_version,
    )


def pod(raw: RawDevicePod) -> Pod:
    """A pod."""
    spec, status = raw.spec, raw.status
    statuses = (*status.init_container_statuses, *status.container_statuses)
    scheduled = next((one for one in status.conditions if one.type == "PodScheduled"), None)
    return Pod(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        node=spec.node_name,
        phase=status.phase,
        reason=status.reason,
        message=status.message[-WORDS:],
        taken=bool(statuses),
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions),
        deleting=raw.metadata.deletion_timestamp is not None,
        waiting=next((found for one in statuses if (found := _waiting(one))), ""),
        initializing=_initializing(raw),
        unscheduled=""
        if scheduled is None or scheduled.status == "True"
        else _words(scheduled.reason, scheduled.message),
        labels=raw.metadata.labels,
        containers=tuple(map(_container, spec.containers)),
        requests=_requests(spec),
        claims=bool(spec.resource_claims),
        runtime_class=spec.runtime_class_name,
        devices=tuple(_devices(statuses)),
        is_plugin=any(
            one.host_path is not None and one.host_path.path.rstrip("/") == PLUGIN_FOLDER for one in spec.volumes
        ),
    )


def daemon_set(raw: RawDaemonSet) -> DaemonSet:
    """A DaemonSet."""
    template = raw.spec.template
    spec = template.spec
    return DaemonSet(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        labels=template.metadata.labels,
        containers=tuple(one.name for one in spec.containers),
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
    )


def _taint(raw: RawTaint) -> Taint:
    return Taint(raw.key, raw.value, raw.effect)


def _extended(amounts: Mapping[str, str | int]) -> dict[str, int]:
    """Extended resources: their names have a domain, and their amounts are whole numbers."""
    return {name: int(amount) for name, amount in amounts.items() if "/" in name and str(amount).isdecimal()}


def _container(raw: _Container) -> Container:
    env = {one.name: one.value for one in raw.env if one.value}
    return Container(name=raw.name, image=raw.image, env=env, requests=_of_container(raw))


def _of_container(raw: _Container) -> dict[str, int]:
    return {**_extended(raw.resources.limits), **_extended(raw.resources.requests)}


def _requests(spec: _Spec) -> dict[str, int]:
    """What the pod holds: all containers and sidecars together, or one init container if that asks for more."""
    long_lived = [*spec.containers, *(one for one in spec.init_containers if one.restart_policy == "Always")]
    total: dict[str, int] = {}
    for one in long_lived:
        for resource, amount in _of_container(one).items():
            total[resource] = total.get(resource, 0) + amount
    for one in spec.init_containers:
        for resource, amount in _of_container(one).items():
            total[resource] = max(total.get(resource, 0), amount)
    return {resource: amount for resource, amount in total.items() if amount}


def _waiting(raw: RawContainerStatus) -> str:
    """Why the container can't run; empty if it runs or is about to."""
    waiting = raw.state.waiting
    if waiting is None or waiting.reason in _NO_PROBLEM:
        return ""
    return f"container {raw.name}: {_words(waiting.reason, waiting.message)}"


def _initializing(raw: RawDevicePod) -> str:
    sidecars = {one.name for one in raw.spec.init_containers if one.restart_policy == "Always"}
    held = (one for one in raw.status.init_container_statuses if one.name not in sidecars)
    return next((one.name for one in held if one.state.terminated is None), "")


def _devices(statuses: Iterable[RawContainerStatus]) -> Iterable[Device]:
    for container in statuses:
        for allocated in container.allocated_resources_status:
            for one in allocated.resources:
                yield Device(allocated.name, one.resource_id, one.health or "Unknown", one.message.strip()[:WORDS])


def _words(reason: str, message: str) -> str:
    """The cluster's words, bounded: runtimes put the cause at the end."""
    return ": ".join(part for part in (reason, message.strip()[-WORDS:]) if part)
