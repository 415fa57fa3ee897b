"""Projections: the values that are kept of pods, nodes and GangJobs.

The rule: what isn't needed for a decision is not kept, so that a change of it wakes nothing. What a pod's containers
show is read by ``gangctl/kubernetes/containers.py``.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_HUB_ADDRESS,
    ANNOTATION_HUB_CA,
    ANNOTATION_HUB_URL,
    KIND,
    LABEL_INCARNATION,
    LABEL_INDEX,
    LABEL_ROLE,
    LABEL_UID,
    member_name,
)
from gangctl.api.stored import read_compact
from gangctl.cluster.kube.decoding import TOO_DEEP, WatchDecoder, first_error
from gangctl.core.facts.world import Device, Pod
from gangctl.kubernetes import containers
from gangctl.kubernetes.containers import epoch_time
from gangctl.kubernetes.objects import Node, read_devices, read_node
from gangctl.kubernetes.schema import RawCondition, RawMetadata, RawNode, RawPod
from gangctl.kubernetes.signals import SignalTable
from gangctl.words.text import listed

MOST_APPLIED: Final = 64
"""Characters of the annotation that are kept."""
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
CONTACT: Final = (ANNOTATION_HUB_CA, ANNOTATION_HUB_URL, ANNOTATION_HUB_ADDRESS)
LONGEST_ANNOTATION: Final = 16_384
"""Characters. What is longer is kept as an empty text: a tenant may write 250 KB with a gang's label."""


@dataclass(frozen=True, slots=True)
class HubContact:
    """What a sidecar needs to reach the hub, in annotations of its pod."""

    ca: str = ""
    """The authorities that it trusts, PEM."""
    url: str = ""
    """Which name its certificate has, and where it is dialled."""
    address: str = ""
    """IP address of the hub's Service; empty = not known."""

    def annotations(self) -> dict[str, str]:
        return dict(zip(CONTACT, (self.ca, self.url, self.address), strict=True))


@dataclass(frozen=True, slots=True)
class KubePod:
    """A pod of a gang."""

    pod: Pod
    namespace: str
    gang: str
    """UID of the gang, by its label."""
    owner: str
    """UID of the GangJob that owns it; empty if none does."""
    phase: str = ""
    contact: HubContact | None = field(default=None, compare=False)
    """None = the pod has not all of its annotations."""
    resource_version: str = field(default="", compare=False)
    """Not compared: most changes of a pod don't matter here."""

    @property
    def uid(self) -> str:
        return self.pod.uid


@dataclass(frozen=True, slots=True)
class KubeGang:
    """A GangJob, readable or not."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    job: GangJob | None
    unreadable: str = ""
    """Why it can't be read."""
    ignored: tuple[str, ...] = ()
    """Fields that this release doesn't know."""
    deleting: bool = False
    template_bytes: int = 0
    """Size of its pod templates as JSON, all roles together."""
    queue: str = ""
    """The queue of Kueue that it names."""
    priority_class: str = ""
    """The priority class of Kueue that it names."""
    owner: str = ""
    """UID of the object that it was made from; empty if a user wrote it."""
    applied: str = ""
    """What the annotation of that object's controller says."""


