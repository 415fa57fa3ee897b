"""The names that JobSet gives (v1alpha2, release 0.12): labels, annotations, jobs and host names."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

GROUP: Final = "jobset.x-k8s.io"
API_VERSION: Final = f"{GROUP}/v1alpha2"
KIND: Final = "JobSet"
CONTROLLER: Final = "gangctl.io/jobset-controller"
"""The value of ``spec.managedBy`` that makes a JobSet gangctl's."""

PREFIX: Final = "jobset.sigs.k8s.io/"
JOBSET_NAME: Final = f"{PREFIX}jobset-name"
JOBSET_UID: Final = f"{PREFIX}jobset-uid"
REPLICATED_JOB: Final = f"{PREFIX}replicatedjob-name"
REPLICAS: Final = f"{PREFIX}replicatedjob-replicas"
GLOBAL_REPLICAS: Final = f"{PREFIX}global-replicas"
RESTART_ATTEMPT: Final = f"{PREFIX}restart-attempt"
JOB_INDEX: Final = f"{PREFIX}job-index"
JOB_GLOBAL_INDEX: Final = f"{PREFIX}job-global-index"
JOB_KEY: Final = f"{PREFIX}job-key"
GROUP_NAME: Final = f"{PREFIX}group-name"
GROUP_REPLICAS: Final = f"{PREFIX}group-replicas"
JOB_GROUP_INDEX: Final = f"{PREFIX}job-group-index"
COORDINATOR: Final = f"{PREFIX}coordinator"
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
NAMESPACED_JOB: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_AGENT: Final = f"{PREFIX}disable-in-place-restart"
NO_SCHEDULE: Final = "alpha.jobset.sigs.k8s.io/no-schedule"

JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"

ANNOTATION_SPEC: Final = "gangctl.io/spec"
"""On a JobSet: fields of a GangJob's spec that a JobSet has not, as YAML or JSON."""
ANNOTATION_PLACE: Final = "gangctl.io/replicated-job"
"""On the pods of a JobSet: what their own names are made from, as JSON (see ``pods.py``)."""


def job_name(jobset: str, replicated_job: str, job: int) -> str:
    """The name of a Job that JobSet's own controller would create."""
    return f"{jobset}-{replicated_job}-{job}"


def job_key(namespace: str, job: str) -> str:
    """The value of the label that tells the pods of one Job from all others of the cluster."""
    return hashlib.sha1(f"{namespace}/{job}".encode(), usedforsecurity=False).hexdigest()


def owner(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The reference of what a JobSet controls and is deleted with. ``metadata``: the JobSet's."""
    named = {"apiVersion": API_VERSION, "kind": KIND, "name": metadata["name"], "uid": metadata["uid"]}
    return named | {"controller": True, "blockOwnerDeletion": True}


def owners(metadata: Mapping[str, Any], name: str) -> set[str]:
    """The UIDs of the JobSets of this name that own an object. ``metadata``: the object's."""
    found = metadata.get("ownerReferences") or ()
    return {one["uid"] for one in found if (one["kind"], one["name"]) == (KIND, name)}
