"""What `gangctl why` reads on a cluster: the gang's pods and, if one waits for a node, nodes, other pods and volumes.

The rule: a right that is missing is no error. It is told with what can't be answered without it, and the rest is read.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import LABEL_UID
from gangctl.api.status import GangPhase
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, Forbidden, NotFound
from gangctl.cluster.kube.watch.projections import PODS
from gangctl.core.facts.world import Pod
from gangctl.explain.why import projection
from gangctl.explain.why.world import Claim, Cluster, MissingRight, SeenPod, Surroundings

LIST_SECONDS: Final = 60.0
PAGE: Final = 1000
MOST_CLAIMS: Final = 32
"""So many claims of the pods that wait are read."""
MOST_EVENTS: Final = 4
"""Of so many pods that don't start the events are read."""
_WAITING: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING})
_ON_NODES: Final = "status.phase!=Succeeded,status.phase!=Failed"


async def surroundings(client: Client, job: GangJob) -> Surroundings:
    """Read what is around one gang.

    Raises:
        ClusterError: a request failed for another reason than a missing right.
    """
    reader = _Reader(client, job.metadata.namespace)
    selector = {"labelSelector": f"{LABEL_UID}={job.metadata.uid}"}
    lacking = "which of its pods wait, and for what"
    body = await reader.get(paths.pods(reader.namespace), "list", "pods", lacking, query=selector)
    if body is None:
        return Surroundings(pods_known=False, missing=tuple(reader.missing))
    pods = tuple(one.pod for one in PODS.page(body).items)
    waiting: tuple[SeenPod, ...] = ()
    if job.status.phase in _WAITING:
        raw = [one for one in _items(body) if not projection.has_ended(one)]
        waiting = tuple(one for one in map(projection.pod, raw) if not one.node and not one.deleting)
    cluster = await _cluster(reader, waiting) if any(not one.gates for one in waiting) else None
    warnings = await _warnings(reader, pods) if job.status.phase in _WAITING else {}
    return Surroundings(
        pods=pods,
        waiting=waiting,
        cluster=cluster,
        warnings=warnings,
        missing=tuple(sorted(set(reader.missing), key=lambda one: (one.namespace, one.resource))),
    )


class _Reader:
    """Reads, and notes the rights that are missing."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.missing: list[MissingRight] = []

    async def get(
        self, path: str, verb: str, resource: str, lacking: str, *, query: Mapping[str, str] | None = None
    ) -> bytes | None:
        """The answer; None if the user lacks the right. ``lacking``: what can't be told then."""
        try:
            return await self._client.request("GET", path, query=query or {}, timeout=LIST_SECONDS)
        except Forbidden:
            namespace = self.namespace if f"/namespaces/{self.namespace}/" in path else ""
            self.missing.append(MissingRight(verb, resource, namespace, lacking))
            return None

    async def all(self, path: str, resource: str, lacking: str, **query: str) -> list[dict[str, Any]] | None:
        """All objects of a list, page by page; None if the user lacks the right."""
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            asked = {**query, "limit": str(PAGE), **({"continue": more} if more else {})}
            body = await self.get(path, "list", resource, lacking, query=asked)
            if body is None:
                return None
            found += _items(body)
            more = str((_object(body).get("metadata") or {}).get("continue") or "")
            if not more:
                return found

    async def one(self, path: str, resource: str, lacking: str) -> dict[str, Any] | None:
        """One object; None if the user lacks the right or it doesn't exist."""
        try:
            body = await self.get(path, "get", resource, lacking)
        except NotFound:
            return None
        return None if body is None else _object(body)


async def _cluster(reader: _Reader, waiting: Sequence[SeenPod]) -> Cluster | None:
    room = "which nodes have room, and what would have to move"
    nodes, pods, claims = await asyncio.gather(
        reader.all(paths.NODES, "nodes", room),
        reader.all(paths.pods(), "pods", room, fieldSelector=_ON_NODES),
        _claims(reader, waiting),
    )
    if nodes is None or pods is None:
        return None
    by_node = defaultdict[str, list[SeenPod]](list)
    for raw in pods:
        if (raw.get("spec") or {}).get("nodeName") and not projection.has_ended(raw):
            one = projection.pod(raw)
            by_node[one.node].append(one)
    return Cluster(tuple(map(projection.node, nodes)), {name: tuple(there) for name, there in by_node.items()}, claims)


async def _claims(reader: _Reader, waiting: Sequence[SeenPod]) -> dict[str, Claim]:
    names = list(dict.fromkeys(name for pod in waiting for name in pod.claims if name))[:MOST_CLAIMS]
    found = await asyncio.gather(*(_claim(reader, name) for name in names))
    return {one.name: one for one in found if one is not None}


async def _claim(reader: _Reader, name: str) -> Claim | None:
    """One claim with its volume, or with the class that makes it one; None if the user lacks the right."""
    folder = f"/api/v1/namespaces/{reader.namespace}/persistentvolumeclaims"
    try:
        body = await reader.get(f"{folder}/{name}", "get", "persistentvolumeclaims", "the state of its volumes")
    except NotFound:
        return projection.claim(name, None)
    if body is None:
        return None
    raw = _object(body)
    spec = raw.get("spec") or {}
    volume_name, class_name = spec.get("volumeName"), spec.get("storageClassName")
    volume = storage_class = None
    if volume_name:
        lacking = "on which nodes its volumes can be used"
        volume = await reader.one(f"/api/v1/persistentvolumes/{volume_name}", "persistentvolumes", lacking)
    elif class_name:
        path = f"/apis/storage.k8s.io/v1/storageclasses/{class_name}"
        storage_class = await reader.one(path, "storageclasses.storage.k8s.io", "whether its volumes wait for a pod")
    return projection.claim(name, raw, volume, storage_class)


async def _warnings(reader: _Reader, pods: Sequence[Pod]) -> dict[str, str]:
    """Pod -> the newest warning about it, for pods that have a node and don't start without telling why."""
    silent = [one for one in pods if one.scheduled_at is not None and one.started_at is None and not one.reason]
    found: dict[str, str] = {}
    for pod in silent[:MOST_EVENTS]:
        query = {"fieldSelector": f"involvedObject.uid={pod.uid},type=Warning"}
        path = f"/api/v1/namespaces/{reader.namespace}/events"
        body = await reader.get(path, "list", "events", "what the kubelet says of pods that don't start", query=query)
        if body is None:
            return found
        of_pod = [one for one in _items(body) if (one.get("involvedObject") or {}).get("uid") == pod.uid]
        newest = max(of_pod, key=_time, default=None)
        if newest is not None:
            found[pod.name] = f"{newest.get('reason') or 'Warning'}: {newest.get('message') or ''}"
    return found


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")


def _items(body: bytes) -> list[dict[str, Any]]:
    return [one for one in _object(body).get("items") or () if isinstance(one, dict)]


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise ClusterError("the API server's answer is no JSON: try again") from error
    return found if isinstance(found, dict) else {}