def read_gang_pod(raw: RawPod) -> KubePod:
    """Read a pod of a gang.

    Raises:
        ValueError: its labels don't name its gang and member.
    """
    metadata, labels, status = raw.metadata, raw.metadata.labels, raw.status
    try:
        gang, member = labels[LABEL_UID], member_name(labels[LABEL_ROLE], int(labels[LABEL_INDEX]))
        incarnation = int(labels[LABEL_INCARNATION])
    except KeyError as error:
        raise ValueError(f"a pod with the label {LABEL_UID} has no label {error.args[0]}") from None
    scheduled = next((one for one in status.conditions if one.type == "PodScheduled"), None)
    ready = next((one for one in status.conditions if (one.type, one.status) == ("Ready", "True")), None)
    ended, (reason, detail) = containers.newest_end(raw), containers.reason(raw, scheduled)
    pod = Pod(
        name=metadata.name,
        uid=metadata.uid,
        member=member,
        incarnation=incarnation,
        node=raw.spec.node_name,
        created_at=epoch_time(metadata.creation_timestamp),
        scheduled_at=_scheduled_at(raw, scheduled),
        ready_at=None if ready is None else epoch_time(ready.last_transition_time),
        started_at=containers.started_at(raw),
        ended_at=epoch_time(ended.finished_at) if ended is not None else None,
        ended_reason="" if ended is None else ended.reason,
        last_words=containers.last_words(raw),
        start_failure=containers.start_failure(raw),
        restarts=containers.restart_count(raw),
        deleting=metadata.deletion_timestamp is not None,
        terminated=containers.is_terminated(raw),
        reason=reason,
        detail=detail,
        starting=containers.start_wait(raw),
        sidecar_end=containers.sidecar_end(raw),
        conditions=tuple((one.type, one.status, one.reason) for one in status.conditions),
        devices=_devices(raw),
    )
    owner = next((one.uid for one in metadata.owner_references if one.controller and one.kind == KIND), "")
    return KubePod(
        pod,
        metadata.namespace,
        gang,
        owner,
        status.phase,
        _contact(metadata.annotations),
        metadata.resource_version,
    )


def _devices(raw: RawPod) -> tuple[Device, ...]:
    return read_devices((*raw.status.init_container_statuses, *raw.status.container_statuses))


def _contact(annotations: Mapping[str, str]) -> HubContact | None:
    if ANNOTATION_HUB_CA not in annotations:
        return None
    # The same for all pods, so it is kept once.
    texts = (annotations.get(one, "") for one in CONTACT)
    return HubContact(*(sys.intern(text) if len(text) <= LONGEST_ANNOTATION else "" for text in texts))


def _scheduled_at(raw: RawPod, scheduled: RawCondition | None) -> float | None:
    if scheduled is not None and scheduled.status == "True":
        return epoch_time(scheduled.last_transition_time)
    return epoch_time(raw.metadata.creation_timestamp) if raw.spec.node_name else None


def _gang(raw: dict[str, Any]) -> KubeGang:
    metadata = RawMetadata.model_validate(raw.get("metadata"))
    deleting = metadata.deletion_timestamp is not None
    names = (metadata.uid, metadata.namespace, metadata.name, metadata.resource_version)
    owner = next((one.uid for one in metadata.owner_references if one.controller), "")
    try:
        read = read_compact(raw)
    except ValueError as error:
        return KubeGang(*names, None, _too_deep(raw) or first_error(error), deleting=deleting, owner=owner)
    stored, size = read.stored, read.template_bytes
    labels = metadata.labels
    return KubeGang(
        *names,
        stored.job,
        ignored=stored.ignored,
        deleting=deleting,
        template_bytes=size,
        queue=labels.get(LABEL_QUEUE, ""),
        priority_class=labels.get(LABEL_PRIORITY_CLASS, ""),
        owner=owner,
        applied=str((raw["metadata"].get("annotations") or {}).get(ANNOTATION_APPLIED, ""))[:MOST_APPLIED],
    )


def _too_deep(raw: dict[str, Any]) -> str:
    """Return which fields are nested too deeply to be read, in a sentence; empty if none is."""
    parts = ((name, raw.get(name)) for name in ("spec", "status"))
    deep = [f"{name}.{key}" for name, part in parts if isinstance(part, dict) for key in part if part[key] == TOO_DEEP]
    return f"{listed(deep)} {'is' if len(deep) == 1 else 'are'} {TOO_DEEP}" if deep else ""


PODS: Final = WatchDecoder(RawPod, read_gang_pod)
GANGS: Final = WatchDecoder(dict[str, Any], _gang)


def nodes(signals: SignalTable) -> WatchDecoder[Node]:
    return WatchDecoder(RawNode, partial(read_node, signals))
