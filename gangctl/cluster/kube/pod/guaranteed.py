"""Keeps a pod Guaranteed although gangctl adds a container: the sidecar then has requests that equal its limits.

The rule is the kubelet's (``pkg/apis/core/v1/helper/qos``): a pod is Guaranteed if each of its containers, init
containers too, has limits for cpu and memory, and requests that equal them or are absent. If all containers of a
template are like that, so is the sidecar; otherwise it has the resources that are configured.

CPUs stay pinned: the kubelet's static CPU manager looks at each container of a Guaranteed pod, and gives exclusive CPUs
to one that requests a whole number (``policy_static.go``, ``guaranteedCPUs``). The sidecar requests a part of a CPU, so
it runs on the shared ones. A pod with resources of its own (``spec.resources``) has the class of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from gangctl.cluster.kube.pod.fields import as_mapping
from gangctl.core.facts.node_affinity import quantity

CPU: Final = "250m"
"""The sidecar's limit if none is configured: it needs a third of a second of CPU to start, and little after that."""
MEMORY: Final = "128Mi"
"""The same: it needs 38 MB."""


def sidecar_resources(
    configured: Mapping[str, Any], containers: Sequence[dict[str, Any]], pod_resources: Any
) -> dict[str, Any]:
    """The sidecar's resources.

    Args:
        configured: Those of the controller's settings.
        containers: All containers of the template, init containers too.
        pod_resources: Resources of the template's pod as a whole.
    """
    made = deepcopy(dict(configured))
    if pod_resources or not all(_is_guaranteed(one) for one in containers):
        return made
    limits, requests = as_mapping(made.get("limits"), "limits"), as_mapping(made.get("requests"), "requests")
    same = {
        "cpu": limits.get("cpu") or CPU,
        "memory": limits.get("memory") or requests.get("memory") or MEMORY,
    }
    return {**made, "requests": {**requests, **same}, "limits": {**limits, **same}}


def _is_guaranteed(container: dict[str, Any]) -> bool:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return False
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    if not isinstance(limits, dict) or not isinstance(requests, dict):
        return False
    for name in ("cpu", "memory"):
        limit = quantity(limits.get(name))
        if not limit or (requests.get(name) is not None and quantity(requests[name]) != limit):
            return False
    return True
