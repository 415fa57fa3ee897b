"""Whether a DaemonSet wants a pod on a node, and why not: its node selector, its required affinity, its tolerations.

Sources: Kubernetes, pkg/controller/daemon (predicates, and the tolerations that the controller adds to each pod).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangctl.explain.doctor.facts import DaemonSet, Expression, Node, Taint, Toleration

_TOLERATED: Final = frozenset(
    f"node.kubernetes.io/{kind}"
    for kind in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
)
"""Taints that the DaemonSet controller makes all its pods tolerate."""


def unselected(daemon_set: DaemonSet, node: Node) -> str:
    """Which label keeps the DaemonSet from the node; empty if it selects the node."""
    for key, value in daemon_set.node_selector.items():
        if node.labels.get(key) != value:
            has = f"has {key}={node.labels[key]}" if key in node.labels else "lacks it"
            return f"it selects nodes with {key}={value}, and this one {has}"
    terms = daemon_set.affinity
    if terms and not any(all(_holds(one, node.labels) for one in term) for term in terms):
        return "its node affinity does not match the node's labels"
    return ""


def untolerated(daemon_set: DaemonSet, node: Node) -> Taint | None:
    """The taint of the node that keeps the DaemonSet's pods away; None if none does."""
    kept = (one for one in node.taints if one.effect in {"NoSchedule", "NoExecute"} and one.key not in _TOLERATED)
    return next((one for one in kept if not any(_tolerates(by, one) for by in daemon_set.tolerations)), None)


def _holds(one: Expression, labels: Mapping[str, str]) -> bool:
    match one.operator:
        case "In":
            return labels.get(one.key) in one.values
        case "NotIn":
            return labels.get(one.key) not in one.values
        case "Exists":
            return one.key in labels
        case "DoesNotExist":
            return one.key not in labels
        case _:  # Gt and Lt, which no vendor uses
            return True


def _tolerates(by: Toleration, taint: Taint) -> bool:
    if by.effect not in {"", taint.effect}:
        return False
    if not by.key:
        return by.operator == "Exists"
    return by.key == taint.key and (by.operator == "Exists" or by.value == taint.value)
