"""The scheduler's filters: what keeps a pod off a node.

The rule: a node on which nothing is found must be one that kube-scheduler's own filters let pass, as far as they are
known here; a field that isn't is named in ``WholePod.unread``. The words are those of kube-scheduler.

Source: Kubernetes, pkg/scheduler/framework/plugins, in the order of apis/config/v1/default_plugins.go.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from gangctl.core.facts import node_affinity
from gangctl.core.facts.node_affinity import Taint, has_required_affinity, is_selected, matches_any, untolerated_taints
from gangctl.explain.why.world import Claim, Inventory
from gangctl.kubernetes.objects import Node, PodAffinityTerm, WholePod

_IMMEDIATE: Final = "unbound immediate PersistentVolumeClaims"
_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Filter(StrEnum):
    """The plugin of the scheduler that refuses a node, in its order."""

    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_PORTS = "NodePorts"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    VOLUME_BINDING = "VolumeBinding"
    INTER_POD_AFFINITY = "InterPodAffinity"


@dataclass(frozen=True, slots=True)
class ResourceShortage:
    """A resource of which a node has too little left."""

    resource: str
    needs: Decimal
    free: Decimal
    of: Decimal
    """What is allocatable on the node."""


@dataclass(frozen=True, slots=True)
class FilterRefusal:
    """Why a filter refuses a node."""

    filter: Filter
    said: str
    """As kube-scheduler says it in its message, without the number of nodes."""
    shortage: ResourceShortage | None = None
    detail: str = ""
    """What exactly doesn't fit: a taint, a selector, a claim."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What the pods that have nodes mean for one pod, by topology."""

    blocked: frozenset[tuple[str, str]]
    """(key, value) of the labels of nodes on which the pod must not be."""
    needed: tuple[tuple[str, frozenset[str]], ...]
    """Key, and values of it of which a node must have one."""


def neighbours(pod: WholePod, cluster: Inventory) -> Neighbours:
    """Pod affinity and anti-affinity, the pod's own and that of others against it, for all nodes at once."""
    labels = {node.name: node.labels for node in cluster.nodes}
    placed = [one for there in cluster.pods.values() for one in there]
    blocked = set[tuple[str, str]]()
    for term in pod.apart:
        blocked |= {(term.topology_key, value) for value in _values(term, placed, labels)}
    for other in placed:
        for term in other.apart:
            value = labels.get(other.node, {}).get(term.topology_key)
            if value is not None and _is_meant(term, pod):
                blocked.add((term.topology_key, value))
    needed = []
    for term in pod.near:
        values = _values(term, placed, labels)
        if values or not _is_meant(term, pod):  # The first of a group that wants to be together may be anywhere.
            needed.append((term.topology_key, values))
        else:
            needed.append((term.topology_key, frozenset(of[term.topology_key] for of in _with(term, labels))))
    return Neighbours(frozenset(blocked), tuple(needed))


def refusals(pod: WholePod, node: Node, cluster: Inventory, around: Neighbours) -> list[FilterRefusal]:
    """Each filter's refusal, in the scheduler's order; empty if the pod fits on the node now.

    Args:
        pod: The pod, which has no node.
        node: One of the cluster's nodes.
        cluster: All nodes and the pods on them.
        around: ``neighbours(pod, cluster)``.
    """
    there = cluster.pods.get(node.name, ())
    return [
        *_cordon(pod, node),
        *_taints(pod, node),
        *_affinity(pod, node),
        *_ports(pod, there),
        *_resources(pod, node, there),
        *_volumes(pod, node, cluster.claims),
        *_near_and_apart(node, around),
    ]


def free_resources(node: Node, there: Iterable[WholePod], resource: str) -> Decimal:
    """Count what is allocatable and not requested by the pods that are there; below 0 if the node is overcommitted."""
    used = (one.requests.get(resource, Decimal(0)) for one in there)
    return node.allocatable.get(resource, Decimal(0)) - sum(used, Decimal(0))


def _cordon(pod: WholePod, node: Node) -> Iterator[FilterRefusal]:
    if node.cordoned and untolerated_taints(pod.tolerations, (_UNSCHEDULABLE,)):
        yield FilterRefusal(Filter.NODE_UNSCHEDULABLE, "node(s) were unschedulable", detail="cordoned")


def _taints(pod: WholePod, node: Node) -> Iterator[FilterRefusal]:
    for taint in untolerated_taints(pod.tolerations, node.taints)[:1]:
        said = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        yield FilterRefusal(Filter.TAINT_TOLERATION, said, detail=str(taint))


