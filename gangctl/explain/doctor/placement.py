"""Whether a DaemonSet wants a pod on a node, and why not: its node selector, its required affinity, its tolerations.

Sources: Kubernetes, pkg/controller/daemon (predicates, and the tolerations that the controller adds to each pod).
"""

from __future__ import annotations

from typing import Final

from gangctl.core.facts import node_affinity
from gangctl.core.facts.node_affinity import has_required_affinity
from gangctl.explain.doctor.facts import DaemonSet, Node, Taint

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
    try:
        is_wanted = has_required_affinity(daemon_set.affinity, node.name, node.labels)
    except (AttributeError, KeyError, TypeError, ValueError):  # A label that is compared by number and is none.
        is_wanted = False
    return "" if is_wanted else "its node affinity does not match the node's labels"


def untolerated(daemon_set: DaemonSet, node: Node) -> Taint | None:
    """The taint of the node that keeps the DaemonSet's pods away; None if none does."""
    kept = (one for one in node.taints if one.key not in _TOLERATED)
    return next(iter(node_affinity.untolerated(daemon_set.tolerations, kept)), None)
