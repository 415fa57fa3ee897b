"""The pod builder: from a role's template to the pod of one member's incarnation. Pure: the same in, the same out.

The rule: the pod is what the user wrote, fields that gangctl doesn't know included, and these on top:

* name, namespace, owner, labels and annotations of gangctl's own; of the template's metadata its labels, annotations
  and finalizers;
* ``hostname`` GANG-ROLE-INDEX, which outlives a replacement, unless the template has one;
* the containers and volumes of :mod:`~gangctl.cluster.kube.pod.sidecar_injection`, the worker as
  :mod:`~gangctl.cluster.kube.pod.worker_container` has it, the affinity of :mod:`~gangctl.cluster.kube.pod.affinity`;
* ``restartPolicy``, whatever the template says: Never with a rule that restarts all containers where nodes have that
  (no back-off), OnFailure where not. Workers are restarted inside their container in any case;
* ``terminationGracePeriodSeconds``, if the template has none: the planned grace and a little more, so that a drained
  worker can save before the kubelet kills it.

Nothing is added for ``shareProcessNamespace`` and ``hostPID``: the supervisor sees itself that it isn't PID 1.
"""

from __future__ import annotations

from typing import Any, Final

from gangctl.api.gangjob import GangJob, Role
from gangctl.api.names import (
    ANNOTATION_ROLES_HASH,
    ANNOTATION_TRACEPARENT,
    parse_member_name,
    pod_labels,
    pod_name,
)
from gangctl.api.roles_hash import roles_hash
from gangctl.api.version import API_VERSION, KIND
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod.affinity import affinity
from gangctl.cluster.kube.pod.fields import as_mapping, as_mappings
from gangctl.cluster.kube.pod.sidecar_injection import containers, refuse_reserved_names, volumes
from gangctl.cluster.kube.pod.worker_container import supervised
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.core.facts.trace_context import trace_parent
from gangctl.core.policy.pods import CreatePod

GRACE_MARGIN_SECONDS: Final = 10
"""Beyond the planned grace: for the report of the end, and for the sidecar, which ends last."""
_NAMED: Final = ("initContainers", "containers", "volumes")


def build(job: GangJob, create: CreatePod, settings: KubeSettings, *, ca: str, restart_all: bool) -> dict[str, Any]:
    """The pod to create, as JSON values.

    Args:
        job: As it is stored.
        create: Which member's pod, and what nodes it keeps off.
        settings: The controller's.
        ca: PEM text of the certificates that the sidecar trusts.
        restart_all: Whether the nodes that it may land on declare RestartAllContainers.

    Raises:
        Terminal: the member's role isn't in the job, or its template can't be made a gang's pod; the text names the
            field.
    """
    at, role = _role(job, create.member)
    path = f"spec.roles[{at}].template"
    template = role.template.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = _placed(job, create, template["spec"], f"{path}.spec")
    entries = {key: as_mappings(spec.get(key), f"{path}.spec.{key}") for key in _NAMED}
    for key in _NAMED:
        refuse_reserved_names(entries[key], f"{path}.spec.{key}")
    worker = role.template.spec.containers.index(role.worker)
    entries["containers"][worker] = supervised(
        entries["containers"][worker],
        f"{path}.spec.containers[{worker}]",
        uid=job.metadata.uid,
        create=create,
        restart_all=restart_all,
    )
    ours = {
        "restartPolicy": "Never" if restart_all else "OnFailure",
        "initContainers": [*containers(settings, ca), *entries["initContainers"]],
        "containers": entries["containers"],
        "volumes": [*entries["volumes"], *volumes(settings)],
    }
    metadata = _metadata(job, create, template.get("metadata"), f"{path}.metadata")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | ours}


def _placed(job: GangJob, create: CreatePod, written: dict[str, Any], path: str) -> dict[str, Any]:
    """The spec with affinity, host name and grace period: what gangctl only adds to, or fills in."""
    spec = {key: value for key, value in written.items() if key != "affinity"}
    near = affinity(
        written.get("affinity"),
        f"{path}.affinity",
        uid=job.metadata.uid,
        placement=job.spec.placement,
        avoid=create.avoid,
        required=create.required,
    )
    if near:
        spec["affinity"] = near
    if not spec.get("hostname"):
        spec["hostname"] = f"{job.metadata.name}-{create.member}"
    if spec.get("terminationGracePeriodSeconds") is None:
        planned = job.spec.recovery.planned_stop_grace_period_seconds
        spec["terminationGracePeriodSeconds"] = planned + GRACE_MARGIN_SECONDS
    return spec


def _role(job: GangJob, member: str) -> tuple[int, Role]:
    name, _ = parse_member_name(member)
    for at, role in enumerate(job.spec.roles):
        if role.name == name:
            return at, role
    raise Terminal(f"there is no role {name!r} in gang {job.metadata.name}")


def _metadata(job: GangJob, create: CreatePod, written: Any, path: str) -> dict[str, Any]:
    gang, theirs = job.metadata, as_mapping(written, path)
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": gang.name,
        "uid": gang.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": pod_name(gang.name, create.member, create.incarnation),
        "namespace": gang.namespace,
        "labels": as_mapping(theirs.get("labels"), f"{path}.labels")
        | pod_labels(gang.name, gang.uid, create.member, create.incarnation),
        "annotations": as_mapping(theirs.get("annotations"), f"{path}.annotations") | _annotations(job),
        **({"finalizers": theirs["finalizers"]} if theirs.get("finalizers") else {}),
        "ownerReferences": [owner],
    }


def _annotations(job: GangJob) -> dict[str, str]:
    made = {ANNOTATION_ROLES_HASH: roles_hash(job.spec.roles)}
    incident = next(iter(job.status.incidents), None)
    if incident is not None and incident.attempt == job.status.attempt:
        made[ANNOTATION_TRACEPARENT] = trace_parent(job, incident)
    return made
