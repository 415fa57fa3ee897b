"""Kueue's objects: how Workloads and ResourceFlavors are read, and the Workload of a gang with its changes. Pure.

The rule: v1beta1 and v1beta2 are read by the same code; the fields that are read have the same names in both. A
Workload belongs to a gang only if the GangJob owns it: its label alone must not count. It has one pod set for each
role, named after it, with as many pods as the role has members, spares included, and what a scheduler reads of their
template, the sidecar included. Its name is made of the gang's UID and the roles, so neither a gang of the same name nor
changed roles can be taken for it. A change of its status is made of the status that was read, and is refused if that
has changed.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import ANNOTATION_GROWS, ANNOTATION_ROLES_HASH, KIND, LABEL_INDEX, LABEL_UID, gang_selector
from gangctl.api.roles import roles_hash
from gangctl.cluster.kube.decoding import WatchDecoder
from gangctl.cluster.kube.owned import owner_reference
from gangctl.cluster.kube.projections import LABEL_PRIORITY_CLASS
from gangctl.core.facts.world import Workload
from gangctl.core.policy.admission import PodsAsked, QueueVerb, TellQueue
from gangctl.core.policy.quota import asked_at_first
from gangctl.kubernetes.schema import RawMetadata

WORKLOAD_PRIORITY_CLASS: Final = "WorkloadPriorityClass"


@dataclass(frozen=True, slots=True)
class PodSetPlace:
    """Where the queue wants the pods of a role."""

    flavors: tuple[str, ...] = ()
    """Names of ResourceFlavors."""
    updates: tuple[Mapping[str, Any], ...] = ()
    """What admission checks add: labels, annotations, nodeSelector, tolerations."""
    topology: str = ""
    """Name of the Workload if Kueue itself says which domain of its topology each pod goes to; else empty."""


@dataclass(frozen=True, slots=True)
class KubeWorkload:
    """A Workload of a gang."""

    uid: str
    namespace: str
    name: str
    gang: str
    """UID of the gang, by its label."""
    owner: str
    """UID of the GangJob that owns it; empty if none does."""
    workload: Workload
    places: Mapping[str, PodSetPlace] = field(default_factory=dict)
    """By role."""
    grows: int | None = None
    """The attempt that asks by it for members by which the gang grows; None = it asks for the gang."""
    deleting: bool = False
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class KubeFlavor:
    """A ResourceFlavor: the nodes that a quota is for."""

    uid: str
    name: str
    node_labels: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    resource_version: str = field(default="", compare=False)


def _workload(raw: dict[str, Any]) -> KubeWorkload:
    metadata = RawMetadata.model_validate(raw.get("metadata"))
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    evicted = is_true(conditions, "Evicted")
    admitted = is_true(conditions, "Admitted") and not evicted
    reserved = is_true(conditions, "QuotaReserved")
    # Once its quota is given back, Kueue says there why it isn't reserved again; the eviction is history by then.
    why = "" if admitted else _message(conditions, "Evicted" if evicted and reserved else "QuotaReserved")
    if not admitted and not evicted and reserved:
        why = _message(conditions, "Admitted") or "quota is reserved, and not all of its admission checks have passed"
    places = _places(metadata.name, status)
    owner = next((one.uid for one in metadata.owner_references if one.controller and one.kind == KIND), "")
    return KubeWorkload(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        gang=metadata.labels.get(LABEL_UID, ""),
        owner=owner,
        workload=Workload(
            queue=spec.get("queueName") or "",
            roles_hash=annotations.get(ANNOTATION_ROLES_HASH, ""),
            priority_class=metadata.labels.get(LABEL_PRIORITY_CLASS, ""),
            admitted=admitted,
            reserved=reserved,
            evicted=evicted,
            ready=is_true(conditions, "PodsReady"),
            ended=is_true(conditions, "Finished"),
            said=why,
            name=metadata.name,
            pods=_granted(spec, status),
            places_pods=any(one.topology for one in places.values()),
        ),
        places=places,
        grows=int(grows) if (grows := str(annotations.get(ANNOTATION_GROWS, ""))).isdecimal() else None,
        deleting=metadata.deletion_timestamp is not None,
        resource_version=metadata.resource_version,
    )


def is_true(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _message(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    return " ".join(str(conditions.get(kind, {}).get("message") or "").split())


def _places(name: str, status: Mapping[str, Any]) -> dict[str, PodSetPlace]:
    assigned = (status.get("admission") or {}).get("podSetAssignments") or ()
    checks: Sequence[Mapping[str, Any]] = status.get("admissionChecks") or ()
    updates = [update for check in checks for update in check.get("podSetUpdates") or ()]
    return {
        one["name"]: PodSetPlace(
            tuple(sorted(set((one.get("flavors") or {}).values()))),
            tuple(update for update in updates if update.get("name") == one["name"]),
            name if one.get("topologyAssignment") else "",
        )
        for one in assigned
    }


def _counts(spec: Mapping[str, Any]) -> dict[str, int]:
    """For how many pods of each role it asks."""
    return {one["name"]: one.get("count", 1) for one in spec.get("podSets") or ()}


def _granted(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, int]:
    """For how many pods of each role it has quota, as Kueue counts: of those admitted, as many as aren't given back."""
    counts = _counts(spec)
    back = {one["name"]: one["count"] for one in status.get("reclaimablePods") or ()}
    assigned = (status.get("admission") or {}).get("podSetAssignments") or ()
    taken = {one["name"]: one.get("count", counts.get(one["name"], 0)) for one in assigned}
    return {name: min(taken.get(name, count), count - back.get(name, 0)) for name, count in counts.items()}


