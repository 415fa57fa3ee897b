"""The PodDisruptionBudget of a gang: at most one of its pods is evicted at a time.

Every eviction restarts the whole gang, so a drain should take one pod, wait until it is back, and take the next. The
number is a plain one: percentages and ``maxUnavailable`` don't work for owners without a scale subresource.
"""

from __future__ import annotations

from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.names import gang_selector
from gangctl.api.version import API_VERSION, KIND


def min_available(job: GangJob) -> int:
    """All members but one, spares included."""
    return sum(role.replicas + role.spares for role in job.spec.roles) - 1


def budget(job: GangJob) -> dict[str, Any]:
    """The budget to create, as JSON values: named like the gang, and gone with it."""
    gang = job.metadata
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": gang.name,
            "namespace": gang.namespace,
            "labels": gang_selector(gang.uid),
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": gang.name,
                    "uid": gang.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "minAvailable": min_available(job),
            "selector": {"matchLabels": gang_selector(gang.uid)},
            # A pod that isn't ready (an image that can't be had) must not block a drain for ever.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
