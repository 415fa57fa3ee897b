"""Eligible nodes: whether all nodes that a role's pods may land on can restart all containers of a pod at once. Pure.

The rule: a pod may land on a node that its nodeName, nodeSelector and required node affinity allow, and all of whose
taints that keep pods off it tolerates. A node that it can't land on must not matter: one odd node of the cluster would
switch the feature off for all gangs. What isn't understood here counts as a node that it may land on, and so does each
node of a spec that is too large to be compared with all nodes::

    restart_all(role) = every schedulable node supports it, and there is one; or
                        every schedulable node that the role's pods may land on does, and there is one
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangctl.api.gangjob import GangJob, Role
from gangctl.cluster.kube.watch.projections import KubeNode
from gangctl.core.facts.node_affinity import has_required_affinity, is_selected, untolerated

_PLACING: Final = frozenset({"nodeName", "nodeSelector", "affinity", "tolerations"})
"""The fields of a pod's spec that decide on which nodes it may land."""
_LARGEST: Final = 16_384
"""Characters of these fields."""


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
    if len(str(spec)) > _LARGEST:
        return False
    eligible = [node for node in nodes if may_land(spec, node)]
    return bool(eligible) and all(node.restarts_all for node in eligible)


def may_land(spec: Mapping[str, Any], node: KubeNode) -> bool:
    """Whether a pod with this spec may be placed on this node."""
    try:
        named = spec.get("nodeName") or node.name
        return (
            named == node.name
            and is_selected(spec.get("nodeSelector") or {}, node.labels)
            and has_required_affinity(spec.get("affinity") or {}, node.name, node.labels)
            and not untolerated(spec.get("tolerations") or (), node.taints)
        )
    except (AttributeError, KeyError, TypeError, ValueError):  # The API server will refuse such a pod.
        return True
