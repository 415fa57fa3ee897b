"""Pods, nodes and what belongs to them, as the scheduler, kubelets and device plugins see them, in plain values.

The controller, ``gangctl why`` and ``gangctl doctor`` read the same nodes. Of pods, the controller keeps only what it
decides by (``gangctl.core.facts.world.Pod``); why and doctor look at whole pods.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from gangctl.core.facts.node_affinity import REQUIRED, Taint, quantity
from gangctl.core.facts.world import Device
from gangctl.kubernetes.containers import STARTING_REASONS, WORDS, epoch_time
from gangctl.kubernetes.schema import (
    RawContainerStatus,
    RawDaemonSet,
    RawNode,
    RawResources,
    RawWholeContainer,
    RawWholePod,
    RawWholePodSpec,
)
from gangctl.kubernetes.signals import NodeCondition, ShownSignal, SignalTable

Amounts = Mapping[str, Decimal]
"""Resource -> how much of it."""

PLUGIN_FOLDER: Final = "/var/lib/kubelet/device-plugins"
"""Where device plugins register (Kubernetes, pkg/kubelet/apis/deviceplugin/v1beta1/constants.go)."""
RESOURCE_CLAIMS: Final = "resourceClaims"
RESTARTS_ALL: Final = "RestartAllContainersOnContainerExits"
"""The feature that a node declares if it can restart all containers of a pod at once (KEP-5532)."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint with which an administrator marks a node as down, so that its pods no longer run."""
SUSPECTED: Final = "GangctlSuspected"
"""The condition that gangctl gives nodes which cause faults, if it is asked to."""
ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""The phases of a pod that needs nothing of its node any more."""
_PRESSURES: Final = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. The fields that no decision of the controller needs are not compared: their change must wake nothing."""

    name: str
    uid: str = ""
    ready: str = ""
    """Status of its condition Ready."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    restarts_all: bool = False
    """Whether it can restart all containers of a pod at once."""
    signals: tuple[ShownSignal, ...] = ()
    """What the table of node signals knows of it, the strongest answer first."""
    capacity: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Of extended resources only."""
    allocatable: Amounts = field(default_factory=dict, compare=False)
    why_not_ready: str = field(default="", compare=False)
    """Reason and message of the condition Ready, unless it is True."""
    pressures: tuple[str, ...] = field(default=(), compare=False)
    """Conditions of Kubernetes itself that are bad: MemoryPressure and the like."""
    kernel: str = field(default="", compare=False)
    kubelet: str = field(default="", compare=False)
    runtime: str = field(default="", compare=False)
    image: str = field(default="", compare=False)
    """Of its operating system."""
    created_at: float = field(default=0.0, compare=False)
    suspected: bool = field(default=False, compare=False)
    """Whether gangctl's own condition says that it causes faults."""
    resource_version: str = field(default="", compare=False)

    @property
    def is_lost(self) -> bool:
        """Return whether its kubelet is silent, or an administrator has marked it as down.

        A node that is only not ready still answers.
        """
        return self.ready == "Unknown" or any(taint.key == OUT_OF_SERVICE for taint in self.taints)

    @property
    def is_schedulable(self) -> bool:
        """Return whether it takes pods."""
        return not self.cordoned and self.ready == "True"


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A required term of pod affinity or anti-affinity."""

    selector: Mapping[str, Any] | None
    """Its label selector; None = it has none, and so matches no pod."""
    topology_key: str
    namespaces: frozenset[str] | None
    """None = of all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContainer:
    """A container of a pod."""

    name: str
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the pod's spec sets to a text."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Extended resources that it requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePod:
    """A pod with all that a scheduler, a kubelet and device plugins go by."""

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    """Empty while it has none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    """Kind of its controller: Node for a static pod, DaemonSet, ReplicaSet ..."""
    created_at: float = 0.0
    deleting: bool = False
    priority: int = 0
    requests: Amounts = field(default_factory=dict)
    """What it needs of a node, containers and overhead together; ``pods`` is 1."""
    ports: frozenset[tuple[str, int]] = frozenset()
    """(protocol, port) of the host."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """As written; only node affinity is read from it."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    near: tuple[PodAffinityTerm, ...] = ()
    """Required pod affinity."""
    apart: tuple[PodAffinityTerm, ...] = ()
    """Required pod anti-affinity."""
    claims: tuple[str, ...] = ()
    """Names of its PersistentVolumeClaims."""
    gates: tuple[str, ...] = ()
    """Scheduling gates."""
    scheduler: str = ""
    unscheduled: str = ""
    """Why it has no node, in the scheduler's words; empty if it has one, or no scheduler has looked at it."""
    unread: tuple[str, ...] = ()
    """Fields that the scheduler decides by, and that are not looked at here."""
    runtime_class: str = ""
    containers: tuple[PodContainer, ...] = ()
    has_resource_claims: bool = False
    is_plugin: bool = False
    """Whether it mounts the folder in which device plugins register with the kubelet."""
    phase: str = ""
    reason: str = ""
    """Of a pod that has failed as a whole."""
    message: str = ""
    taken: bool = False
    """Whether its kubelet has written anything about its containers."""
    ready: bool = False
    waiting: str = ""
    """Why a container of it can't run, in the kubelet's words."""
    initializing: str = ""
    """The init container that has to end before the others start."""
    devices: tuple[Device, ...] = ()
    """Devices whose health its status has."""

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Return whether it needs nothing of its node any more."""
        return self.phase in ENDED_PHASES

    @property
    def device_requests(self) -> Mapping[str, int]:
        """Extended resources that it requests."""
        return {name: int(amount) for name, amount in self.requests.items() if "/" in name}


def read_node(signals: SignalTable, raw: RawNode) -> Node:
    status, taints = raw.status, tuple(Taint(one.key, one.value, one.effect) for one in raw.spec.taints)
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    capacity = _extended(status.capacity)
    return Node(
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        ready="" if ready is None else ready.status,
        cordoned=raw.spec.unschedulable,
        labels=raw.metadata.labels,
        taints=taints,
        restarts_all=RESTARTS_ALL in status.declared_features,
        signals=signals.shown(
            (
                NodeCondition(one.type, one.status, one.reason, one.message, epoch_time(one.last_transition_time))
                for one in status.conditions
            ),
            ((one.key, one.effect) for one in taints),
            raw.metadata.labels,
            (
                (name, total, int(left))
                for name, total in capacity.items()
                if (left := str(status.allocatable.get(name, "0"))).isdecimal()
            ),
        ),
        capacity=capacity,
        allocatable=_amounts(status.allocatable),
        why_not_ready="" if ready is None or ready.status == "True" else _words(ready.reason, ready.message),
        pressures=tuple(one.type for one in status.conditions if one.type in _PRESSURES and one.status == "True"),
        kernel=status.node_info.kernel_version,
        kubelet=status.node_info.kubelet_version,
        runtime=status.node_info.container_runtime_version,
        image=status.node_info.os_image,
        created_at=epoch_time(raw.metadata.creation_timestamp),
        suspected=any(one.type == SUSPECTED and one.status == "True" for one in status.conditions),
        resource_version=raw.metadata.resource_version,
    )


def read_pod(raw: RawWholePod) -> WholePod:
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    statuses = (*status.init_container_statuses, *status.container_statuses)
    scheduled = next((one for one in status.conditions if one.type == "PodScheduled" and one.status == "False"), None)
    return WholePod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        node=spec.node_name,
        labels=metadata.labels,
        owner=next((one.kind for one in metadata.owner_references if one.controller), ""),
        created_at=epoch_time(metadata.creation_timestamp),
        deleting=metadata.deletion_timestamp is not None,
        priority=spec.priority,
        requests=requests(spec),
        ports=frozenset(
            (port.get("protocol") or "TCP", port["hostPort"])
            for one in (*spec.containers, *spec.init_containers)
            for port in one.ports
            if port.get("hostPort")
        ),
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        near=tuple(_terms(spec.affinity.get("podAffinity"), metadata.namespace)),
        apart=tuple(_terms(spec.affinity.get("podAntiAffinity"), metadata.namespace)),
        claims=tuple(_claims(spec, metadata.name)),
        gates=tuple(one["name"] for one in spec.scheduling_gates),
        scheduler=spec.scheduler_name,
        unscheduled="" if scheduled is None else scheduled.message or scheduled.reason,
        unread=tuple(_unread(spec)),
        runtime_class=spec.runtime_class_name,
        containers=tuple(map(_container, spec.containers)),
        has_resource_claims=bool(spec.resource_claims),
        is_plugin=any((one.get("hostPath") or {}).get("path", "").rstrip("/") == PLUGIN_FOLDER for one in spec.volumes),
        phase=status.phase,
        reason=status.reason,
        message=status.message[-WORDS:],
        taken=bool(statuses),
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions),
        waiting=next((found for one in statuses if (found := _waiting(one))), ""),
        initializing=_initializing(raw),
        devices=read_devices(statuses),
    )


def read_daemon_set(raw: RawDaemonSet) -> WholePod:
    """Read a DaemonSet as its template, a pod without a node, with the DaemonSet's own name and namespace."""
    return replace(read_pod(raw.spec.template), namespace=raw.metadata.namespace, name=raw.metadata.name)