def _flavor(raw: dict[str, Any]) -> KubeFlavor:
    metadata, spec = RawMetadata.model_validate(raw.get("metadata")), raw.get("spec") or {}
    return KubeFlavor(
        metadata.uid,
        metadata.name,
        spec.get("nodeLabels") or {},
        tuple(spec.get("tolerations") or ()),
        metadata.resource_version,
    )


WORKLOADS: Final = WatchDecoder(dict[str, Any], _workload)
FLAVORS: Final = WatchDecoder(dict[str, Any], _flavor)


KUEUE_GROUP: Final = "kueue.x-k8s.io"
TOPOLOGY_GATE: Final = f"{KUEUE_GROUP}/topology"
"""A pod with this gate waits until Kueue has named its domain. It can't avoid a node that Kueue names."""
KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1")
"""The versions of Kueue's API that are spoken, the preferred one first."""
MAX_MESSAGE: Final = 1024
_SCHEDULED: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
"""The fields of a pod that say where it can run and what it takes there."""
_CONTAINER: Final = ("name", "image", "ports", "resources", "restartPolicy")
"""Kueue makes a PodTemplate of it for an autoscaler, and the API server takes none without images."""
_TOPOLOGY: Final = {
    f"{KUEUE_GROUP}/podset-required-topology": "required",
    f"{KUEUE_GROUP}/podset-preferred-topology": "preferred",
    f"{KUEUE_GROUP}/podset-unconstrained-topology": "unconstrained",
    f"{KUEUE_GROUP}/podset-slice-required-topology": "podSetSliceRequiredTopology",
    f"{KUEUE_GROUP}/podset-slice-size": "podSetSliceSize",
    f"{KUEUE_GROUP}/podset-group-name": "podSetGroupName",
}
"""Annotation of a template -> field of the topologyRequest of its pod set."""
_UNCONSTRAINED: Final = f"{KUEUE_GROUP}/podset-unconstrained-topology"
_SOMEWHERE: Final = {key for key, field in _TOPOLOGY.items() if field in {"required", "preferred", "unconstrained"}}
"""Kueue ungates only pods with one of these annotations."""
_REQUEUED: Final = frozenset({"Preempted", "NodeFailures"})
"""Evicted for one of these reasons, a Workload is queued again at once; otherwise Kueue says when."""


