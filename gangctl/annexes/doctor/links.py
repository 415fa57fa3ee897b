"""The links of the chain of devices with their states, and the facts beside nodes and pods that they rest on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gangctl.kubernetes.objects import WholePod


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that this user may not read."""

    right: str
    """The right that is missing: ``list daemonsets (apps) in all namespaces``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a program in a container has seen."""

    container: str
    files: tuple[str, ...] = ()
    """Device files of the vendors that the table knows."""
    env: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    """Why it could not look; the rest is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSurroundings:
    """What runs on a node, and what the cluster has."""

    pods: tuple[WholePod, ...] | Unread = ()
    """On this node."""
    all_pods: bool = True
    """Whether these are all pods of the node; otherwise only those that the table of vendors knows."""
    daemon_sets: tuple[WholePod, ...] | Unread = ()
    runtime_classes: tuple[str, ...] | Unread = ()


class LinkState(StrEnum):
    """How a link is, the worst first."""

    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """It could not be looked at, or what is seen does not tell."""
    OK = "Ok"
    ABSENT = "Absent"
    """The cluster, node or pod doesn't have it."""


class LinkName(StrEnum):
    """The links, in the order of the chain."""

    SCHEDULING = "Scheduling"
    REQUESTS = "Requests"
    ADMISSION = "Admission"
    START = "Start"
    POD_RUNTIME_CLASS = "PodRuntimeClass"
    HEALTH = "Health"
    CUDA = "Cuda"
    INSIDE = "Inside"
    NODE = "Node"
    SIGNALS = "Signals"
    DRIVER = "Driver"
    CONTAINER_TOOLKIT = "ContainerToolkit"
    RUNTIME_CLASS = "RuntimeClass"
    DEVICE_PLUGIN = "DevicePlugin"
    CAPACITY = "Capacity"
    ALLOCATABLE = "Allocatable"
    ALLOCATIONS = "Allocations"
    FEATURE_LABELS = "FeatureLabels"
    PARTITIONS = "Partitions"
    EXPORTER = "Exporter"
    VALIDATOR = "Validator"


@dataclass(frozen=True, slots=True)
class Link:
    """One link: what was seen of it, and what to do."""

    name: LinkName
    state: LinkState
    seen: str
    todo: str = ""
    about: str = ""
    """The vendor in words, or the resource if the table doesn't know it; empty if the link is no vendor's."""
    resource: str = ""


def unread(name: LinkName, missing: Unread, about: str = "", resource: str = "") -> Link:
    """A link that this user may not look at."""
    return Link(name, LinkState.UNKNOWN, f"you lack the right to {missing.right}", about=about, resource=resource)


def worst(links: Iterable[Link]) -> LinkState:
    """The worst state among the links; Absent if there is none."""
    order = list(LinkState)
    return min((one.state for one in links), key=order.index, default=LinkState.ABSENT)
