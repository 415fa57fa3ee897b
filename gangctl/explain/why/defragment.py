"""Defragmentation: which pods would have to move so that a pod has room on one node.

The rule, which is greedy and simple: of each node that would do, the fewest pods, the largest first, and of those that
suffice alone the smallest. Each has to fit on another node. Of all nodes, the one from which the fewest have to move.
What must not be named: a pod that can't move (static, of a DaemonSet), one of the gang itself, or of a higher priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from gangctl.explain.why.filters import Filter, neighbours, refusals
from gangctl.explain.why.walk import NodeAnswer, first_fit, with_pod, without_pod
from gangctl.explain.why.world import Cluster, SeenNode, SeenPod

MOST_MOVES: Final = 8
"""More than this is no advice."""
MOST_NODES: Final = 20
"""So many nodes are tried, those that lack least first: the answer has to come within seconds."""
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


def moves(pod: SeenPod, answers: Sequence[NodeAnswer], cluster: Cluster, own: frozenset[str]) -> Moves | None:
    """The fewest pods that would have to move; None if moving some is no way.

    Args:
        pod: The pod that waits.
        answers: What the nodes answer to it.
        cluster: The nodes and the pods on them.
        own: UIDs of the gang's pods, which stay.
    """
    lacking = sorted((one for one in answers if one.refusals and one.is_open), key=_lack)
    tried = (_on(pod, one, cluster, own) for one in lacking[:MOST_NODES])
    found = [one for one in tried if one is not None]
    return min(found, key=lambda one: (len(one.moves), sum(move.frees for move in one.moves), one.node), default=None)


def _lack(answer: NodeAnswer) -> Decimal:
    return max(one.shortage.needs - one.shortage.free for one in answer.refusals if one.shortage is not None)


def _on(pod: SeenPod, answer: NodeAnswer, cluster: Cluster, own: frozenset[str]) -> Moves | None:
    """The moves that make room on one node."""
    node, made = answer.node, list[Move]()
    first = next(one.shortage.resource for one in answer.refusals if one.shortage is not None)
    stuck = set[str]()
    while len(made) < MOST_MOVES:
        short = _short(pod, node, cluster)
        if short is None:
            return None
        if not short:
            return Moves(node.name, first, tuple(made))
        resource, lack = short
        chosen = _chosen(_movable(pod, node, cluster, own, stuck), resource, lack)
        if chosen is None:
            return None
        emptied = without_pod(cluster, chosen)
        to = first_fit(chosen, emptied, node.name)
        if to is None:
            stuck.add(chosen.full_name)
            continue
        made.append(Move(chosen.full_name, chosen.owner, to, chosen.requests[resource]))
        cluster = with_pod(emptied, chosen, to)
    return None


def _short(pod: SeenPod, node: SeenNode, cluster: Cluster) -> tuple[str, Decimal] | tuple[()] | None:
    """The resource of which the node has too little, and how much; () if it has enough; None if it won't do."""
    found = refusals(pod, node, cluster, neighbours(pod, cluster))
    if any(one.filter is not Filter.NODE_RESOURCES_FIT for one in found):
        return None
    short = next((one.shortage for one in found if one.shortage is not None), None)
    return () if short is None else (short.resource, short.needs - short.free)


def _movable(pod: SeenPod, node: SeenNode, cluster: Cluster, own: frozenset[str], stuck: set[str]) -> Iterator[SeenPod]:
    for one in cluster.pods.get(node.name, ()):
        is_fixed = one.owner in _STAY or one.uid in own or one.priority > pod.priority or one.deleting
        if not is_fixed and one.full_name not in stuck:
            yield one


def _chosen(pods: Iterator[SeenPod], resource: str, lack: Decimal) -> SeenPod | None:
    """The smallest of those that free enough alone, otherwise the one that frees most."""
    sized = [(one.requests.get(resource, Decimal(0)), one) for one in pods]
    enough = [one for size, one in sized if size >= lack]
    if enough:
        return min(enough, key=lambda one: (one.requests[resource], one.full_name))
    return min(
        (one for size, one in sized if size > 0),
        key=lambda one: (-one.requests[resource], one.full_name),
        default=None,
    )
