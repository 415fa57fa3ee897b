"""Eligible nodes: whether all nodes that a role's pods may land on can restart all containers of a pod at once. Pure.

The rule: a pod may land on a node that its nodeName, nodeSelector and required node affinity allow, and all of whose
taints that keep pods off it tolerates. A node that it can't land on must not matter: one odd node of the cluster would
switch the feature off for all gangs. What isn't understood here counts as a node that it may land on::

    restart_all(role) = every schedulable node supports it, and there is one; or
                        every schedulable node that the role's pods may land on does, and there is one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gangctl.api.gangjob import GangJob, Role
from gangctl.cluster.kube.watch.projections import KubeNode, Taint

_KEEP_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_PLACING: Final = frozenset({"nodeName", "nodeSelector", "affinity", "tolerations"})
"""The fields of a pod's spec that decide on which nodes it may land."""


class EligibleNodes:
    """Answers for each role, and remembers the answers until the nodes or the roles change."""

    def __init__(self) -> None:
        """Know no answer yet."""
        self._answers: dict[str, dict[str, tuple[int, tuple[KubeNode, ...], bool]]] = {}

    def restart_all(self, job: GangJob, role: Role, nodes: tuple[KubeNode, ...]) -> bool:
        """Whether the role's pods can use RestartAllContainers.

        Args:
            job: The stored gang.
            role: One of its roles.
            nodes: The schedulable nodes: the same object as long as they are the same.
        """
        known = self._answers.setdefault(job.metadata.uid, {})
        generation, judged, answer = known.get(role.name, (-1, (), False))
        if generation != job.metadata.generation or judged is not nodes:
            answer = _all_restart(role, nodes)
            known[role.name] = (job.metadata.generation, nodes, answer)
        return answer

    def forget(self, uid: str) -> None:
        """Forget a gang that is gone."""
        self._answers.pop(uid, None)


def _all_restart(role: Role, nodes: tuple[KubeNode, ...]) -> bool:
    able = sum(node.restarts_all for node in nodes)
    if able in {0, len(nodes)}:
        return able > 0
    spec = role.template.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(_PLACING))
    eligible = [node for node in nodes if may_land(spec, node)]
    return bool(eligible) and all(node.restarts_all for node in eligible)


def may_land(spec: Mapping[str, Any], node: KubeNode) -> bool:
    """Whether a pod with this spec may be placed on this node."""
    try:
        named = spec.get("nodeName") or node.name
        selected = all(node.labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
        return bool(named == node.name and selected and _has_affinity(spec, node) and _tolerates(spec, node))
    except (AttributeError, KeyError, TypeError, ValueError):  # The API server will refuse such a pod.
        return True


def _has_affinity(spec: Mapping[str, Any], node: KubeNode) -> bool:
    near = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return near is None or any(_matches(term, node) for term in near["nodeSelectorTerms"])


def _matches(term: Mapping[str, Any], node: KubeNode) -> bool:
    """Whether one of the terms holds: all of its requirements. One without any holds for no node."""
    asked: list[tuple[Mapping[str, Any], Callable[[str], str | None]]] = [
        *((one, node.labels.get) for one in term.get("matchExpressions") or ()),
        *((one, {"metadata.name": node.name}.get) for one in term.get("matchFields") or ()),
    ]
    return bool(asked) and all(_holds(one, value_of(one["key"])) for one, value_of in asked)


def _holds(one: Mapping[str, Any], value: str | None) -> bool:
    match one["operator"]:
        case "In":
            return value in one["values"]
        case "NotIn":
            return value not in one["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(one["values"][0])
        case "Lt":
            return value is not None and int(value) < int(one["values"][0])
        case _:
            return True


def _tolerates(spec: Mapping[str, Any], node: KubeNode) -> bool:
    tolerations = spec.get("tolerations") or ()
    return all(any(_covers(one, taint) for one in tolerations) for taint in node.taints if taint.effect in _KEEP_OFF)


def _covers(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    operator = toleration.get("operator") or "Equal"
    if (toleration.get("key") or "") not in {taint.key, "" if operator == "Exists" else taint.key}:
        return False
    return operator != "Equal" or (toleration.get("value") or "") == taint.value
