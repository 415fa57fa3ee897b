"""The walk: what each node answers to a pod that waits, how many of the pods that wait have room, and what could move.

The rule: the pods are tried one after the other, as the scheduler does, and each that has room takes it from the next.

Which pods would have to move so that a pod has room on one node is found greedily: of each node that would do, the
fewest pods, the largest first, and of those that suffice alone the smallest. Each has to fit on another node. Of all
nodes, it is the node from which the fewest have to move. What must not be named: a pod that can't move (static, of a
DaemonSet), one of the gang itself, or of a higher priority.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from gangctl.explain.why.filters import Filter, FilterRefusal, Neighbours, free_resources, neighbours, refusals
from gangctl.explain.why.world import Inventory
from gangctl.kubernetes.objects import Node, WholePod

NODE_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""The resources that every node has: a scarce resource of another kind comes first."""


@dataclass(frozen=True, slots=True)
class NodeFit:
    """What one node answers to one pod."""

    node: Node
    refusals: tuple[FilterRefusal, ...]
    """Of all filters, in the scheduler's order; empty if the pod fits now."""

    @property
    def first(self) -> tuple[FilterRefusal, ...]:
        """Return what the scheduler says: the refusals of the first filter that refuses."""
        return tuple(one for one in self.refusals if one.filter is self.refusals[0].filter)

    @property
    def is_open(self) -> bool:
        """Return whether the node would do if it had enough left."""
        return all(one.filter is Filter.NODE_RESOURCES_FIT for one in self.refusals)


@dataclass(frozen=True, slots=True)
class Packing:
    """The pods that wait, as far as there is room for them."""

    placed: tuple[tuple[WholePod, str], ...]
    """Each with its node."""
    left: tuple[WholePod, ...]
    after: Inventory
    """The cluster with those that are placed."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much there is of a resource on the nodes that would do."""

    resource: str
    needs: Decimal
    """Of one pod."""
    free: Decimal
    """On all of these nodes together."""
    most: Decimal
    """Free on the node that has most left."""
    of: Decimal
    """Allocatable on all of them."""
    largest: Decimal
    """Allocatable on the node that has most."""


def walk(pod: WholePod, cluster: Inventory) -> tuple[NodeFit, ...]:
    """Return what each node answers, in the order of the nodes' names."""
    around = neighbours(pod, cluster)
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    return tuple(NodeFit(node, tuple(refusals(pod, node, cluster, around))) for node in nodes)


def first_fit(pod: WholePod, cluster: Inventory, nodes: Sequence[Node]) -> str | None:
    """The first of these nodes on which the pod fits; None if it fits on none."""
    around = neighbours(pod, cluster)
    return next((node.name for node in nodes if not refusals(pod, node, cluster, around)), None)


def scheduler_message(answers: Sequence[NodeFit]) -> str:
    """The answers as kube-scheduler counts them: ``0/3 nodes are available: 2 Insufficient cpu, ...``."""
    fits = sum(not one.refusals for one in answers)
    counts = Counter(refusal.said for one in answers if one.refusals for refusal in one.first)
    reasons = ", ".join(sorted(f"{number} {said}" for said, number in counts.items()))
    text = f"{fits}/{len(answers)} nodes are available"
    return f"{text}: {reasons}" if reasons else text


def pack(pods: Sequence[WholePod], cluster: Inventory) -> Packing:
    """Place the pods one after the other: each on the node that has least left and still has room."""
    placed: list[tuple[WholePod, str]] = []
    left: list[WholePod] = []
    before: WholePod | None = None
    fitting: list[Node] = []
    around = Neighbours(frozenset(), ())
    for pod in pods:
        asked = _asks_for(pod)
        if asked != before or pod.near or pod.apart:
            around = neighbours(pod, cluster)
            fitting = [node for node in cluster.nodes if not refusals(pod, node, cluster, around)]
        elif placed and fitting:  # Only the node that got the pod before has changed.
            changed = next(node for node in fitting if node.name == placed[-1][1])
            if refusals(pod, changed, cluster, around):
                fitting.remove(changed)
        before = asked
        if not fitting:
            left.append(pod)
            continue
        scarce = next((name for name in pod.requests if name not in NODE_RESOURCES), "cpu")
        there = cluster.pods
        node = min(fitting, key=lambda one: (free_resources(one, there.get(one.name, ()), scarce), one.name))
        placed.append((pod, node.name))
        cluster = with_pod(cluster, pod, node.name)
    return Packing(tuple(placed), tuple(left), cluster)


def _asks_for(pod: WholePod) -> WholePod:
    return replace(pod, name="", uid="", created_at=0.0, unscheduled="")


def with_pod(cluster: Inventory, pod: WholePod, node: str) -> Inventory:
    there = (*cluster.pods.get(node, ()), replace(pod, node=node))
    return replace(cluster, pods={**cluster.pods, node: there})


def without_pod(cluster: Inventory, pod: WholePod) -> Inventory:
    """The cluster without the pod, which has a node."""
    there = tuple(one for one in cluster.pods.get(pod.node, ()) if one.full_name != pod.full_name)
    return replace(cluster, pods={**cluster.pods, pod.node: there})


