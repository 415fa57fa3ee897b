"""A pod's affinity: the template's own, the nodes to avoid, and the gang's placement (packed or spread).

The rule: gangctl must only narrow what the user wrote, never widen it. The required terms of a node affinity are
alternatives, so a node to avoid is added to *every* term. An empty term matches no node, so it stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from gangctl.api.names import gang_selector
from gangctl.api.placement import Placement, PlacementPolicy
from gangctl.cluster.kube.pod.fields import as_mapping, as_mappings

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = 100
"""The highest weight that Kubernetes allows."""


def affinity(
    written: Any, path: str, *, uid: str, placement: PlacementPolicy, avoid: Sequence[str], required: bool
) -> dict[str, Any]:
    """The pod's affinity; empty if there is none.

    Args:
        written: The template's affinity, which is kept.
        path: Path of it in the job, for errors.
        uid: UID of the gang whose pods are packed or spread.
        placement: The gang's placement policy.
        avoid: Names of nodes to avoid.
        required: Whether to avoid them is a requirement; otherwise a preference.

    Raises:
        Terminal: the template's affinity can't be read.
    """
    merged = as_mapping(written, path)
    if avoid:
        key = "nodeAffinity"
        merged[key] = _add_avoided_nodes(
            as_mapping(merged.get(key), f"{path}.{key}"), f"{path}.{key}", avoid, required=required
        )
    if isinstance(placement, Placement):
        key = "podAffinity" if placement.strategy == "Pack" else "podAntiAffinity"
        merged[key] = _add_placement(as_mapping(merged.get(key), f"{path}.{key}"), f"{path}.{key}", uid, placement)
    return merged


def _add_avoided_nodes(written: dict[str, Any], path: str, avoid: Sequence[str], *, required: bool) -> dict[str, Any]:
    # By the node's name: its host name label may differ. A requirement on a field takes one value.
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in dict.fromkeys(avoid)]
    if not required:
        terms = as_mappings(written.get(_PREFERRED), f"{path}.{_PREFERRED}")
        return {**written, _PREFERRED: [*terms, {"weight": _WEIGHT, "preference": {"matchFields": excluded}}]}
    if written.get(_REQUIRED) is None:
        return {**written, _REQUIRED: {"nodeSelectorTerms": [{"matchFields": excluded}]}}
    selector = as_mapping(written[_REQUIRED], f"{path}.{_REQUIRED}")
    inside = f"{path}.{_REQUIRED}.nodeSelectorTerms"
    terms = [
        _narrow(term, f"{inside}[{at}]", excluded)
        for at, term in enumerate(as_mappings(selector.get("nodeSelectorTerms"), inside))
    ]
    return {**written, _REQUIRED: {**selector, "nodeSelectorTerms": terms}}


def _narrow(term: dict[str, Any], path: str, excluded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term
    return {**term, "matchFields": [*as_mappings(term.get("matchFields"), f"{path}.matchFields"), *deepcopy(excluded)]}


def _add_placement(written: dict[str, Any], path: str, uid: str, placement: Placement) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": gang_selector(uid)}, "topologyKey": placement.topology_key}
    if placement.mode == "Required":
        return {**written, _REQUIRED: [*as_mappings(written.get(_REQUIRED), f"{path}.{_REQUIRED}"), term]}
    terms = as_mappings(written.get(_PREFERRED), f"{path}.{_PREFERRED}")
    return {**written, _PREFERRED: [*terms, {"weight": _WEIGHT, "podAffinityTerm": term}]}
