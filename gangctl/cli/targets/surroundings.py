"""Read for `gangctl why` the gang's pods and, if one waits for a node, nodes, other pods and volumes of the cluster.

The rule: a missing right isn't an error. The answer names it with what stays unknown without it, and the rest is
read.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from gangctl.api.gangjob import GangJob
from gangctl.api.names import LABEL_UID
from gangctl.api.status import GangPhase
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, Forbidden, NotFound
from gangctl.cluster.kube.decoding import Decoder
from gangctl.cluster.kube.projections import nodes, read_gang_pod
from gangctl.cluster.kube.reflector import list_all
from gangctl.core.facts.world import Pod
from gangctl.explain.why.world import Claim, GangSurroundings, Inventory, MissingRight, read_claim
from gangctl.kubernetes.device_taints import read_devices, read_rule, tainted_devices
from gangctl.kubernetes.objects import RESOURCE_CLAIMS, WholePod, read_pod
from gangctl.kubernetes.schema import RawWholePod
from gangctl.kubernetes.signals import SignalTable, default_rows

V = TypeVar("V")
MOST_CLAIMS: Final = 32
"""So many claims of the pods that wait are read."""
MOST_EVENTS: Final = 4
"""Of so many pods that don't start the events are read."""
_VERSIONS: Final = ("v1", "v1beta2")
"""Of resource.k8s.io, the newest first: DeviceTaintRules of Kubernetes 1.37 and 1.36."""
_WAITING: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING})
_ON_NODES: Final = "status.phase!=Succeeded,status.phase!=Failed"
_GANG_PODS: Final = Decoder(RawWholePod, lambda raw: (read_gang_pod(raw).pod, raw))
_PODS: Final = Decoder(RawWholePod, read_pod)
_EVENTS: Final = Decoder(dict[str, Any], dict[str, Any])


async def surroundings(client: Client, job: GangJob) -> GangSurroundings:
    """Read what is around one gang.

    Raises:
        ClusterError: a request failed for another reason than a missing right.
    """
    reader, is_waiting = _Reader(client, job.metadata.namespace), job.status.phase in _WAITING
    selector, unknown = f"{LABEL_UID}={job.metadata.uid}", "which of its pods wait, and for what"
    found = await reader.list(paths.pods(reader.namespace), _GANG_PODS, "pods", unknown, labelSelector=selector)
    if found is None:
        return GangSurroundings(pods_known=False, missing=tuple(reader.missing))
    pods = tuple(pod for pod, _ in found)
    placeless = (read_pod(raw) for pod, raw in found if is_waiting and not pod.node)
    waiting = tuple(one for one in placeless if not (one.ended or one.deleting))
    cluster = await _cluster(reader, waiting) if any(not one.gates for one in waiting) else None
    warnings = await _warnings(reader, pods) if is_waiting else {}
    return GangSurroundings(
        pods=pods,
        waiting=waiting,
        cluster=cluster,
        warnings=warnings,
        missing=tuple(sorted(set(reader.missing), key=lambda one: (one.namespace, one.resource))),
    )


