"""Where a pod may go: the nodes that it keeps off, packed or spread, and whatever its template asks for already.

The rule: what gangctl adds only ever narrows what the user wrote. The required terms of a node affinity are
alternatives, so a node to be kept off is added to *every* one of them; an empty term matches no node, and stays empty.
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
"""The highest that there is."""


def affinity(
    written: Any, path: str, *, uid: str, placement: PlacementPolicy, avoid: Sequence[str], required: bool
) -> dict[str, Any]:
    """The pod's affinity; empty if there is none.

    Args:
        written: The template's own, which is kept.
        path: Of it in the job, for errors.
        uid: UID of the gang whose pods are packed or spread.
        placement: How.
        avoid: Names of nodes to keep off.
        required: Whether that is a requirement rather than a preference.

    Raises:
        Terminal: what is written can't be read.
    """
    merged = as_mapping(written, path)
    if avoid:
        key = "nodeAffinity"
        merged[key] = _avoiding(as_mapping(merged.get(key), f"{path}.{key}"), f"{path}.{key}", avoid, required=required)
    if isinstance(placement, Placement):
        key = "podAffinity" if placement.strategy == "Pack" else "podAntiAffinity"
        merged[key] = _together(as_mapping(merged.get(key), f"{path}.{key}"), f"{path}.{key}", uid, placement)
    return merged


def _avoiding(written: dict[str, Any], path: str, avoid: Sequence[str], *, required: bool) -> dict[str, Any]:
    # By the node's name and not by its host name label, which may differ. A requirement on a field takes one value.
    off = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in dict.fromkeys(avoid)]
    if not required:
        terms = as_mappings(written.get(_PREFERRED), f"{path}.{_PREFERRED}")
        return {**written, _PREFERRED: [*terms, {"weight": _WEIGHT, "preference": {"matchFields": off}}]}
    if written.get(_REQUIRED) is None:
        return {**written, _REQUIRED: {"nodeSelectorTerms": [{"matchFields": off}]}}
    selector = as_mapping(written[_REQUIRED], f"{path}.{_REQUIRED}")
    inside = f"{path}.{_REQUIRED}.nodeSelectorTerms"
    terms = [
        _narrowed(term, f"{inside}[{at}]", off)
        for at, term in enumerate(as_mappings(selector.get("nodeSelectorTerms"), inside))
    ]
    return {**written, _REQUIRED: {**selector, "nodeSelectorTerms": terms}}


def _narrowed(term: dict[str, Any], path: str, off: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term
    return {**term, "matchFields": [*as_mappings(term.get("matchFields"), f"{path}.matchFields"), *deepcopy(off)]}


def _together(written: dict[str, Any], path: str, uid: str, placement: Placement) -> dict[str, Any]:
    ours = {"labelSelector": {"matchLabels": gang_selector(uid)}, "topologyKey": placement.topology_key}
    if placement.mode == "Required":
        return {**written, _REQUIRED: [*as_mappings(written.get(_REQUIRED), f"{path}.{_REQUIRED}"), ours]}
    terms = as_mappings(written.get(_PREFERRED), f"{path}.{_PREFERRED}")
    return {**written, _PREFERRED: [*terms, {"weight": _WEIGHT, "podAffinityTerm": ours}]}
