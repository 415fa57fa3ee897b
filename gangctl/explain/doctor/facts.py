"""What is seen of nodes, pods and DaemonSets, as far as the chain of devices needs it. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gangctl.core.facts.world import Device, NodeAnswer


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that this user may not read."""

    right: str
    """The right that is missing: ``list daemonsets (apps) in all namespaces``."""


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class Signal(NamedTuple):
    """A condition, taint or label that the table of node signals knows."""

    answer: NodeAnswer
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node."""

    name: str
    ready: str = ""
    """Status of its condition Ready."""
    why_not_ready: str = ""
    """Reason and message of the condition Ready, unless it is True."""
    cordoned: bool = False
    pressures: tuple[str, ...] = ()
    """Conditions of Kubernetes itself that are bad: MemoryPressure and the like."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    """Of extended resources only."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    kernel: str = ""
    kubelet: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod."""

    name: str
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the pod's spec sets to a text."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Of extended resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod."""

    namespace: str
    name: str
    node: str = ""
    phase: str = ""
    reason: str = ""
    """Of a pod that has failed as a whole."""
    message: str = ""
    taken: bool = False
    """Whether its kubelet has written anything about its containers."""
    ready: bool = False
    deleting: bool = False
    waiting: str = ""
    """Why a container of it can't run, in the kubelet's words."""
    initializing: str = ""
    """The init container that has to end before the others start."""
    unscheduled: str = ""
    """Why it has no node, in the scheduler's words."""
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    """Of extended resources."""
    claims: bool = False
    """Whether it has resource claims, which are not followed here."""
    runtime_class: str = ""
    devices: tuple[Device, ...] = ()
    """Devices whose health its status tells."""
    is_plugin: bool = False
    """Whether it mounts the folder in which device plugins register with the kubelet."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Whether it holds its devices no longer."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """A DaemonSet, by the template of its pods."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """As written; only node affinity is read from it."""
    tolerations: tuple[Mapping[str, Any], ...] = ()

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


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
class Surroundings:
    """What runs on a node, and what the cluster has."""

    pods: tuple[Pod, ...] | Unread = ()
    """On this node."""
    all_pods: bool = True
    """Whether these are all pods of the node; otherwise only those that the table of vendors knows."""
    daemon_sets: tuple[DaemonSet, ...] | Unread = ()
    runtime_classes: tuple[str, ...] | Unread = ()
