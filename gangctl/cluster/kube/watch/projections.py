"""Projections: the values that are kept of pods, nodes and GangJobs.

The rule: of a pod's containers, only the worker's and those of gangctl are judged, and what must end before the worker
can start. A container that a user puts beside the worker may end, fail or restart as it likes: that must neither be a
fault nor keep a deadline from running. Its pod has terminated when all of them have.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gangctl.api.compact import read_compact
from gangctl.api.gangjob import GangJob
from gangctl.api.names import (
    ANNOTATION_HUB_ADDRESS,
    ANNOTATION_HUB_CA,
    ANNOTATION_WORKER,
    LABEL_INCARNATION,
    LABEL_INDEX,
    LABEL_ROLE,
    LABEL_UID,
    SIDECAR,
    member_name,
)
from gangctl.api.version import KIND
from gangctl.cluster.kube.watch.decoding import TOO_DEEP, Decoder, first_error
from gangctl.cluster.kube.watch.schema import (
    RawCondition,
    RawContainerStatus,
    RawMetadata,
    RawNode,
    RawPod,
    RawPodStatus,
    RawRunning,
    RawState,
    RawTerminated,
)
from gangctl.core.facts.text import listed
from gangctl.core.facts.world import Device, LastWords, Pod
from gangsidecar.wire import from_words

RESTARTS_ALL: Final = "RestartAllContainersOnContainerExits"
"""The feature that a node declares if it can restart all containers of a pod at once (KEP-5532)."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint with which an administrator marks a node as down, so that its pods no longer run."""
_WRITE_PHASES: Final = frozenset({"DeletionByPodGC", "DeletionByTaintManager"})
"""Reasons of DisruptionTarget with which the control plane, and not the kubelet, ends a pod whose node may be lost."""
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that are no problem."""


@dataclass(frozen=True, slots=True)
class HubContact:
    """What a sidecar needs to reach the hub, in annotations of its pod."""

    ca: str = ""
    """The authorities that it trusts, PEM."""
    address: str = ""
    """IP address of the hub's Service; empty = not known."""

    def annotations(self) -> dict[str, str]:
        """The annotations."""
        return {ANNOTATION_HUB_CA: self.ca, ANNOTATION_HUB_ADDRESS: self.address}


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
    ip: str = ""
    contact: HubContact | None = field(default=None, compare=False)
    """None = a pod of an older release, which has none."""
    resource_version: str = field(default="", compare=False)
    """Not compared: most changes of a pod don't matter here."""

    @property
    def uid(self) -> str:
        """UID of the pod."""
        return self.pod.uid


@dataclass(frozen=True, slots=True)
class KubeNode:
    """A node."""

    uid: str
    name: str
    lost: bool
    """Whether its kubelet is silent, or an administrator has marked it as down. A node that is only not ready still
    answers."""
    schedulable: bool
    restarts_all: bool
    """Whether it can restart all containers of a pod at once."""
    resource_version: str = field(default="", compare=False)


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


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()


def _pod(raw: RawPod) -> KubePod:
    """The projection of a pod; raises ValueError if its labels don't name its gang and member."""
    metadata, labels, status = raw.metadata, raw.metadata.labels, raw.status
    try:
        gang, member = labels[LABEL_UID], member_name(labels[LABEL_ROLE], int(labels[LABEL_INDEX]))
        incarnation = int(labels[LABEL_INCARNATION])
    except KeyError as error:
        raise ValueError(f"a pod with the label {LABEL_UID} has no label {error.args[0]}") from None
    scheduled = next((one for one in status.conditions if one.type == "PodScheduled"), None)
    ended = _newest_end(raw)
    pod = Pod(
        name=metadata.name,
        uid=metadata.uid,
        member=member,
        incarnation=incarnation,
        node=raw.spec.node_name,
        created_at=_seconds(metadata.creation_timestamp),
        scheduled_at=_scheduled_at(raw, scheduled),
        started_at=_started_at(raw),
        ended_at=_seconds(ended.finished_at) if ended is not None else None,
        ended_reason="" if ended is None else ended.reason,
        last_words=_last_words(raw),
        restarts=max((one.restart_count for one in _judged(raw)), default=0),
        deleting=metadata.deletion_timestamp is not None,
        terminated=_is_terminated(raw),
        reason=_reason(raw, scheduled),
        conditions=tuple((one.type, one.status, one.reason) for one in status.conditions),
        devices=_devices(status),
    )
    owner = next((one.uid for one in metadata.owner_references if one.controller and one.kind == KIND), "")
    return KubePod(
        pod,
        metadata.namespace,
        gang,
        owner,
        status.phase,
        status.pod_ip,
        _contact(metadata.annotations),
        metadata.resource_version,
    )


