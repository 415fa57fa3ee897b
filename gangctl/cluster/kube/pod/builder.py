"""The pod builder: makes the pod of one incarnation of a member from its role's template. Pure.

The rule: the pod has all fields of the template, including those that gangctl doesn't know, with these changes:

* gangctl sets name, namespace, owner, labels and annotations. It keeps labels, annotations and finalizers of the
  template's metadata.
* ``hostname`` is GANG-ROLE-INDEX, which a replacement keeps, unless the template has one.
* :mod:`~gangctl.cluster.kube.pod.sidecar_injection` adds containers and volumes,
  :mod:`~gangctl.cluster.kube.pod.worker_container` changes the worker's container, and
  :mod:`~gangctl.cluster.kube.pod.affinity` the affinity.
* The pod's ``restartPolicy`` is Never, with a rule that restarts all containers (no back-off), where the nodes that it
  may land on support that, and OnFailure otherwise. Workers restart inside their container in both cases. What the
  template says is kept for the user's other containers where the nodes support that: OnFailure retries each of them.
* ``schedulingGroup`` names the gang's PodGroup, if gangctl creates one.
* ``imagePullSecrets`` gets those for the sidecar's image, if the controller has any.
* ``terminationGracePeriodSeconds``, if the template has none, is the planned grace period and a margin, so that a
  drained worker can save before the kubelet kills it.

``shareProcessNamespace`` and ``hostPID`` need no change: the supervisor detects that it isn't PID 1.
"""

from __future__ import annotations

from typing import Any, Final

from gangctl.api.gangjob import GangJob, Role
from gangctl.api.names import (
    ANNOTATION_ROLES_HASH,
    ANNOTATION_TRACEPARENT,
    ANNOTATION_WORKER,
    parse_member_name,
    pod_labels,
    pod_name,
)
from gangctl.api.roles_hash import roles_hash
from gangctl.api.start import preloaded
from gangctl.api.version import API_VERSION, KIND
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod.affinity import affinity
from gangctl.cluster.kube.pod.caches import kept_caches
from gangctl.cluster.kube.pod.fields import as_mapping, as_mappings
from gangctl.cluster.kube.pod.guaranteed import sidecar_resources
from gangctl.cluster.kube.pod.pod_group import group_name, wants_group
from gangctl.cluster.kube.pod.reserved import refuse_reserved
from gangctl.cluster.kube.pod.sidecar_injection import pull_secrets, sidecar_container, sidecar_volumes
from gangctl.cluster.kube.pod.worker_container import supervised_container
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.cluster.kube.watch.projections import HubContact
from gangctl.core.facts.trace_context import trace_parent
from gangctl.core.policy.pods import CreatePod
from gangsidecar.wire import CACHES_VARIABLE, PRELOAD_VARIABLE

GRACE_MARGIN_SECONDS: Final = 10
"""Beyond the planned grace period: time to report the end of the worker, and for the sidecar, which ends last."""
_NAMED: Final = ("initContainers", "containers", "volumes")


def build(
    job: GangJob, create: CreatePod, settings: KubeSettings, contact: HubContact, *, restart_all: bool
) -> dict[str, Any]:
    """The pod to create, as JSON values.

    Args:
        job: The stored gang.
        create: The pod's member and incarnation, and the nodes to avoid.
        settings: The controller's settings.
        contact: What the sidecar needs to reach the hub.
        restart_all: Whether the nodes support RestartAllContainers.

    Raises:
        Terminal: the job doesn't have the member's role, or a field of the template can't be used; the text names it.
    """
    at, role = _role(job, create.member)
    path = f"spec.roles[{at}].template"
    template = role.template.written
    spec = _completed_spec(job, create, template["spec"], f"{path}.spec")
    entries = {key: as_mappings(spec.get(key), f"{path}.spec.{key}") for key in _NAMED}
    worker = role.template.spec.containers.index(role.worker)
    refuse_reserved(entries, worker, f"{path}.spec")
    entries["containers"][worker] = supervised_container(
        entries["containers"][worker],
        f"{path}.spec.containers[{worker}]",
        uid=job.metadata.uid,
        create=create,
        told=_told(job, role),
        restart_all=restart_all,
    )
    if restart_all and role.template.spec.restart_policy == "OnFailure":
        entries |= {key: [_retried(one) for one in entries[key]] for key in ("initContainers", "containers")}
    sidecar = sidecar_container(
        settings,
        sidecar_resources(
            settings.sidecar_resources, [*entries["initContainers"], *entries["containers"]], spec.get("resources")
        ),
        as_mapping(spec.get("securityContext"), f"{path}.spec.securityContext"),
    )
    changes = {
        "restartPolicy": "Never" if restart_all else "OnFailure",
        "initContainers": [sidecar, *entries["initContainers"]],
        "containers": entries["containers"],
        "volumes": [*entries["volumes"], *sidecar_volumes(settings)],
    }
    secrets = pull_secrets(settings, as_mappings(spec.get("imagePullSecrets"), f"{path}.spec.imagePullSecrets"))
    if secrets:
        changes["imagePullSecrets"] = secrets
    metadata = _metadata(job, create, template.get("metadata"), f"{path}.metadata", role.worker.name)
    metadata["annotations"] |= contact.annotations()
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | changes}


def _retried(container: dict[str, Any]) -> dict[str, Any]:
    """The container, restarted if it fails, unless it says itself what is done then."""
    return container if container.get("restartPolicy") else {**container, "restartPolicy": "OnFailure"}


def _told(job: GangJob, role: Role) -> dict[str, str]:
    """What the supervisor is told about the worker of this role."""
    preload = preloaded(role.start)
    compilers = ",".join(one.value for one in kept_caches(job.spec, role))
    return {**({PRELOAD_VARIABLE: preload} if preload else {}), CACHES_VARIABLE: compilers}


def _completed_spec(job: GangJob, create: CreatePod, written: dict[str, Any], path: str) -> dict[str, Any]:
    """The spec with affinity, host name and grace period."""
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
    if wants_group(job):
        if spec.get("schedulingGroup"):
            raise Terminal(
                f"{path}.schedulingGroup: gangctl sets it, because spec.gangScheduling asks for a PodGroup; remove it "
                "here, or remove gangScheduling and create the PodGroup yourself"
            )
        spec["schedulingGroup"] = {"podGroupName": group_name(job)}
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
    raise Terminal(f"gang {job.metadata.name} has no role {name!r}")


def _metadata(job: GangJob, create: CreatePod, written: Any, path: str, worker: str) -> dict[str, Any]:
    gang, template = job.metadata, as_mapping(written, path)
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
        "labels": as_mapping(template.get("labels"), f"{path}.labels")
        | pod_labels(gang.name, gang.uid, create.member, create.incarnation),
        "annotations": as_mapping(template.get("annotations"), f"{path}.annotations") | _annotations(job, worker),
        **({"finalizers": template["finalizers"]} if template.get("finalizers") else {}),
        "ownerReferences": [owner],
    }


def _annotations(job: GangJob, worker: str) -> dict[str, str]:
    made = {ANNOTATION_ROLES_HASH: roles_hash(job.spec.roles), ANNOTATION_WORKER: worker}
    incident = next(iter(job.status.incidents), None)
    if incident is not None and incident.attempt == job.status.attempt:
        made[ANNOTATION_TRACEPARENT] = trace_parent(job, incident)
    return made
