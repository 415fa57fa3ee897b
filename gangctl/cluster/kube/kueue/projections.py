"""Projections of Kueue's objects: what a decision or a pod needs of Workloads and ResourceFlavors.

The rule: v1beta1 and v1beta2 are read by the same code; the fields that are read have the same names in both. A
Workload belongs to a gang only if the GangJob owns it: its label alone must not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gangctl.api.names import ANNOTATION_ROLES_HASH, LABEL_UID
from gangctl.api.version import KIND
from gangctl.cluster.kube.watch.decoding import Decoder
from gangctl.cluster.kube.watch.projections import LABEL_PRIORITY_CLASS
from gangctl.cluster.kube.watch.schema import RawMetadata
from gangctl.core.facts.world import Workload

WORKLOAD_PRIORITY_CLASS: Final = "WorkloadPriorityClass"


@dataclass(frozen=True, slots=True)
class PodSetPlace:
    """Where the queue wants the pods of a role."""

    flavors: tuple[str, ...] = ()
    """Names of ResourceFlavors."""
    updates: tuple[Mapping[str, Any], ...] = ()
    """What admission checks add: labels, annotations, nodeSelector, tolerations."""


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
    evicted = holds(conditions, "Evicted")
    admitted = holds(conditions, "Admitted") and not evicted
    reserved = holds(conditions, "QuotaReserved")
    # Once its quota is given back, Kueue says there why it isn't reserved again; the eviction is history by then.
    why = "" if admitted else _message(conditions, "Evicted" if evicted and reserved else "QuotaReserved")
    if not admitted and not evicted and reserved:
        why = _message(conditions, "Admitted") or "quota is reserved, and not all of its admission checks have passed"
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
            ready=holds(conditions, "PodsReady"),
            ended=holds(conditions, "Finished"),
            said=why,
        ),
        places=_places(status),
        deleting=metadata.deletion_timestamp is not None,
        resource_version=metadata.resource_version,
    )


def holds(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    """Whether the condition of this type is True."""
    return conditions.get(kind, {}).get("status") == "True"


def _message(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    return " ".join(str(conditions.get(kind, {}).get("message") or "").split())


def _places(status: Mapping[str, Any]) -> dict[str, PodSetPlace]:
    assigned = (status.get("admission") or {}).get("podSetAssignments") or ()
    checks: Sequence[Mapping[str, Any]] = status.get("admissionChecks") or ()
    updates = [update for check in checks for update in check.get("podSetUpdates") or ()]
    return {
        one["name"]: PodSetPlace(
            tuple(sorted(set((one.get("flavors") or {}).values()))),
            tuple(update for update in updates if update.get("name") == one["name"]),
        )
        for one in assigned
    }


def _flavor(raw: dict[str, Any]) -> KubeFlavor:
    metadata, spec = RawMetadata.model_validate(raw.get("metadata")), raw.get("spec") or {}
    return KubeFlavor(
        metadata.uid,
        metadata.name,
        spec.get("nodeLabels") or {},
        tuple(spec.get("tolerations") or ()),
        metadata.resource_version,
    )


WORKLOADS: Final = Decoder(dict[str, Any], _workload)
FLAVORS: Final = Decoder(dict[str, Any], _flavor)