def _contact(annotations: Mapping[str, str]) -> HubContact | None:
    if ANNOTATION_HUB_CA not in annotations:
        return None
    # The same for all pods, so it is kept once.
    return HubContact(*(sys.intern(annotations.get(one, "")) for one in (ANNOTATION_HUB_CA, ANNOTATION_HUB_ADDRESS)))


def _worker(raw: RawPod) -> tuple[RawContainerStatus, ...]:
    """The worker's container. A pod that an older release made doesn't name it: there it may be any."""
    name, statuses = raw.metadata.annotations.get(ANNOTATION_WORKER), raw.status.container_statuses
    return statuses if name is None else tuple(one for one in statuses if one.name == name)


def _judged(raw: RawPod) -> tuple[RawContainerStatus, ...]:
    """The worker's container, gangctl's, and the init containers: all but the containers and sidecars beside them."""
    beside = {one.name for one in raw.spec.init_containers if one.restart_policy == "Always"} - {SIDECAR}
    return (*(one for one in raw.status.init_container_statuses if one.name not in beside), *_worker(raw))


def _scheduled_at(raw: RawPod, scheduled: RawCondition | None) -> float | None:
    if scheduled is not None and scheduled.status == "True":
        return _seconds(scheduled.last_transition_time)
    return _seconds(raw.metadata.creation_timestamp) if raw.spec.node_name else None


def _started_at(raw: RawPod) -> float | None:
    """The last start of the worker's container and of gangctl's sidecar; None while one of them doesn't run."""
    statuses = {one.name: one for one in (*raw.status.init_container_statuses, *_worker(raw))}
    worker = raw.metadata.annotations.get(ANNOTATION_WORKER)
    needed = [one.name for one in raw.spec.containers] if worker is None else [worker]
    needed += [one.name for one in raw.spec.init_containers if one.name == SIDECAR]
    times: list[float] = []
    for name in needed:
        status = statuses.get(name)
        if status is None:
            return None
        match status.state:
            case RawState(running=RawRunning(started_at=time)) if status.started is not False:
                times.append(_seconds(time))
            case RawState(terminated=RawTerminated(exit_code=0, started_at=time)):
                times.append(_seconds(time))
            case _:
                return None
    return max(times, default=None)


def _newest_end(raw: RawPod) -> RawTerminated | None:
    """The newest end of the worker's container.

    Of ends in the same second, it is the one with the most specific reason.
    """
    ends = [
        end
        for one in _worker(raw)
        for end in (one.state.terminated, one.last_state.terminated)
        if end is not None and end.finished_at is not None
    ]
    specific = {"Error": False, "Completed": False}
    return max(ends, key=lambda end: (_seconds(end.finished_at), specific.get(end.reason, True)), default=None)


def _last_words(raw: RawPod) -> LastWords | None:
    """What the newest supervisor that left words said: only the worker's container has such a termination message."""
    found = [
        LastWords(_seconds(end.finished_at), ends)
        for one in _worker(raw)
        for end in (one.state.terminated, one.last_state.terminated)
        if end is not None and end.finished_at is not None and (ends := from_words(end.message))
    ]
    return max(found, key=lambda words: words.at, default=None)


