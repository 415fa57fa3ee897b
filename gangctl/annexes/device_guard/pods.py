"""Guarded pods: they belong to no gang, and their label asks to evict them from unhealthy devices.

The rule: a pod of a gang is never among them, since its gang replaces it. A pod is evicted by name and UID, so that the
next pod of this name stays.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from gangctl.annexes.device_guard.policy import GuardedPod
from gangctl.api.names import LABEL_DEVICE_GUARD, LABEL_UID
from gangctl.cluster.errors import Conflict
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client, NotFound
from gangctl.cluster.kube.decoding import WatchDecoder
from gangctl.cluster.kube.events import EventRecorder
from gangctl.cluster.kube.reflector import NamespacedCopy, Reflector, WatchHealth, health
from gangctl.cluster.port import ObjectIdentity, PlainObject
from gangctl.core.lifecycle.plan import Event
from gangctl.kubernetes.containers import is_terminated
from gangctl.kubernetes.objects import read_devices
from gangctl.kubernetes.schema import RawPod

SELECTOR: Final = f"{LABEL_DEVICE_GUARD}=true,!{LABEL_UID}"


def _read(raw: RawPod) -> GuardedPod:
    metadata, status = raw.metadata, raw.status
    return GuardedPod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        node=raw.spec.node_name,
        devices=read_devices((*status.init_container_statuses, *status.container_statuses)),
        ending=metadata.deletion_timestamp is not None or is_terminated(raw),
        resource_version=metadata.resource_version,
    )


_PODS: Final = WatchDecoder(RawPod, _read)


class WatchedPods:
    """A watch of these pods, beside that of gangs' pods, and their eviction."""

    def __init__(self, client: Client, namespaces: Sequence[str], recorder: EventRecorder) -> None:
        """``namespaces``: the only ones to watch; none = all namespaces."""
        self.changed = asyncio.Event()
        """Set at each change; its reader clears it."""
        self._client = client
        self._recorder = recorder
        self._copy: NamespacedCopy[GuardedPod] = NamespacedCopy(
            namespaces,
            lambda one: Reflector(client, paths.pods(one), _PODS, self._on_change, selector=SELECTOR),
        )

    @property
    def pods(self) -> tuple[GuardedPod, ...]:
        """All of them, except where the API server refuses to show them now."""
        return tuple(found for one in self._copy.readable for found in one.items.values())

    @property
    def fresh(self) -> float | None:
        """Return since when every change was seen, in seconds since the epoch; None while a watch is broken."""
        times = [one.synced_since for one in self._copy.readable]
        return max(times) if all(times) else None

    @property
    def health(self) -> WatchHealth:
        """Return how fresh they are: of several namespaces, the least fresh."""
        return health("guardedpods", self._copy.reflectors.values())

    async def run(self) -> None:
        """Keep them fresh until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for one in self._copy.reflectors.values():
                tasks.create_task(one.run())

    async def evict(self, pod: GuardedPod) -> bool:
        """Request the eviction of a pod; return whether it was there.

        Raises:
            Held: a PodDisruptionBudget allows no eviction of it now.
            NoAnswer: it may be evicted, or not.
            ClusterError: it is not evicted for another reason.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._client.request("POST", paths.eviction(pod.namespace, pod.name), body=eviction)
        except (NotFound, Conflict):
            return False
        return True

    def tell(self, pod: GuardedPod, event: Event) -> None:
        """Record an Event of the pod.

        Raises:
            Retryable: too many Events wait.
        """
        self._recorder.record(PlainObject(ObjectIdentity(pod.uid, pod.namespace, pod.name)), event, "")

    def _on_change(self, _old: GuardedPod | None, _new: GuardedPod | None) -> None:
        self.changed.set()
