"""The fields of Kubernetes objects that gangctl decodes, under the names of the Kubernetes API.

A controller decodes the pods of its gangs all the time, so :class:`RawPod` has only what it needs. :class:`RawWholePod`
has all that a scheduler, a kubelet and device plugins go by.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Raw(BaseModel):
    """A part of a Kubernetes object: fields that aren't declared are skipped."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,  # A part is built with the whole, where that is decoded: not in each command.
    )


class RawOwner(Raw):
    """An owner reference."""

    kind: str = ""
    uid: str = ""
    controller: bool = False


class RawMetadata(Raw):
    """Metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[RawOwner, ...] = ()


class RawPodMetadata(RawMetadata):
    """Metadata of a pod."""

    annotations: dict[str, str] = Field(default_factory=dict)


class RawCondition(Raw):
    """A condition of a pod or a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class RawRunning(Raw):
    """State of a running container."""

    started_at: datetime | None = None


class RawTerminated(Raw):
    """State of a terminated container."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class RawWaiting(Raw):
    """State of a waiting container."""

    reason: str = ""
    message: str = ""


class RawState(Raw):
    """State of a container: one of the three."""

    running: RawRunning | None = None
    terminated: RawTerminated | None = None
    waiting: RawWaiting | None = None


class RawHealth(Raw):
    """Health of an allocated device."""

    resource_id: str = Field("", alias="resourceID")
    health: str = "Unknown"
    message: str = ""


class RawAllocated(Raw):
    """Devices of one resource, or of one request of a resource claim, that are allocated to a container."""

    name: str = ""
    resources: tuple[RawHealth, ...] = ()


class RawContainerStatus(Raw):
    """Status of a container."""

    name: str
    image_id: str = Field(default="", alias="imageID")
    restart_count: int = 0
    started: bool | None = None
    state: RawState = RawState()
    last_state: RawState = RawState()
    allocated_resources_status: tuple[RawAllocated, ...] = ()


class RawPodStatus(Raw):
    """Status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[RawCondition, ...] = ()
    init_container_statuses: tuple[RawContainerStatus, ...] = ()
    container_statuses: tuple[RawContainerStatus, ...] = ()


class RawContainer(Raw):
    """A container in a pod's spec."""

    name: str
    restart_policy: str = ""
    command: tuple[str, ...] = ()


class RawPodSpec(Raw):
    """Spec of a pod."""

    node_name: str = ""
    init_containers: tuple[RawContainer, ...] = ()
    containers: tuple[RawContainer, ...] = ()


class RawPod(Raw):
    """A pod."""

    metadata: RawPodMetadata
    spec: RawPodSpec = RawPodSpec()
    status: RawPodStatus = RawPodStatus()


class RawResources(Raw):
    """Resources of a container, or of a pod as a whole."""

    requests: Mapping[str, str | int] = Field(default_factory=dict)
    limits: Mapping[str, str | int] = Field(default_factory=dict)


class RawWholeContainer(RawContainer):
    """A container with what it asks for."""

    image: str = ""
    env: tuple[Mapping[str, Any], ...] = ()
    ports: tuple[Mapping[str, Any], ...] = ()
    resources: RawResources = RawResources()


class RawWholePodSpec(RawPodSpec):
    """All of a pod's spec that a scheduler, a kubelet and device plugins go by."""

    priority: int = 0
    init_containers: tuple[RawWholeContainer, ...] = ()
    containers: tuple[RawWholeContainer, ...] = ()
    resources: RawResources = RawResources()
    overhead: Mapping[str, str | int] = Field(default_factory=dict)
    node_selector: Mapping[str, str] = Field(default_factory=dict)
    affinity: Mapping[str, Any] = Field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    scheduling_gates: tuple[Mapping[str, Any], ...] = ()
    scheduler_name: str = ""
    topology_spread_constraints: tuple[Mapping[str, Any], ...] = ()
    resource_claims: tuple[Mapping[str, Any], ...] = ()
    runtime_class_name: str = ""


class RawWholePod(RawPod):
    """A pod, or the template of a pod."""

    metadata: RawPodMetadata = RawPodMetadata()
    spec: RawWholePodSpec = RawWholePodSpec()


class RawDaemonSetSpec(Raw):
    """Spec of a DaemonSet."""

    template: RawWholePod = RawWholePod()


class RawDaemonSet(Raw):
    """A DaemonSet."""

    metadata: RawMetadata
    spec: RawDaemonSetSpec = RawDaemonSetSpec()


class RawNamed(Raw):
    """An object whose name is enough."""

    metadata: RawMetadata


class RawTaint(Raw):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class RawNodeSpec(Raw):
    """Spec of a node."""

    unschedulable: bool = False
    taints: tuple[RawTaint, ...] = ()


class RawNodeInfo(Raw):
    """Versions of a node."""

    kernel_version: str = ""
    kubelet_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class RawNodeStatus(Raw):
    """Status of a node."""

    capacity: Mapping[str, str | int] = Field(default_factory=dict)
    allocatable: Mapping[str, str | int] = Field(default_factory=dict)
    conditions: tuple[RawCondition, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: RawNodeInfo = RawNodeInfo()


class RawNode(Raw):
    """A node."""

    metadata: RawMetadata
    spec: RawNodeSpec = RawNodeSpec()
    status: RawNodeStatus = RawNodeStatus()