def _is_terminated(raw: RawPod) -> bool:
    """Whether no container of the pod runs, or will run again.

    Ended containers alone don't prove it, since the kubelet may start them again: when all containers restart, all have
    ended for a moment. A phase alone proves it unless another controller has written it, for a node that is lost: then
    each container must have ended, which only a kubelet writes.
    """
    statuses = (*raw.status.init_container_statuses, *raw.status.container_statuses)
    if any(one.state.running is not None for one in statuses):
        return False
    is_over = raw.status.phase in {"Succeeded", "Failed"}
    reasons = {one.reason for one in raw.status.conditions if one.type == "DisruptionTarget"}
    if is_over and not reasons & _WRITE_PHASES:
        return True
    ended = {one.name for one in statuses if one.state.terminated is not None}
    is_ending = is_over or raw.metadata.deletion_timestamp is not None
    return is_ending and {one.name for one in (*raw.spec.init_containers, *raw.spec.containers)} <= ended


def _reason(raw: RawPod, scheduled: RawCondition | None) -> str:
    status = raw.status
    if status.reason:
        return status.reason
    needed = (*status.init_container_statuses, *_worker(raw))  # A user's sidecar may keep the worker from starting.
    waiting = [one.state.waiting.reason for one in needed if one.state.waiting is not None]
    ended = [one.state.terminated.reason for one in _judged(raw) if one.state.terminated is not None]
    found = [reason for reason in waiting if reason and reason not in _STARTING]
    found += sorted((reason for reason in ended if reason and reason != "Completed"), key=lambda one: one == "Error")
    if not found and scheduled is not None and scheduled.status != "True":
        return scheduled.message or scheduled.reason
    return next(iter(found), "")


def _devices(status: RawPodStatus) -> tuple[Device, ...]:
    found = {
        (allocated.name, one.resource_id): Device(allocated.name, one.resource_id, one.health or "Unknown")
        for container in (*status.init_container_statuses, *status.container_statuses)
        for allocated in container.allocated_resources_status
        for one in allocated.resources
    }
    return tuple(found.values())


def _node(raw: RawNode) -> KubeNode:
    ready = next((one.status for one in raw.status.conditions if one.type == "Ready"), "")
    return KubeNode(
        uid=raw.metadata.uid,
        name=raw.metadata.name,
        lost=ready == "Unknown" or any(one.key == OUT_OF_SERVICE for one in raw.spec.taints),
        schedulable=not raw.spec.unschedulable and ready == "True",
        restarts_all=RESTARTS_ALL in raw.status.declared_features,
        resource_version=raw.metadata.resource_version,
    )


def _gang(raw: dict[str, Any]) -> KubeGang:
    metadata = RawMetadata.model_validate(raw.get("metadata"))
    deleting = metadata.deletion_timestamp is not None
    names = (metadata.uid, metadata.namespace, metadata.name, metadata.resource_version)
    try:
        read = read_compact(raw)
    except ValueError as error:
        return KubeGang(*names, None, _too_deep(raw) or first_error(error), deleting=deleting)
    stored, size = read.stored, read.template_bytes
    return KubeGang(*names, stored.job, ignored=stored.ignored, deleting=deleting, template_bytes=size)


def _too_deep(raw: dict[str, Any]) -> str:
    """Which fields are nested too deeply to be read, in a sentence; empty if none is."""
    parts = ((name, raw.get(name)) for name in ("spec", "status"))
    deep = [f"{name}.{key}" for name, part in parts if isinstance(part, dict) for key in part if part[key] == TOO_DEEP]
    return f"{listed(deep)} {'is' if len(deep) == 1 else 'are'} {TOO_DEEP}" if deep else ""


PODS: Final = Decoder(RawPod, _pod)
NODES: Final = Decoder(RawNode, _node)
GANGS: Final = Decoder(dict[str, Any], _gang)
