"""The walk: what each node answers to a pod that waits, and how many of the pods that wait have room.

The rule: the pods are tried one after the other, as the scheduler does, and each that has room takes it from the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from gangctl.explain.why.filters import Filter, Neighbours, Refusal, free, neighbours, refusals
from gangctl.explain.why.world import Cluster, SeenNode, SeenPod

OWN: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""The resources that every node has: another that is short is told first."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node answers to one pod."""

    node: SeenNode
    refusals: tuple[Refusal, ...]
    """Of all filters, in the scheduler's order; empty if the pod fits now."""

    @property
    def first(self) -> tuple[Refusal, ...]:
        """What the scheduler tells: those of the first filter that refuses."""
        return tuple(one for one in self.refusals if one.filter is self.refusals[0].filter)

    @property
    def is_open(self) -> bool:
        """Whether the node would do if it had enough left."""
        return all(one.filter is Filter.NODE_RESOURCES_FIT for one in self.refusals)


@dataclass(frozen=True, slots=True)
class Packing:
    """The pods that wait, as far as there is room for them."""

    placed: tuple[tuple[SeenPod, str], ...]
    """Each with its node."""
    left: tuple[SeenPod, ...]
    after: Cluster
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


def walk(pod: SeenPod, cluster: Cluster) -> tuple[NodeAnswer, ...]:
    """What each node answers, in the order of the nodes' names."""
    around = neighbours(pod, cluster)
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    return tuple(NodeAnswer(node, tuple(refusals(pod, node, cluster, around))) for node in nodes)


def first_fit(pod: SeenPod, cluster: Cluster, but: str) -> str | None:
    """The first node, other than ``but``, on which the pod fits; None if it fits nowhere."""
    around = neighbours(pod, cluster)
    nodes = (node for node in cluster.nodes if node.name != but)
    return next((node.name for node in nodes if not refusals(pod, node, cluster, around)), None)


def told(answers: Sequence[NodeAnswer]) -> str:
    """The answers as kube-scheduler counts them: ``0/3 nodes are available: 2 Insufficient cpu, ...``."""
    fits = sum(not one.refusals for one in answers)
    counts = Counter(refusal.said for one in answers if one.refusals for refusal in one.first)
    reasons = ", ".join(sorted(f"{number} {said}" for said, number in counts.items()))
    text = f"{fits}/{len(answers)} nodes are available"
    return f"{text}: {reasons}" if reasons else text


def pack(pods: Sequence[SeenPod], cluster: Cluster) -> Packing:
    """Place the pods one after the other: each on the node that has least left and still has room."""
    placed: list[tuple[SeenPod, str]] = []
    left: list[SeenPod] = []
    before: SeenPod | None = None
    fitting: list[SeenNode] = []
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
        scarce = next((name for name in pod.requests if name not in OWN), "cpu")
        there = cluster.pods
        node = min(fitting, key=lambda one: (free(one, there.get(one.name, ()), scarce), one.name))
        placed.append((pod, node.name))
        cluster = with_pod(cluster, pod, node.name)
    return Packing(tuple(placed), tuple(left), cluster)


def _asks_for(pod: SeenPod) -> SeenPod:
    return replace(pod, name="", uid="", created_at=0.0, said="")


def with_pod(cluster: Cluster, pod: SeenPod, node: str) -> Cluster:
    """The cluster with the pod on this node."""
    there = (*cluster.pods.get(node, ()), replace(pod, node=node))
    return replace(cluster, pods={**cluster.pods, node: there})


def without_pod(cluster: Cluster, pod: SeenPod) -> Cluster:
    """The cluster without the pod, which has a node."""
    there = tuple(one for one in cluster.pods.get(pod.node, ()) if one.full_name != pod.full_name)
    return replace(cluster, pods={**cluster.pods, pod.node: there})


def rooms(pod: SeenPod, answers: Sequence[NodeAnswer], cluster: Cluster) -> tuple[Room, ...]:
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
    for resource in sorted(short, key=lambda name: (name in OWN, name)):
        left = [max(Decimal(0), free(node, cluster.pods.get(node.name, ()), resource)) for node in nodes]
        of = [node.allocatable.get(resource, Decimal(0)) for node in nodes]
        found.append(
            Room(resource, pod.requests[resource], sum(left, Decimal(0)), max(left), sum(of, Decimal(0)), max(of))
        )
    return tuple(found)