def rooms(pod: WholePod, answers: Sequence[NodeFit], cluster: Inventory) -> tuple[Room, ...]:
    """The resources of which at least one of the open nodes has too little for the pod, devices first.

    ``cluster``: as the answers have it.
    """
    nodes = [one.node for one in answers if one.is_open]
    short = {
        refusal.shortage.resource
        for one in answers
        if one.is_open
        for refusal in one.refusals
        if refusal.shortage is not None
    }
    found = []
    for resource in sorted(short, key=lambda name: (name in NODE_RESOURCES, name)):
        left = [max(Decimal(0), free_resources(node, cluster.pods.get(node.name, ()), resource)) for node in nodes]
        of = [node.allocatable.get(resource, Decimal(0)) for node in nodes]
        found.append(
            Room(resource, pod.requests[resource], sum(left, Decimal(0)), max(left), sum(of, Decimal(0)), max(of))
        )
    return tuple(found)


MOST_MOVES: Final = 8
"""More moves than this aren't worth advising."""
MOST_NODES: Final = 20
"""So many nodes are tried, those that lack least first: the answer has to come within seconds."""
MOST_TRIES: Final = 20
"""So many pods of a node are tried, of those that ask for the same only the first if it fits nowhere else."""
_Free = Mapping[str, Mapping[str, Decimal]]
"""Node -> resource -> what is free."""
_STAY: Final = frozenset({"Node", "DaemonSet"})


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that would have to move."""

    pod: str
    """NAMESPACE/NAME."""
    owner: str
    """Kind of its controller; empty if it has none, and would not come back by itself."""
    to: str
    """A node that has room for it."""
    frees: Decimal


@dataclass(frozen=True, slots=True)
class Moves:
    """What makes room on one node."""

    node: str
    resource: str
    moves: tuple[Move, ...]


def moves(pod: WholePod, answers: Sequence[NodeFit], cluster: Inventory, own: frozenset[str]) -> Moves | None:
    """Find the fewest pods that would have to move; None if moving pods doesn't help.

    Args:
        pod: The pod that waits.
        answers: What the nodes answer to it.
        cluster: The nodes and the pods on them.
        own: UIDs of the gang's pods, which stay.
    """
    lacking = sorted((one for one in answers if one.refusals and one.is_open), key=_lack)
    free = {
        node.name: {name: free_resources(node, cluster.pods.get(node.name, ()), name) for name in node.allocatable}
        for node in cluster.nodes
    }
    tried = (_on(pod, one, cluster, own, free) for one in lacking[:MOST_NODES])
    found = [one for one in tried if one is not None]
    return min(found, key=lambda one: (len(one.moves), sum(move.frees for move in one.moves), one.node), default=None)


def _lack(answer: NodeFit) -> Decimal:
    return max(one.shortage.needs - one.shortage.free for one in answer.refusals if one.shortage is not None)


def _on(pod: WholePod, answer: NodeFit, cluster: Inventory, own: frozenset[str], free: _Free) -> Moves | None:
    """The moves that make room on one node. ``free``: before any move, which only takes from other nodes."""
    node, made, stuck = answer.node, list[Move](), list[WholePod]()
    first = next(one.shortage.resource for one in answer.refusals if one.shortage is not None)
    short = _short(pod, node, cluster)
    for _ in range(MOST_TRIES):
        if not short or len(made) == MOST_MOVES:
            break
        resource, lack = short
        chosen = _chosen(_movable(pod, node, cluster, own, stuck), resource, lack)
        if chosen is None:
            return None
        emptied, needs = without_pod(cluster, chosen), chosen.requests.items()
        others = [one for one in cluster.nodes if one is not node]
        roomy = [one for one in others if all(free[one.name].get(name, 0) >= least for name, least in needs)]
        to = first_fit(chosen, emptied, roomy) if roomy else None
        if to is None:
            stuck.append(_asks_for(chosen))
            continue
        made.append(Move(chosen.full_name, chosen.owner, to, chosen.requests[resource]))
        cluster = with_pod(emptied, chosen, to)
        short = _short(pod, node, cluster)
    return Moves(node.name, first, tuple(made)) if short == () else None


def _short(pod: WholePod, node: Node, cluster: Inventory) -> tuple[str, Decimal] | tuple[()] | None:
    """The resource of which the node has too little, and how much; () if it has enough; None if it won't do."""
    found = refusals(pod, node, cluster, neighbours(pod, cluster))
    if any(one.filter is not Filter.NODE_RESOURCES_FIT for one in found):
        return None
    short = next((one.shortage for one in found if one.shortage is not None), None)
    return () if short is None else (short.resource, short.needs - short.free)


def _movable(
    pod: WholePod, node: Node, cluster: Inventory, own: frozenset[str], stuck: list[WholePod]
) -> Iterator[WholePod]:
    for one in cluster.pods.get(node.name, ()):
        is_fixed = one.owner in _STAY or one.uid in own or one.priority > pod.priority or one.deleting
        if not is_fixed and _asks_for(one) not in stuck:
            yield one


def _chosen(pods: Iterator[WholePod], resource: str, lack: Decimal) -> WholePod | None:
    """Choose the smallest pod that frees enough alone, otherwise the pod that frees most."""
    sized = [(one.requests.get(resource, Decimal(0)), one) for one in pods]
    enough = [one for size, one in sized if size >= lack]
    if enough:
        return min(enough, key=lambda one: (one.requests[resource], one.full_name))
    return min(
        (one for size, one in sized if size > 0),
        key=lambda one: (-one.requests[resource], one.full_name),
        default=None,
    )