def _affinity(pod: WholePod, node: Node) -> Iterator[FilterRefusal]:
    said = "node(s) didn't match Pod's node affinity/selector"
    if not is_selected(pod.node_selector, node.labels):
        wrong = [f"{key}={value}" for key, value in pod.node_selector.items() if node.labels.get(key) != value]
        yield FilterRefusal(Filter.NODE_AFFINITY, said, detail=f"nodeSelector {', '.join(wrong)}")
    elif not _is_near(pod, node):
        yield FilterRefusal(Filter.NODE_AFFINITY, said, detail="the required node affinity")


def _is_near(pod: WholePod, node: Node) -> bool:
    try:
        return has_required_affinity(pod.affinity, node.name, node.labels)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # A label that is compared by number and is none: no match, as in the scheduler.


def _ports(pod: WholePod, there: Iterable[WholePod]) -> Iterator[FilterRefusal]:
    taken = sorted(pod.ports & {port for one in there for port in one.ports})
    if taken:
        said = "node(s) didn't have free ports for the requested pod ports"
        yield FilterRefusal(Filter.NODE_PORTS, said, detail=", ".join(f"host port {number}" for _, number in taken))


def _resources(pod: WholePod, node: Node, there: tuple[WholePod, ...]) -> Iterator[FilterRefusal]:
    for resource, needs in pod.requests.items():
        left = free_resources(node, there, resource)
        if needs > left:
            short = ResourceShortage(resource, needs, left, node.allocatable.get(resource, Decimal(0)))
            said = "Too many pods" if resource == "pods" else f"Insufficient {resource}"
            yield FilterRefusal(Filter.NODE_RESOURCES_FIT, said, short)


def _volumes(pod: WholePod, node: Node, claims: Mapping[str, Claim]) -> Iterator[FilterRefusal]:
    for name in pod.claims:
        one = claims.get(name)
        if one is None:
            continue
        if not one.exists:
            yield FilterRefusal(
                Filter.VOLUME_BINDING, f'persistentvolumeclaim "{name}" not found', detail=f"claim {name}"
            )
        elif one.deleting:
            said = f'persistentvolumeclaim "{name}" is being deleted'
            yield FilterRefusal(Filter.VOLUME_BINDING, said, detail=f"claim {name}, which stays while a pod uses it")
        elif not one.bound and (one.waits_for_pod is False or _IMMEDIATE in pod.unscheduled):
            yield FilterRefusal(Filter.VOLUME_BINDING, f"pod has {_IMMEDIATE}", detail=f"claim {name}")
        elif one.bound and one.nodes is not None and not _reaches(one.nodes, node):
            said = "node(s) didn't match PersistentVolume's node affinity"
            yield FilterRefusal(Filter.VOLUME_BINDING, said, detail=f"claim {name}, volume {one.volume}")


def _reaches(terms: tuple[Mapping[str, Any], ...], node: Node) -> bool:
    try:
        return matches_any(terms, node.name, node.labels)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def _near_and_apart(node: Node, around: Neighbours) -> Iterator[FilterRefusal]:
    for key, values in around.needed:
        if node.labels.get(key) not in values:
            said = "node(s) didn't match pod affinity rules"
            yield FilterRefusal(Filter.INTER_POD_AFFINITY, said, detail=f"pod affinity by {key}")
            return
    blocked = sorted(key for key, value in around.blocked if node.labels.get(key) == value)
    if blocked:
        said = "node(s) didn't match pod anti-affinity rules"
        yield FilterRefusal(Filter.INTER_POD_AFFINITY, said, detail=f"pod anti-affinity by {blocked[0]}")


def _values(
    term: PodAffinityTerm, placed: Iterable[WholePod], labels: Mapping[str, Mapping[str, str]]
) -> frozenset[str]:
    """The topologies in which a pod is that the term means."""
    found = (labels.get(one.node, {}).get(term.topology_key) for one in placed if _is_meant(term, one))
    return frozenset(value for value in found if value is not None)


def _with(term: PodAffinityTerm, labels: Mapping[str, Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [of for of in labels.values() if term.topology_key in of]


def _is_meant(term: PodAffinityTerm, pod: WholePod) -> bool:
    """Return whether the term means the pod. An empty selector matches all pods, an absent selector none."""
    if term.selector is None or (term.namespaces is not None and pod.namespace not in term.namespaces):
        return False
    try:
        by_label = term.selector.get("matchLabels") or {}
        by_rule = term.selector.get("matchExpressions") or ()
        holds = (node_affinity.holds(one, pod.labels.get(one["key"])) for one in by_rule)
        return is_selected(by_label, pod.labels) and all(holds)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
