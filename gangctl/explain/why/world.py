"""What `gangctl why` looks at beside the gang itself: nodes, the pods on them, volume claims, and missing rights.

The values have what the scheduler decides by, and nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from gangctl.api.snapshot import MemberSnapshot
from gangctl.core.facts.world import Pod

Amounts = Mapping[str, Decimal]
"""Resource -> how much of it."""


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As kube-scheduler prints it, and how `kubectl taint` takes it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class NeighbourTerm:
    """A required term of pod affinity or anti-affinity."""

    selector: Mapping[str, Any] | None
    """Its label selector; None = it has none, and so matches no pod."""
    topology_key: str
    namespaces: frozenset[str] | None
    """None = of all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod as the scheduler sees it."""

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    """Empty while it has none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    """Kind of its controller: Node for a static pod, DaemonSet, ReplicaSet ..."""
    priority: int = 0
    requests: Amounts = field(default_factory=dict)
    """What it needs of a node, containers and overhead together; ``pods`` is 1."""
    ports: frozenset[tuple[str, int]] = frozenset()
    """(protocol, port) of the host."""
    node_selector: Mapping[str, Any] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """As written; only node affinity is read from it."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    near: tuple[NeighbourTerm, ...] = ()
    """Required pod affinity."""
    apart: tuple[NeighbourTerm, ...] = ()
    """Required pod anti-affinity."""
    claims: tuple[str, ...] = ()
    """Names of its PersistentVolumeClaims."""
    gates: tuple[str, ...] = ()
    """Scheduling gates."""
    scheduler: str = ""
    said: str = ""
    """What its condition PodScheduled says while it is False; empty if no scheduler has looked at it."""
    created_at: float = 0.0
    deleting: bool = False
    unread: tuple[str, ...] = ()
    """Fields that the scheduler decides by, and that are not looked at here."""

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node as the scheduler sees it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[NodeTaint, ...] = ()
    cordoned: bool = False
    allocatable: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim of the gang's pods."""

    name: str
    exists: bool = True
    deleting: bool = False
    """It stays as long as a pod uses it, and no new pod gets a node meanwhile."""
    bound: bool = True
    storage_class: str = ""
    waits_for_pod: bool | None = None
    """Whether its volume is made only for a pod that has a node (WaitForFirstConsumer); None if that isn't known."""
    volume: str = ""
    nodes: tuple[Mapping[str, Any], ...] | None = None
    """The terms of the volume's node affinity; None = any node, or it isn't known."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes, and what is on them."""

    nodes: tuple[SeenNode, ...]
    pods: Mapping[str, tuple[SeenPod, ...]]
    """Node -> the pods on it that have not ended."""
    claims: Mapping[str, Claim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that the user lacks, and what is not answered without it."""

    verb: str
    resource: str
    """With its group, as `kubectl auth can-i` takes it: nodes, storageclasses.storage.k8s.io."""
    namespace: str
    """Empty: in the whole cluster."""
    lacking: str
    """What can't be told without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What was read for one gang."""

    pods: tuple[Pod, ...] = ()
    """All of the gang."""
    pods_known: bool = True
    """False if they can't be read."""
    waiting: tuple[SeenPod, ...] = ()
    """Those of the gang that have no node and have not ended."""
    cluster: Cluster | None = None
    """None: no pod waits for a node, there are none (this machine), or they can't be read."""
    members: Mapping[str, MemberSnapshot] = field(default_factory=dict)
    """Member -> what its controller heard of it. Empty where only the controller knows, as on a cluster."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """Pod -> the newest warning of the cluster about it, if it has a node and does not start."""
    missing: tuple[MissingRight, ...] = ()
    is_led: bool = True
    """False if it is known that no controller answers for the gang."""
    interrupted_at: float | None = None
    """When `gangctl run` was ended, and every process of the gang with it; None if it wasn't."""
    unstored: str = ""
    """Why its controller can't store the status; empty if it can, or if that isn't known."""
