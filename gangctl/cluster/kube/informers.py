"""The informers: GangJobs, their pods and the nodes, each kept fresh by a reflector, with lookups by gang.

The rule: no object is shown before all three kinds were listed in its namespace, since a gang without its pods would
look like one that has lost all of them. What is refused in one namespace must not matter in the others. A pod must
never count as a gang's because of its labels alone: the GangJob has to own it, in the same namespace.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import LABEL_UID
from gangctl.cluster import clock
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.projections import GANGS, PODS, KubeGang, KubePod, nodes
from gangctl.cluster.kube.reflector import NamespacedCopy, Reflector, WatchHealth, health, problem
from gangctl.cluster.sightings import first_seen, seen_again, shown_since
from gangctl.core.facts.world import NodeSignal, NodeState
from gangctl.kubernetes.objects import Node
from gangctl.kubernetes.signals import ShownSignal, SignalTable, default_rows

log = logging.getLogger(__name__)

UNSEEN_SECONDS: Final = 30.0
"""Time after a pod's scheduling after which a node that isn't known counts as deleted."""
NO_CRD: Final = (
    "this cluster has no GangJobs: install the CRD gangjobs.gangctl.io "
    "(gangctl crd | kubectl apply --server-side -f -). This controller keeps looking for it"
)


_AnyReflector = Reflector[KubeGang] | Reflector[KubePod] | Reflector[Node]


class Informers:
    """The reflectors of the three kinds, and lookups in them."""

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str] = (),
        selector: str = "",
        signals: SignalTable | None = None,
    ) -> None:
        """List nothing yet.

        Args:
            client: makes the requests.
            namespaces: the only ones to watch; none = all namespaces.
            selector: of the labels of gangs.
            signals: what of nodes counts; the default rows if it is not given.
        """
        self.gangs: NamespacedCopy[KubeGang] = NamespacedCopy(
            namespaces,
            lambda one: Reflector(
                *(client, paths.gangs_path(one), GANGS, self._gang_changed), selector=selector, absent=NO_CRD
            ),
        )
        self.pods: NamespacedCopy[KubePod] = NamespacedCopy(
            namespaces, lambda one: Reflector(client, paths.pods(one), PODS, self._pod_changed, selector=LABEL_UID)
        )
        self.nodes = Reflector(client, paths.NODES, nodes(signals or SignalTable(default_rows())), self._node_changed)
        self._reflectors: Mapping[str, tuple[_AnyReflector, ...]] = {
            "gangjobs": tuple(self.gangs.reflectors.values()),
            "pods": tuple(self.pods.reflectors.values()),
            "nodes": (self.nodes,),
        }
        """By kind."""
        self.has_synced = False
        """Whether all kinds were listed, where that isn't refused. Before that, no object is shown."""
        self.synced = asyncio.Event()
        """Set when all kinds were listed for the first time."""
        self.schedulable: tuple[Node, ...] = ()
        """The nodes that take pods: the same object as long as they are the same."""
        self.lost: Mapping[str, float] = {}
        """Nodes that don't answer, or were deleted, and when that was first seen, in seconds since the epoch."""
        self.node_states = NodeStates()
        self.pod_signals: Mapping[str, NodeSignal] = {}
        """UID of a pod -> what counts against it alone on its node."""
        self.listeners: list[Callable[[str], None]] = []
        """Called with the UID of each gang that has changed."""
        self._appeared: dict[str, float] = {}
        """UID of a gang -> when it was first seen, as the clock has elapsed."""
        self._pods_of: defaultdict[str, dict[str, KubePod]] = defaultdict(dict)
        """By UID of the gang and of the pod: the pods with the times at which they were seen to change."""
        self._sorted: dict[str, tuple[KubePod, ...]] = {}
        """The answers of ``pods_of``, until something changes."""
        self._nodes_by_name: dict[str, Node] = {}
        self._deleted: set[str] = set()

    async def run(self, changed: Callable[[str], None]) -> None:
        """Keep all objects fresh until cancelled; call ``changed`` with the UID of each gang that has changed."""
        self.listeners.insert(0, changed)
        reflectors = self._all()
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in reflectors:
                    one.listed.clear()  # from an earlier run
                    tasks.create_task(one.run())
                await self.nodes.listed.wait()
                await self.gangs.wait()
                await self.pods.wait()
                self.has_synced = True
                self.synced.set()
                self._update_nodes()
                for namespace in self.gangs.reflectors:
                    tasks.create_task(self._show(namespace))
        finally:
            self.has_synced = False
            self.listeners.remove(changed)

    async def refresh(self) -> None:
        """List everything again, so that all objects are as new as this call even if a watch is behind."""
        await self.gangs.refresh()
        await self.pods.refresh()
        await self.nodes.refresh()

    async def _show(self, namespace: str) -> None:
        """Its gangs are shown from now on, or when it was listed."""
        gangs, pods = self.gangs.of(namespace), self.pods.of(namespace)
        await gangs.listed.wait()
        await pods.listed.wait()
        for uid in tuple(gangs.items):
            self._notify(uid)

    def shows(self, namespace: str) -> bool:
        """Return whether all gangs and pods of a namespace were listed."""
        return self.has_synced and self.gangs.of(namespace).listed.is_set() and self.pods.of(namespace).listed.is_set()

    def synced_since(self, uid: str) -> float:
        """Return since when all that concerns a gang has been fresh without a break, in seconds since the epoch.

        That is now, while a watch is broken, and for a gang that isn't shown.
        """
        gang = self.stored(uid)
        if gang is None:
            return clock.now()
        times = [one.synced_since for one in (self.gangs.of(gang.namespace), self.pods.of(gang.namespace), self.nodes)]
        return max(times) if all(times) else clock.now()

    @property
    def nodes_synced_since(self) -> float:
        """Return since when the nodes have been fresh; now, while their watch is broken."""
        return (self.nodes.synced_since if self.has_synced else 0.0) or clock.now()

    @property
    def stale_seconds(self) -> float:
        """For how long the watch that has been broken the longest has been broken; 0 if none is."""
        return max(one.stale_seconds for one in self._all())

    @property
    def watches(self) -> tuple[WatchHealth, ...]:
        """Return how fresh the objects of each kind are: of several namespaces, those that are least fresh."""
        return tuple(health(kind, found) for kind, found in self._reflectors.items())

    @property
    def problems(self) -> tuple[str, ...]:
        """Say why objects aren't fresh, or aren't shown, a sentence for each kind and namespace that isn't refused."""
        of_nodes = problem("nodes", self.nodes)
        return (*self.gangs.problems("GangJobs"), *self.pods.problems("pods"), *((of_nodes,) if of_nodes else ()))

    def _all(self) -> tuple[_AnyReflector, ...]:
        return tuple(one for found in self._reflectors.values() for one in found)

    def gang(self, uid: str) -> GangJob | None:
        """The GangJob; None if it is gone, is being deleted, or can't be read."""
        found = self.stored(uid)
        return None if found is None else found.job

    def appeared_at(self, uid: str) -> float:
        """The time when it was first seen, made or given to this controller, since the epoch; 0 = not yet."""
        at = self._appeared.get(uid)
        return 0.0 if at is None else clock.time_of(at)

    def stored(self, uid: str) -> KubeGang | None:
        """The GangJob, also if it can't be read; None if it is gone or is being deleted."""
        found = self.gangs.items.get(uid)
        return None if found is None or found.deleting or not self.shows(found.namespace) else found

    def pods_of(self, uid: str) -> tuple[KubePod, ...]:
        """All pods that the gang owns, sorted by name."""
        known = self._sorted.get(uid)
        if known is None:
            found = self._pods_of.get(uid, {}).values()
            known = tuple(sorted((one for one in found if self._is_owned(one)), key=lambda one: one.pod.name))
            if uid in self.gangs.items:
                self._sorted[uid] = known
        return known

    def pod(self, uid: str) -> KubePod | None:
        """The pod with this UID, if a gang owns it."""
        found = self.pods.items.get(uid)
        return found if found is not None and self.shows(found.namespace) and self._is_owned(found) else None

    def _is_owned(self, pod: KubePod) -> bool:
        gang = self.gangs.items.get(pod.gang)
        return gang is not None and pod.owner == gang.uid and pod.namespace == gang.namespace

    def node_uid(self, name: str) -> str:
        """The UID of a node; empty if it isn't known, or is gone."""
        node = self._nodes_by_name.get(name)
        return "" if node is None else node.uid

    def _notify(self, uid: str) -> None:
        for listener in self.listeners if self.has_synced else ():
            listener(uid)

    def _gang_changed(self, old: KubeGang | None, new: KubeGang | None) -> None:
        for one in (old, new):
            if one is not None:
                self._sorted.pop(one.uid, None)
        if new is None and old is not None:
            self._appeared.pop(old.uid, None)
        elif new is not None:
            self._appeared.setdefault(new.uid, clock.elapsed())
        if new is not None and new.unreadable:
            log.error(
                "gang %s/%s can't be read, so it is left alone, with its pods and connections: %s",
                new.namespace,
                new.name,
                new.unreadable,
            )
        if new is not None and new.ignored and (old is None or old.ignored != new.ignored):
            log.warning(
                "gang %s/%s has fields that this release doesn't know and ignores: %s",
                new.namespace,
                new.name,
                ", ".join(new.ignored),
            )
        for uid in {one.uid for one in (old, new) if one is not None}:
            self._notify(uid)

    def _pod_changed(self, old: KubePod | None, new: KubePod | None) -> None:
        shown = None if old is None else self._pods_of[old.gang].get(old.uid)
        owned = {one.gang for one in (old, new) if one is not None and self._is_owned(one)}
        for uid in {one.gang for one in (old, new) if one is not None}:
            pods = self._pods_of[uid]
            if old is not None:
                pods.pop(old.uid, None)
            if new is not None and new.gang == uid:
                pods[new.uid] = _as_seen(new, old, shown)
            if not pods:
                del self._pods_of[uid]
        for uid in owned:  # Others may name a gang in their labels: that must not keep it deciding.
            self._sorted.pop(uid, None)
            if self.stored(uid) is not None:  # Else it is another controller's gang.
                self._notify(uid)
        if new is not None and self.has_synced and new.pod.node and new.pod.node not in self._nodes_by_name:
            self._update_nodes()

    def begin_term(self) -> None:
        """Another clock counts: the pods are seen as if they were listed now."""
        for pods in self._pods_of.values():
            for uid in pods:
                pods[uid] = _as_seen(self.pods.items[uid], None, None)
        self._sorted.clear()
        self.lost = dict.fromkeys(self.lost, clock.now())
        self.node_states.clear()
        for node in self._nodes_by_name.values():
            self._node_seen(node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._nodes_by_name[new.name] = new
            self._deleted.discard(new.name)
            if self._node_seen(new):
                self._notify_on({new.name})
        elif old is not None and old.name in self._nodes_by_name and self._nodes_by_name[old.name].uid == old.uid:
            del self._nodes_by_name[old.name]
            self._deleted.add(old.name)
            self.node_states.remove(old.name)
        if self.has_synced:
            self._update_nodes()

    def _node_seen(self, node: Node) -> bool:
        return self.node_states.update(node.name, node.signals, clock.now(), cordoned=node.cordoned)

    def shown(self) -> Mapping[str, NodeState]:
        """What each node shows, with what counts against single pods there."""
        found = self.node_states.states
        if not self.pod_signals:
            return found
        found = dict(found)
        for uid, signal in self.pod_signals.items():
            one = self.pods.items.get(uid)
            if one is not None and one.pod.node:
                state = found.get(one.pod.node, NodeState())
                found[one.pod.node] = state._replace(signals=(*state.signals, signal))
        return found

    def show_pod_signals(self, found: Mapping[str, NodeSignal]) -> None:
        """Take what counts against single pods from now on, by their UIDs."""
        before, self.pod_signals = self.pod_signals, found
        changed = {uid for uid in {*before, *found} if before.get(uid) != found.get(uid)}
        for uid in {one.gang for pod in changed if (one := self.pods.items.get(pod)) is not None}:
            self._notify(uid)

    def _update_nodes(self) -> None:
        schedulable = tuple([node for node in self._nodes_by_name.values() if node.is_schedulable and not node.is_lost])
        if schedulable != self.schedulable:
            self.schedulable = schedulable
        now = clock.now()
        missing = {
            one.pod.node: one.pod.scheduled_at or now
            for pods in self._pods_of.values()
            for one in pods.values()
            if one.pod.node and one.pod.node not in self._nodes_by_name
        }
        self._deleted &= missing.keys()
        gone = {name for name, at in missing.items() if name in self._deleted or now - at > UNSEEN_SECONDS}
        lost = gone | {node.name for node in self._nodes_by_name.values() if node.is_lost}
        before, self.lost = self.lost, {name: self.lost.get(name, now) for name in lost}
        self._notify_on(before.keys() ^ lost)

    def _notify_on(self, nodes: frozenset[str] | set[str]) -> None:
        for uid in {one.gang for one in self.pods.items.values() if one.pod.node in nodes}:
            self._notify(uid)


def _as_seen(new: KubePod, old: KubePod | None, shown: KubePod | None) -> KubePod:
    now = clock.now()
    if old is None or shown is None:
        return replace(new, pod=first_seen(new.pod, now))
    return replace(new, pod=seen_again(new.pod, old.pod, shown.pod, now))


class NodeStates:
    """What each node shows, by its name, and since when this controller knows it.

    Only nodes that show anything have a state. The same signal keeps its time, whatever reason is written beside it; a
    signal that goes and comes again is new.
    """

    def __init__(self) -> None:
        self.states: Mapping[str, NodeState] = {}
        """Another object after each change."""
        self._since: dict[str, dict[str, float]] = {}
        """Node -> name of a signal -> since when. A node that was seen is in it."""

    def update(self, name: str, shown: Sequence[ShownSignal], now: float, *, cordoned: bool) -> bool:
        """Update what a node shows; return whether its state has changed. ``now``: in seconds since the epoch."""
        before = self._since.get(name)
        old = {} if before is None else before
        since = {
            one.name: old[one.name] if one.name in old else shown_since(one.time, now, came=before is not None)
            for one in shown
        }
        self._since[name] = since
        signals = tuple(NodeSignal(one.answer, one.what, since[one.name], one.shortage) for one in shown)
        return self._put(name, NodeState(signals, cordoned))

    def remove(self, name: str) -> bool:
        """Remove a node; return whether it had a state."""
        self._since.pop(name, None)
        return self._put(name, NodeState())

    def clear(self) -> None:
        """Another clock counts: what is seen next is seen for the first time."""
        self._since.clear()
        self.states = {}

    def _put(self, name: str, state: NodeState) -> bool:
        if state == self.states.get(name, NodeState()):
            return False
        others = {known: one for known, one in self.states.items() if known != name}
        self.states = others if state == NodeState() else {**others, name: state}
        return True
