"""What `gangctl why` looks at beside the gang itself: nodes, the pods on them, volume claims, and missing rights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangctl.api.status import MemberSnapshot
from gangctl.core.facts.world import Pod
from gangctl.kubernetes.objects import Node, WholePod


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


def read_claim(
    name: str,
    raw: Mapping[str, Any] | None,
    volume: Mapping[str, Any] | None = None,
    storage_class: Mapping[str, Any] | None = None,
) -> Claim:
    """Read a claim. ``raw``: None if there is none; ``volume``, ``storage_class``: None if that isn't known."""
    if raw is None:
        return Claim(name=name, exists=False, bound=False)
    spec = raw.get("spec") or {}
    affinity = ((volume or {}).get("spec") or {}).get("nodeAffinity") or {}
    required = affinity.get("required") or {}
    waits: bool | None = False
    if spec.get("storageClassName"):
        waits = None if storage_class is None else storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return Claim(
        name=name,
        deleting="deletionTimestamp" in (raw.get("metadata") or {}),
        bound=(raw.get("status") or {}).get("phase") == "Bound",
        storage_class=spec.get("storageClassName") or "",
        waits_for_pod=waits,
        volume=spec.get("volumeName") or "",
        nodes=tuple(required["nodeSelectorTerms"]) if "nodeSelectorTerms" in required else None,
    )


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes, and what is on them."""

    nodes: tuple[Node, ...]
    pods: Mapping[str, tuple[WholePod, ...]]
    """Node -> the pods on it that have not ended."""
    claims: Mapping[str, Claim] = field(default_factory=dict)
    tainted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node -> its tainted devices of resource claims, in words; "" has those that aren't of one node."""


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that the user lacks, and what is not answered without it."""

    verb: str
    resource: str
    """With its group, as `kubectl auth can-i` takes it: nodes, storageclasses.storage.k8s.io."""
    namespace: str
    """Empty: in the whole cluster."""
    lacking: str
    """What stays unknown without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSurroundings:
    """The surroundings of one gang, as they were read."""

    pods: tuple[Pod, ...] = ()
    pods_known: bool = True
    """False if they can't be read."""
    waiting: tuple[WholePod, ...] = ()
    """Those of the gang that have no node and have not ended."""
    cluster: Inventory | None = None
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
