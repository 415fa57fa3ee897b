"""A survey for one question, and its answer: the chain of a node or of a pod, or the fleet in pools.

The rule: nodes of one pool, by the labels of their provider, are meant to be alike. A difference is shown with its
values, and neither value counts as right or wrong, because during a rollout most nodes may have the old value.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from gangctl.annexes.doctor.components import image_of, pods_of
from gangctl.annexes.doctor.links import Inside, Link, LinkName, LinkState, NodeSurroundings, Unread, unread
from gangctl.annexes.doctor.node_chain import has_devices, node_chain, on_node
from gangctl.annexes.doctor.pod_chain import pod_chain
from gangctl.annexes.doctor.table import ComponentKind, version
from gangctl.kubernetes.objects import Node, WholePod

POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",  # GKE documentation, about node pools
    "eks.amazonaws.com/nodegroup",  # EKS documentation, managed node groups
    "karpenter.sh/nodepool",  # karpenter, pkg/apis/v1/labels.go
    "kubernetes.azure.com/agentpool",  # AKS documentation, use labels in a cluster
)
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"  # Kubernetes, well-known labels

PoolNode = tuple[Node, NodeSurroundings]


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which nodes of a pool are not alike."""

    what: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """Each value with its nodes, the most frequent one first. An empty value: those nodes don't tell."""


@dataclass(frozen=True, slots=True)
class FailedLink:
    """A link of a node that has failed."""

    node: str
    link: Link


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are meant to be alike."""

    name: str
    nodes: tuple[str, ...]
    resources: tuple[str, ...]
    differences: tuple[Difference, ...]
    findings: tuple[FailedLink, ...]

    @property
    def failed(self) -> bool:
        """Return whether a node differs, or a link of one has failed."""
        return bool(self.differences or self.findings)


def pools(members: Sequence[PoolNode]) -> tuple[Pool, ...]:
    """The pools of all nodes with devices, by name."""
    found = defaultdict[str, list[PoolNode]](list)
    for one in members:
        if has_devices(*one):
            found[_pool(one[0])].append(one)
    return tuple(_judged(name, found[name]) for name in sorted(found))


def _pool(node: Node) -> str:
    """The provider's pool and the type of the machine; without both, the resources."""
    parts = [node.labels[key] for key in POOL_LABELS if node.labels.get(key)][:1]
    parts += [node.labels[INSTANCE_TYPE]] if node.labels.get(INSTANCE_TYPE) else []
    return " ".join(parts) or ", ".join(sorted(node.capacity)) or "no resource"


def _judged(name: str, members: Sequence[PoolNode]) -> Pool:
    members = sorted(members, key=lambda one: one[0].name)
    compared = (_compare(what, read, members) for what, read in _properties(members).items())
    findings = [
        FailedLink(node.name, link)
        for node, around in members
        for link in node_chain(node, around)
        if link.state is LinkState.FAILED
    ]
    return Pool(
        name,
        tuple(node.name for node, _ in members),
        tuple(sorted({resource for node, _ in members for resource in node.capacity})),
        tuple(one for one in compared if one is not None),
        tuple(findings),
    )


def _properties(members: Sequence[PoolNode]) -> Mapping[str, Callable[[PoolNode], str]]:
    resources = sorted({resource for node, _ in members for resource in node.capacity})
    return {
        "driver": _driver,
        "device plugin": _plugin,
        "kernel": lambda one: one[0].kernel,
        "kubelet": lambda one: one[0].kubelet,
        "container runtime": lambda one: one[0].runtime,
        **{resource: _amount(resource) for resource in resources},
    }


def _driver(member: PoolNode) -> str:
    node, around = member
    found = {one.title: version(one.driver, node.labels) for one in on_node(node, around)}
    return ", ".join(value for value in found.values() if value)


def _plugin(member: PoolNode) -> str:
    """The images of the device plugins on a node."""
    node, around = member
    if isinstance(around.pods, Unread):
        return ""
    parts = [one.component(ComponentKind.DEVICE_PLUGIN) for one in on_node(node, around)]
    images = {image_of(part, pod) for part in parts if part is not None for pod in pods_of(part, around.pods)}
    return ", ".join(sorted(images))


def _amount(resource: str) -> Callable[[PoolNode], str]:
    return lambda one: str(one[0].capacity.get(resource, 0))


def _compare(what: str, read: Callable[[PoolNode], str], members: Sequence[PoolNode]) -> Difference | None:
    values = {one[0].name: read(one) for one in members}
    counts = Counter(values.values())
    if len(counts) < 2:  # noqa: PLR2004 - all are alike
        return None
    order = sorted(counts, key=lambda value: (-counts[value], value))
    return Difference(what, tuple((one, tuple(name for name in values if values[name] == one)) for one in order))


_OF_NODE: Final = (LinkName.NODE, LinkName.SIGNALS, LinkName.CAPACITY, LinkName.ALLOCATABLE)
"""Links that nothing but the node tells."""


@dataclass(frozen=True)
class NodeSurvey:
    """One node."""

    name: str
    node: Node | Unread
    around: NodeSurroundings

    @cached_property
    def links(self) -> tuple[Link, ...]:
        if isinstance(self.node, Unread):
            return tuple(unread(name, self.node) for name in _OF_NODE)
        return node_chain(self.node, self.around)


@dataclass(frozen=True)
class PodSurvey:
    """One pod, and its node if it has one."""

    pod: WholePod
    node: NodeSurvey | None
    inside: Inside | None
    """None if no program was to look into its container."""

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The chain of the pod, without that of its node."""
        around = NodeSurroundings() if self.node is None else self.node.around
        node = None if self.node is None or isinstance(self.node.node, Unread) else self.node.node
        return pod_chain(self.pod, node, around, self.inside)


@dataclass(frozen=True)
class FleetSurvey:
    """All nodes."""

    members: tuple[PoolNode, ...]
    unread: tuple[Unread, ...]
    """What this user may not read."""

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The nodes with devices, in pools."""
        return pools(self.members)

    @cached_property
    def without_devices(self) -> int:
        """Number of the other nodes."""
        return sum(not has_devices(*one) for one in self.members)


Survey = NodeSurvey | PodSurvey | FleetSurvey
