"""What the cluster looks like now: GangJobs, their pods and the nodes, each kept by a reflector, found by gang.

The rule: nothing is shown before all three were listed, since a gang without its pods would look like one that has lost
them all. Never does a pod count as a gang's because it says so: its GangJob has to own it, in its own namespace.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import LABEL_UID
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch.projections import GANGS, NODES, PODS, KubeGang, KubeNode, KubePod
from gangctl.cluster.kube.watch.reflector import Reflector

log = logging.getLogger(__name__)

UNSEEN_SECONDS: Final = 30.0
"""A pod that was scheduled so long ago to a node that isn't there is on a node that was deleted."""
STALE_SECONDS: Final = 30.0
"""A watch that has been broken for so long is a problem of its own: shorter breaks are daily life."""
NO_CRD: Final = (
    "this cluster doesn't know GangJobs: install the CRD gangjobs.gangctl.io "
    "(gangctl crd | kubectl apply --server-side -f -); it is looked for again all the time"
)


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """How fresh what is known of one kind of objects is, in seconds."""

    kind: str
    """gangjobs, pods or nodes."""
    broken: float
    """For how long the watch has been broken; 0 while it stands."""
    silent: float
    """How long ago something was heard on it."""


class Informers:
    """The three reflectors and what is looked up in them."""

    def __init__(self, client: Client, namespace: str) -> None:
        """``namespace``: the only one whose gangs are of interest; empty = all."""
        self.gangs = Reflector(client, paths.gangs(namespace), GANGS, self._gang_changed, absent=NO_CRD)
        self.pods = Reflector(client, paths.pods(namespace), PODS, self._pod_changed, selector=LABEL_UID)
        self.nodes = Reflector(client, paths.NODES, NODES, self._node_changed)
        self.has_synced = False
        """Whether everything was listed: before that nothing is shown."""
        self.synced = asyncio.Event()
        """Set when that is so for the first time."""
        self.restarts_all = False
        """Whether every node that takes pods can restart all containers of one at once."""
        self.lost: frozenset[str] = frozenset()
        """Names of nodes that don't answer, or are gone."""
        self._changed: Callable[[str], None] = lambda _uid: None
        self._pods_of: defaultdict[str, dict[str, KubePod]] = defaultdict(dict)
        self._named: dict[str, KubeNode] = {}
        self._deleted: set[str] = set()

    async def run(self, changed: Callable[[str], None]) -> None:
        """Keep it all fresh until cancelled; ``changed`` is called with the UID of a gang that looks different."""
        self._changed = changed
        reflectors = (self.gangs, self.pods, self.nodes)
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in reflectors:
                    one.listed.clear()  # of an earlier run
                    tasks.create_task(one.run())
                for one in reflectors:
                    await one.listed.wait()
                self.has_synced = True
                self.synced.set()
                self._look_at_nodes()
                for uid in tuple(self.gangs.items):
                    changed(uid)
        finally:
            self.has_synced = False

    async def refresh(self) -> None:
        """Have everything as new as this call, however far the watches lag behind.

        Raises:
            ClusterError: it can't be listed.
        """
        await self.gangs.refresh()
        await self.pods.refresh()
        await self.nodes.refresh()

    @property
    def synced_since(self) -> float:
        """Since when all are fresh without a break, in seconds since the epoch; now, while one is stale."""
        times = [one.synced_since for one in (self.gangs, self.pods, self.nodes)]
        return max(times) if self.has_synced and all(times) else time.time()

    @property
    def stale_seconds(self) -> float:
        """For how long the worst of them has heard nothing because its watch is broken."""
        return max(one.stale_seconds for one in (self.gangs, self.pods, self.nodes))

    @property
    def watches(self) -> tuple[WatchHealth, ...]:
        """Each of them."""
        kinds = (("gangjobs", self.gangs), ("pods", self.pods), ("nodes", self.nodes))
        return tuple(WatchHealth(kind, one.stale_seconds, one.silent_seconds) for kind, one in kinds)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why what is shown isn't fresh, or nothing is shown, a sentence for each kind."""
        found = []
        for what, one in (("GangJobs", self.gangs), ("pods", self.pods), ("nodes", self.nodes)):
            if one.listed.is_set() and one.stale_seconds < STALE_SECONDS:
                continue
            if one.listed.is_set():
                why = one.problem or "it ended"
                found.append(f"the watch of {what} has been broken for {one.stale_seconds:.0f} s: {why}")
            else:
                found.append(f"{what} have not been listed yet: {one.problem or 'that has just begun'}")
        return tuple(found)

    def gang(self, uid: str) -> GangJob | None:
        """The GangJob; None if it is gone, being deleted, or can't be read."""
        found = self.gangs.items.get(uid) if self.has_synced else None
        if found is None or found.job is None or found.job.metadata.deletion_timestamp is not None:
            return None
        return found.job

    def pods_of(self, uid: str) -> tuple[KubePod, ...]:
        """All pods that the gang owns, in the order of their names."""
        found = self._pods_of.get(uid, {}).values()
        return tuple(sorted((one for one in found if self._is_owned(one)), key=lambda one: one.pod.name))

    def pod(self, uid: str) -> KubePod | None:
        """The pod of this UID, if a gang owns it."""
        found = self.pods.items.get(uid) if self.has_synced else None
        return found if found is not None and self._is_owned(found) else None

    def _is_owned(self, pod: KubePod) -> bool:
        gang = self.gangs.items.get(pod.gang)
        return gang is not None and pod.owner == gang.uid and pod.namespace == gang.namespace

    def _announce(self, uid: str) -> None:
        if self.has_synced:
            self._changed(uid)

    def _gang_changed(self, old: KubeGang | None, new: KubeGang | None) -> None:
        if new is not None and new.unreadable:
            log.error(
                "gang %s/%s can't be read and is left alone until it is corrected: %s",
                new.namespace,
                new.name,
                new.unreadable,
            )
        for uid in {one.uid for one in (old, new) if one is not None}:
            self._announce(uid)

    def _pod_changed(self, old: KubePod | None, new: KubePod | None) -> None:
        for uid in {one.gang for one in (old, new) if one is not None}:
            mine = self._pods_of[uid]
            if old is not None:
                mine.pop(old.uid, None)
            if new is not None and new.gang == uid:
                mine[new.uid] = new
            if not mine:
                del self._pods_of[uid]
            self._announce(uid)
        if new is not None and self.has_synced and new.pod.node and new.pod.node not in self._named:
            self._look_at_nodes()

    def _node_changed(self, old: KubeNode | None, new: KubeNode | None) -> None:
        if new is not None:
            self._named[new.name] = new
            self._deleted.discard(new.name)
        elif old is not None and old.name in self._named and self._named[old.name].uid == old.uid:
            del self._named[old.name]
            self._deleted.add(old.name)
        if self.has_synced:
            self._look_at_nodes()

    def _look_at_nodes(self) -> None:
        takers = [node for node in self._named.values() if node.schedulable and not node.lost]
        self.restarts_all = bool(takers) and all(node.restarts_all for node in takers)
        now = time.time()
        missing = {
            one.pod.node: one.pod.scheduled_at or now
            for one in self.pods.items.values()
            if one.pod.node and one.pod.node not in self._named
        }
        self._deleted &= missing.keys()
        gone = {name for name, at in missing.items() if name in self._deleted or now - at > UNSEEN_SECONDS}
        before, self.lost = self.lost, frozenset(gone | {node.name for node in self._named.values() if node.lost})
        differ = before ^ self.lost
        for uid in {one.gang for one in self.pods.items.values() if one.pod.node in differ}:
            self._announce(uid)