def read_devices(statuses: Iterable[RawContainerStatus]) -> tuple[Device, ...]:
    """Read the devices of all containers, in one order: a kubelet lists those of claims in another one each time."""
    found = {
        (allocated.name, one.resource_id): Device(
            allocated.name, one.resource_id, one.health or "Unknown", one.message.strip()[:WORDS]
        )
        for container in statuses
        for allocated in container.allocated_resources_status
        for one in allocated.resources
    }
    return tuple(found[key] for key in sorted(found))


def requests(spec: RawWholePodSpec) -> Amounts:
    """Count what a pod needs of a node, as kube-scheduler does (component-helpers, resource.PodRequests).

    The sum of the containers and sidecars, or an init container with the sidecars before it if that is more; and the
    pod's overhead.
    """
    total: dict[str, Decimal] = defaultdict(Decimal)
    for one in spec.containers:
        _add(total, _requested(one.resources))
    sidecars: dict[str, Decimal] = defaultdict(Decimal)
    most: dict[str, Decimal] = {}
    for one in spec.init_containers:
        asked = _requested(one.resources)
        if one.restart_policy == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = sidecars
        else:
            asked = {name: asked.get(name, Decimal(0)) + sidecars.get(name, 0) for name in {*asked, *sidecars}}
        most.update({name: max(amount, most.get(name, amount)) for name, amount in asked.items()})
    for name, amount in most.items():
        total[name] = max(total[name], amount)
    total.update({name: amount for name, amount in _requested(spec.resources).items() if _is_of_pods(name)})
    _add(total, _amounts(spec.overhead))
    return {**{name: amount for name, amount in total.items() if amount}, "pods": Decimal(1)}