@dataclass(frozen=True, slots=True)
class Priority:
    """The priority of a gang in its queue."""

    kind: str
    """WorkloadPriorityClass or PriorityClass."""
    name: str
    value: int


def workload_name(job: GangJob) -> str:
    """The name of the Workload that asks for the pods of these roles."""
    made = hashlib.sha256(f"{job.metadata.uid} {roles_hash(job.spec.roles)}".encode()).hexdigest()[:10]
    return f"gangjob-{job.metadata.name}-{made}"


def new_workload(
    job: GangJob,
    version: str,
    queue: str,
    priority: Priority | None,
    pods: Mapping[str, Mapping[str, Any]],
    more: tuple[PodsAsked, ...] = (),
) -> dict[str, Any]:
    """The object to create, as JSON values.

    Args:
        job: the gang.
        version: of Kueue's API.
        queue: that it names.
        priority: in its queue.
        pods: the pod of a member of each role.
        more: the members that it asks for so that the gang grows; empty = it asks for the gang.
    """
    gang, attempt = job.metadata, str(job.status.attempt)
    labels = {**gang_selector(gang.uid), f"{KUEUE_GROUP}/job-uid": gang.uid}
    if priority is not None and priority.kind == WORKLOAD_PRIORITY_CLASS:
        labels[LABEL_PRIORITY_CLASS] = priority.name
    return {
        "apiVersion": f"{KUEUE_GROUP}/{version}",
        "kind": "Workload",
        "metadata": {
            "name": f"{workload_name(job)}-{attempt}" if more else workload_name(job),
            "namespace": gang.namespace,
            "labels": labels,
            "annotations": {
                ANNOTATION_ROLES_HASH: roles_hash(job.spec.roles),
                **({ANNOTATION_GROWS: attempt} if more else {}),
            },
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "queueName": queue,
            "podSets": [_pod_set(one, pods[one.role]) for one in more or asked_at_first(job.spec)],
            **({} if priority is None else _priority(version, priority)),
        },
    }


def _pod_set(asked: PodsAsked, pod: Mapping[str, Any]) -> dict[str, Any]:
    topology = _topology_request(pod["metadata"].get("annotations") or {})
    fewer = {"minCount": asked.least} if asked.least < asked.pods and not topology else {}
    return {"name": asked.role, "count": asked.pods, **fewer, "template": {"spec": _asked(pod["spec"])}, **topology}


def _topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """What the template's annotations ask of the topology, as Kueue reads them of a Job's template."""
    made: dict[str, Any] = {field: annotations[key] for key, field in _TOPOLOGY.items() if key in annotations}
    if not made:
        return {}
    if "unconstrained" in made:
        made["unconstrained"] = made["unconstrained"] == "true"
    if (size := str(made.pop("podSetSliceSize", ""))).isdecimal():
        made["podSetSliceSize"] = int(size)
    return {"topologyRequest": made | {"podIndexLabel": LABEL_INDEX}}


def _asked(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: spec[key] for key in _SCHEDULED if spec.get(key)},
        **{
            kind: [{key: one[key] for key in _CONTAINER if one.get(key)} for one in spec[kind]]
            for kind in ("initContainers", "containers")
            if spec.get(kind)
        },
    }


def _priority(version: str, one: Priority) -> dict[str, Any]:
    group = KUEUE_GROUP if one.kind == WORKLOAD_PRIORITY_CLASS else "scheduling.k8s.io"
    if version == "v1beta1":
        source = f"{group}/{one.kind.lower()}"
        return {"priorityClassName": one.name, "priorityClassSource": source, "priority": one.value}
    return {"priorityClassRef": {"group": group, "kind": one.kind, "name": one.name}, "priority": one.value}