class _Reader:
    """Reads, and notes the rights that are missing. ``unknown`` says what can't be answered without them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.missing: list[MissingRight] = []

    async def list(
        self, path: str, decoder: Decoder[V], resource: str, unknown: str, **query: str
    ) -> tuple[V, ...] | None:
        """List all objects; None if the user lacks the right."""
        try:
            return (await list_all(self._client, path, decoder, query)).items
        except Forbidden:
            self._note(path, "list", resource, unknown)
            return None

    async def get(self, path: str, resource: str, unknown: str) -> dict[str, Any] | None:
        """Read one object; None if the user lacks the right.

        Raises:
            NotFound: there is none.
        """
        try:
            return await self._client.get(path)
        except Forbidden:
            self._note(path, "get", resource, unknown)
            return None

    def _note(self, path: str, verb: str, resource: str, unknown: str) -> None:
        namespace = self.namespace if f"/namespaces/{self.namespace}/" in path else ""
        self.missing.append(MissingRight(verb, resource, namespace, unknown))


async def _cluster(reader: _Reader, waiting: Sequence[WholePod]) -> Inventory | None:
    room = "which nodes have room, and what would have to move"
    found, pods, claims, tainted = await asyncio.gather(
        reader.list(paths.NODES, nodes(SignalTable(default_rows())), "nodes", room),
        reader.list(paths.pods(), _PODS, "pods", room, fieldSelector=_ON_NODES),
        _claims(reader, waiting),
        _tainted(reader, waiting),
    )
    if found is None or pods is None:
        return None
    by_node = defaultdict[str, list[WholePod]](list)
    for pod in pods:
        if pod.node and not pod.ended:
            by_node[pod.node].append(pod)
    return Inventory(found, {name: tuple(there) for name, there in by_node.items()}, claims, tainted)


async def _tainted(reader: _Reader, waiting: Sequence[WholePod]) -> Mapping[str, tuple[str, ...]]:
    """Node -> its tainted devices, if a pod has resource claims. An older cluster serves less, or nothing."""
    if not any(RESOURCE_CLAIMS in pod.unread for pod in waiting):
        return {}
    slices = await _devices(reader, "resourceslices", read_devices)
    return tainted_devices(slices, await _devices(reader, "devicetaintrules", read_rule) if slices else ())


async def _devices(reader: _Reader, plural: str, read: Callable[[Mapping[str, Any]], V]) -> Sequence[V]:
    for version in _VERSIONS:
        path, decoder = f"/apis/resource.k8s.io/{version}/{plural}", Decoder(dict[str, Any], read)
        with suppress(NotFound):
            unknown = "which devices are tainted"
            return await reader.list(path, decoder, f"{plural}.resource.k8s.io", unknown) or ()
    return ()


async def _claims(reader: _Reader, waiting: Sequence[WholePod]) -> dict[str, Claim]:
    names = list(dict.fromkeys(name for pod in waiting for name in pod.claims if name))[:MOST_CLAIMS]
    found = await asyncio.gather(*(_claim(reader, name) for name in names))
    return {one.name: one for one in found if one is not None}


async def _claim(reader: _Reader, name: str) -> Claim | None:
    """Read a claim with its volume, or with the class that makes it one; None if the user lacks the right."""
    folder = f"/api/v1/namespaces/{reader.namespace}/persistentvolumeclaims"
    try:
        raw = await reader.get(f"{folder}/{name}", "persistentvolumeclaims", "the state of its volumes")
    except NotFound:
        return read_claim(name, None)
    if raw is None:
        return None
    spec = raw.get("spec") or {}
    volume = storage_class = None
    with suppress(NotFound):
        if spec.get("volumeName"):
            unknown = "on which nodes its volumes can be used"
            path = f"/api/v1/persistentvolumes/{spec['volumeName']}"
            volume = await reader.get(path, "persistentvolumes", unknown)
        elif spec.get("storageClassName"):
            path = f"/apis/storage.k8s.io/v1/storageclasses/{spec['storageClassName']}"
            unknown = "whether its volumes wait for a pod"
            storage_class = await reader.get(path, "storageclasses.storage.k8s.io", unknown)
    return read_claim(name, raw, volume, storage_class)


async def _warnings(reader: _Reader, pods: Sequence[Pod]) -> dict[str, str]:
    """Find the newest warning about each pod, by name, that has a node and doesn't start without saying why."""
    silent = [one for one in pods if one.scheduled_at is not None and one.started_at is None and not one.reason]
    found: dict[str, str] = {}
    for pod in silent[:MOST_EVENTS]:
        path, unknown = (
            f"/api/v1/namespaces/{reader.namespace}/events",
            "what the kubelet says of pods that don't start",
        )
        selector = f"involvedObject.uid={pod.uid},type=Warning"
        events = await reader.list(path, _EVENTS, "events", unknown, fieldSelector=selector)
        if events is None:
            return found
        of_pod = [one for one in events if (one.get("involvedObject") or {}).get("uid") == pod.uid]
        newest = max(of_pod, key=_time, default=None)
        if newest is not None:
            found[pod.name] = f"{newest.get('reason') or 'Warning'}: {newest.get('message') or ''}"
    return found


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")
