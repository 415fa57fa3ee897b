"""JobSet on a cluster of our own, with its webhooks: it manages the JobSets that name no other controller."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from e2e import operators
from e2e.cluster.lab import Lab
from e2e.operators import Operator

NAME = "jobset"
API = "jobset.x-k8s.io/v1alpha2"


def document(name: str, pod: dict[str, Any], *, job: str = "workers", replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """A JobSet of one replicated job. ``pod``: the specification of its pods."""
    template = {"spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never"} | pod}}}
    jobs = [{"name": job, "replicas": replicas, "template": template}]
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs, **spec},
    }


JOBSET = Operator(
    name=NAME,
    kustomizations=("config/default",),
    configuration="config/components/manager/controller_manager_config.yaml",
    settings={"internalCertManagement": {"enable": False}, "featureGates": {"InPlaceRestart": True}},
    port=9444,
    accepted=document("answers", {"containers": [{"name": "main", "image": "none"}]}),
)


def jobset(lab: Lab) -> AbstractContextManager[None]:
    """JobSet, until the end of the block."""
    return operators.running(JOBSET, lab)