def status_change(stored: Mapping[str, Any], tell: TellQueue, now: datetime) -> dict[str, Any] | None:
    """The merge patch of the status of a stored Workload; None if nothing is to be changed."""
    verb, text = tell.verb, tell.text
    version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
    if verb is QueueVerb.GIVE:
        old, given = (stored.get("status") or {}).get("reclaimablePods") or [], _reclaimable(stored["spec"], tell.pods)
        return {"metadata": version, "status": {"reclaimablePods": given}} if given != old else None
    conditions = {one["type"]: dict(one) for one in (stored.get("status") or {}).get("conditions") or ()}
    metadata, admission = stored["metadata"], {}
    generation = metadata.get("generation", 0)

    def put(kind: str, reason: str, message: str, *, state: bool) -> None:
        old, value = conditions.get(kind), "True" if state else "False"
        since = old["lastTransitionTime"] if old is not None and old["status"] == value else _rfc3339(now)
        conditions[kind] = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "lastTransitionTime": since,
            "observedGeneration": generation,
        }

    match verb:
        case QueueVerb.READY if not is_true(conditions, "PodsReady"):
            put("PodsReady", "Started", text, state=True)
        case QueueVerb.RELEASE if is_true(conditions, "Evicted") and is_true(conditions, "QuotaReserved"):
            evicted = conditions["Evicted"]
            again = evicted.get("reason") in _REQUEUED
            put("Requeued", evicted.get("reason") or "Evicted", evicted.get("message") or "", state=again)
            put("QuotaReserved", "Pending", evicted.get("message") or "", state=False)
            put("Admitted", "NoReservation", "The workload has no reservation", state=False)
            put("PodsReady", "WaitForStart", text, state=False)
            admission = {"admission": None, "reclaimablePods": None}
        case QueueVerb.SUCCEED | QueueVerb.FAIL if not is_true(conditions, "Finished"):
            put("Finished", "Succeeded" if verb is QueueVerb.SUCCEED else "Failed", text, state=True)
        case _:
            return None
    return {"metadata": version, "status": {"conditions": list(conditions.values()), **admission}}


def _reclaimable(spec: Mapping[str, Any], kept: Iterable[PodsAsked]) -> list[dict[str, Any]]:
    counts = _counts(spec)
    back = [(one.role, counts.get(one.role, 0) - one.pods) for one in kept]
    return [{"name": role, "count": count} for role, count in back if count > 0]


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def place_pod(
    pod: Mapping[str, Any], role: str, place: PodSetPlace, flavor: Callable[[str], KubeFlavor | None]
) -> dict[str, Any]:
    """Put the pod where the queue has quota: on the nodes of its flavors, with what admission checks add.

    Where Kueue knows the topology, the pod waits for it to name the domain.

    Raises:
        LookupError: a flavor isn't known; the text is its name.
    """
    found = []
    for name in place.flavors:
        one = flavor(name)
        if one is None:
            raise LookupError(name)
        found.append(one)
    spec, metadata = dict(pod["spec"]), dict(pod["metadata"])
    selectors = [*(one.node_labels for one in found), *(one.get("nodeSelector") or {} for one in place.updates)]
    tolerations = [
        *(one for flavor in found for one in flavor.tolerations),
        *(one for update in place.updates for one in update.get("tolerations") or ()),
    ]
    if any(selectors):
        spec["nodeSelector"] = _merged([spec.get("nodeSelector") or {}, *selectors])
    if tolerations:
        own = spec.get("tolerations") or []
        spec["tolerations"] = [*own, *(one for one in tolerations if one not in own)]
    for key in ("labels", "annotations"):
        added = _merged([one.get(key) or {} for one in place.updates])
        if added:
            metadata[key] = added | metadata.get(key, {})
    if place.topology:
        spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": TOPOLOGY_GATE}]
        metadata["labels"] = {**metadata.get("labels", {}), f"{KUEUE_GROUP}/podset": role}
        annotations = {f"{KUEUE_GROUP}/workload": place.topology, **metadata.get("annotations", {})}
        if not annotations.keys() & _SOMEWHERE:
            annotations[_UNCONSTRAINED] = "true"
        metadata["annotations"] = annotations
    return {**pod, "metadata": metadata, "spec": spec}


def _merged(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    made: dict[str, str] = {}
    for one in several:
        made |= one
    return made