def _is_of_pods(resource: str) -> bool:
    """Return whether ``spec.resources`` of a pod stands in for what its containers request of it."""
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def _requested(resources: RawResources) -> Amounts:
    """Return the requests; a resource that has only a limit is requested like that."""
    return {**_amounts(resources.limits), **_amounts(resources.requests)}


def _add(total: dict[str, Decimal], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] += amount


def _amounts(raw: Mapping[str, str | int]) -> dict[str, Decimal]:
    found = ((name, quantity(amount)) for name, amount in raw.items())
    return {name: amount for name, amount in found if amount is not None}


def _extended(amounts: Mapping[str, str | int]) -> dict[str, int]:
    """Return the extended resources: their names have a domain, and their amounts are whole numbers."""
    return {name: int(amount) for name, amount in _amounts(amounts).items() if "/" in name}


def _container(raw: RawWholeContainer) -> PodContainer:
    devices = _extended({**raw.resources.limits, **raw.resources.requests})
    env = {one["name"]: one["value"] for one in raw.env if one.get("value")}
    return PodContainer(name=raw.name, image=raw.image, env=env, devices=devices)


def _terms(raw: Mapping[str, Any] | None, namespace: str) -> Iterator[PodAffinityTerm]:
    for one in (raw or {}).get(REQUIRED) or ():
        everywhere = one.get("namespaceSelector") is not None
        names = frozenset(one.get("namespaces") or (namespace,))
        yield PodAffinityTerm(one.get("labelSelector"), one.get("topologyKey") or "", None if everywhere else names)


def _claims(spec: RawWholePodSpec, pod: str) -> Iterator[str]:
    for one in spec.volumes:
        if "persistentVolumeClaim" in one:
            yield one["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in one:
            yield f"{pod}-{one['name']}"


def _unread(spec: RawWholePodSpec) -> Iterator[str]:
    if any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spec.topology_spread_constraints):
        yield "topologySpreadConstraints"
    if spec.resource_claims:
        yield RESOURCE_CLAIMS


def _waiting(raw: RawContainerStatus) -> str:
    """Return why the container can't run; empty if it runs or is about to."""
    waiting = raw.state.waiting
    if waiting is None or waiting.reason in STARTING_REASONS:
        return ""
    return f"container {raw.name}: {_words(waiting.reason, waiting.message)}"


def _initializing(raw: RawWholePod) -> str:
    sidecars = {one.name for one in raw.spec.init_containers if one.restart_policy == "Always"}
    held = (one for one in raw.status.init_container_statuses if one.name not in sidecars)
    return next((one.name for one in held if one.state.terminated is None), "")


def _words(reason: str, message: str) -> str:
    """Return the cluster's words, bounded: runtimes put the cause at the end."""
    return ": ".join(part for part in (reason, message.strip()[-WORDS:]) if part)
