"""Kueue's queues, as gangs see them: their Workloads and the ResourceFlavors are watched; the Workloads are written.

The rule: a read makes no request. Kueue may be missing, or go away: gangs that name no queue must not notice, gangs
that run go on, and gangs that wait in a queue go on waiting. A write is refused if what was read has changed meanwhile.
A Workload of another owner is never touched.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from gangctl.api.gangjob import GangJob
from gangctl.api.names import LABEL_UID, member_name
from gangctl.api.roles import roles_hash
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube.client import Client, NotFound
from gangctl.cluster.kube.owned import create_owned
from gangctl.cluster.kube.projections import KubeGang
from gangctl.cluster.kube.reflector import NamespacedCopy, Reflector
from gangctl.cluster.kube.workload import (
    FLAVORS,
    KUEUE_GROUP,
    KUEUE_VERSIONS,
    WORKLOAD_PRIORITY_CLASS,
    WORKLOADS,
    KubeFlavor,
    KubeWorkload,
    Priority,
    new_workload,
    place_pod,
    status_change,
    workload_name,
)
from gangctl.core.facts.world import NO_QUEUE, Queue
from gangctl.core.policy.admission import PodsAsked, QueueVerb, TellQueue
from gangctl.core.policy.pods import CreatePod

log = logging.getLogger(__name__)

LOOKING_SECONDS: Final = 15.0
"""How often a missing Kueue is looked for."""
MAX_LEFT: Final = 1000
NO_KUEUE: Final = "this cluster has no Workloads of Kueue: install Kueue. Gangs that name a queue wait for it"

PodOf = Callable[[GangJob, CreatePod], Mapping[str, Any]]
"""A pod of the gang, as JSON values, wherever its quota is."""


class Queues:
    """The queues of one cluster."""

    def __init__(
        self, client: Client, namespaces: Sequence[str], changed: Callable[[str], None], pod_of: PodOf
    ) -> None:
        """``changed``: called with the UID of a gang whose Workload, or the nodes of its quota, have changed."""
        self._client = client
        self._namespaces = namespaces
        self._changed = changed
        self._pod_of = pod_of
        self._version = ""
        """The version of Kueue's API that is spoken; empty until Kueue was found."""
        self._workloads: NamespacedCopy[KubeWorkload] | None = None
        self._flavors: Reflector[KubeFlavor] | None = None
        self._of_gang: dict[str, dict[str, KubeWorkload]] = {}
        """By UID of the gang and of the Workload."""
        self._left: dict[str, None] = {}
        """UIDs of the Workloads that were deleted last."""
        self._is_unread = False
        """Whether what another leader wrote last could not be read."""
        self._known_since: float | None = None
        """Since when the Workloads are known, as the clock has elapsed; None while they aren't."""

    async def run(self) -> NoReturn:
        """Keep the reads fresh until cancelled. A Kueue that is missing is looked for."""
        self._version = await self._find()
        base = f"/apis/{KUEUE_GROUP}/{self._version}"
        self._of_gang.clear()
        workloads = NamespacedCopy(
            self._namespaces,
            lambda one: Reflector(
                self._client,
                f"{base}/namespaces/{one}/workloads" if one else f"{base}/workloads",
                WORKLOADS,
                self._workload_changed,
                selector=LABEL_UID,
                absent=NO_KUEUE,
            ),
        )
        flavors = Reflector(self._client, f"{base}/resourceflavors", FLAVORS, self._flavor_changed, absent=NO_KUEUE)
        reflectors: tuple[Reflector[KubeWorkload] | Reflector[KubeFlavor], ...] = (
            *workloads.reflectors.values(),
            flavors,
        )
        async with asyncio.TaskGroup() as tasks:
            for one in reflectors:
                tasks.create_task(one.run())
            await workloads.wait()
            await flavors.listed.wait()
            self._workloads, self._flavors = workloads, flavors
            log.info("gangs can wait in queues: Kueue's API %s was found", self._version)
            while True:
                self._look()
                await asyncio.sleep(LOOKING_SECONDS)
                if self._is_unread:
                    await self.refresh()

    def _look(self) -> None:
        """Notice that the Workloads can be read again, or no longer."""
        is_known, was_known = self._can_be_read(), self._known_since is not None
        if is_known != was_known:
            self._known_since = clock.elapsed() if is_known else None
            self._changed("")

    def _can_be_read(self) -> bool:
        """A watch that is broken for a while is as any other; a Kueue that was removed is another matter."""
        return (
            self._workloads is not None
            and not self._is_unread
            and all(one.problem != NO_KUEUE for one in self._workloads.reflectors.values())
        )

    async def _find(self) -> str:
        """The version of Kueue's API to speak, when Kueue is there."""
        problem = ""
        while True:
            try:
                found = await self._client.get(f"/apis/{KUEUE_GROUP}")
                served = {one.get("version") for one in found.get("versions") or ()}
                spoken = next((one for one in KUEUE_VERSIONS if one in served), "")
                if spoken:
                    return spoken
                now = f"Kueue serves {sorted(map(str, served))}, and gangctl speaks {', '.join(KUEUE_VERSIONS)}"
            except NotFound:
                now = NO_KUEUE
            except ClusterError as error:
                now = str(error)
            if now != problem:
                log.warning("gangs that name a queue wait: %s", now)
                problem = now
            await asyncio.sleep(LOOKING_SECONDS)

    async def refresh(self) -> None:
        """List the Workloads again, since the watch may not have shown what another leader wrote last.

        They are unknown if that fails. Gangs that name no queue must not wait for it.
        """
        try:
            if self._workloads is not None:
                await self._workloads.refresh()
        except ClusterError as error:
            if not self._is_unread:
                log.warning("gangs that name a queue wait: %s", error)
            self._is_unread = True
        else:
            self._is_unread = False
        self._look()

    def queue(self, gang: KubeGang) -> Queue:
        every = self._all(gang)
        asking, more = _asking(every), _more(every)
        found = _chosen(gang, asking)
        if not gang.queue and found is None and not more:
            return NO_QUEUE
        if not self._can_be_read():
            self._known_since = None  # So that the next look wakes all gangs, however soon it is known again.
        since = self._known_since
        known, moment = since is not None, 0.0 if since is None else clock.time_of(since)
        first = None if found is None else found.workload
        left = [replace(one.workload, pods={}) for one in asking if one is not found]  # No pod may use it.
        return Queue(gang.queue, gang.priority_class, known, moment, first, (*left, *(one.workload for one in more)))

    def place_pod(self, gang: KubeGang, role: str, pod: dict[str, Any]) -> dict[str, Any]:
        """Put the pod on the nodes of the gang's quota; unchanged if it names no queue, or its quota is for any nodes.

        Raises:
            Retryable: it has no quota any more, or the nodes of its quota aren't known.
        """
        if not gang.queue:
            return pod
        found = self._workload(gang)
        if found is None or not found.workload.admitted:
            raise Retryable(f"queue {gang.queue} doesn't admit the gang any more")
        place = found.places.get(role)
        if place is None:
            return pod
        try:
            return place_pod(pod, role, place, self._flavor)
        except LookupError as error:
            raise Retryable(f"the ResourceFlavor {error} that the queue has admitted the gang to isn't known") from None

    def names_domain(self, gang: KubeGang, role: str) -> bool:
        """Return whether the queue says for each pod of the role in which domain of its topology it is placed."""
        found = self._workload(gang) if gang.queue else None
        place = None if found is None else found.places.get(role)
        return place is not None and place.topology != ""

    async def tell(self, gang: KubeGang, job: GangJob, tell: TellQueue) -> None:
        if self._workloads is None:
            raise Retryable(NO_KUEUE)
        found = self._workload(gang)
        if tell.workload:
            found = next((one for one in self._all(gang) if one.name == tell.workload), None)
        try:
            if tell.verb in {QueueVerb.JOIN, QueueVerb.GROW}:
                await self._join(gang, job, tell.pods)
            elif found is not None and tell.verb is QueueVerb.LEAVE:
                await self._leave(found)
            elif found is not None:
                await self._tell_status(found, tell)
        except Conflict as error:
            raise Retryable(f"the Workload has changed meanwhile: {error}") from error

    async def _join(self, gang: KubeGang, job: GangJob, more: tuple[PodsAsked, ...]) -> None:
        pods = {role.name: self._pod_of(job, CreatePod(member_name(role.name, 0), 0)) for role in job.spec.roles}
        if more:  # On the nodes that the gang has: its pods don't know which of its Workloads they are for.
            pods = {role: self.place_pod(gang, role, {**pod}) for role, pod in pods.items()}
        priority = await self._priority(gang, pods)
        body = new_workload(job, self._version, gang.queue, priority, pods, more)
        answer, existed = await create_owned(self._client, job, self._path(job.metadata.namespace), body)
        found = WORKLOADS.item(answer) if existed else None
        if found is not None and found.deleting:
            raise Retryable(f"the Workload {found.name} is being deleted: it must go first")
        self._put(answer)
        if self._workload(gang) is None:
            name = workload_name(job)
            raise Retryable(f"the Workload {name} has lost its label {LABEL_UID}: delete it, and the gang asks anew")

    async def _leave(self, found: KubeWorkload) -> None:
        with suppress(NotFound):
            await self._client.delete(f"{self._path(found.namespace)}/{found.name}", found.uid)
        # The watch shows it later, and until then maybe an older version, which is admitted.
        self._left[found.uid] = None
        if len(self._left) > MAX_LEFT:
            del self._left[next(iter(self._left))]
        self._drop(found)

    async def _tell_status(self, found: KubeWorkload, tell: TellQueue) -> None:
        path = f"{self._path(found.namespace)}/{found.name}"
        try:
            answer = await self._client.request("GET", path)
            stored = json.loads(answer)
            change = status_change(stored, tell, datetime.now(UTC))
            if stored["metadata"].get("uid") != found.uid or change is None:
                self._put(answer)
                return
            self._put(await self._client.request("PATCH", f"{path}/status", body=change))
        except NotFound:
            self._drop(found)

    async def _priority(self, gang: KubeGang, pods: Mapping[str, Mapping[str, Any]]) -> Priority | None:
        """The priority that the gang names, or else that of its pods, as the first role has it."""
        of_pods = next(
            (one["spec"]["priorityClassName"] for one in pods.values() if one["spec"].get("priorityClassName")), ""
        )
        if gang.priority_class:
            kind, name = WORKLOAD_PRIORITY_CLASS, gang.priority_class
            path = f"/apis/{KUEUE_GROUP}/{self._version}/workloadpriorityclasses/{name}"
        elif of_pods:
            kind, name, path = "PriorityClass", of_pods, f"/apis/scheduling.k8s.io/v1/priorityclasses/{of_pods}"
        else:
            return None
        try:
            found = await self._client.get(path)
        except NotFound as error:
            raise Terminal(f"the {kind} {name} that the gang names doesn't exist: {error.message}") from error
        return Priority(kind, name, int(found["value"]))

    def _path(self, namespace: str) -> str:
        return f"/apis/{KUEUE_GROUP}/{self._version}/namespaces/{namespace}/workloads"

    def _workload(self, gang: KubeGang) -> KubeWorkload | None:
        return _chosen(gang, _asking(self._all(gang)))

    def _all(self, gang: KubeGang) -> list[KubeWorkload]:
        return [
            one
            for one in self._of_gang.get(gang.uid, {}).values()
            if (one.owner, one.namespace) == (gang.uid, gang.namespace)
            and not one.deleting
            and one.uid not in self._left
        ]

    def _flavor(self, name: str) -> KubeFlavor | None:
        items = {} if self._flavors is None else self._flavors.items
        return next((one for one in items.values() if one.name == name), None)

    def _put(self, answer: bytes) -> None:
        item = WORKLOADS.item(answer)
        if item is not None and self._workloads is not None:
            self._workloads.put(item)

    def _drop(self, found: KubeWorkload) -> None:
        if self._workloads is not None:
            self._workloads.drop(found.uid)

    def _workload_changed(self, old: KubeWorkload | None, new: KubeWorkload | None) -> None:
        for one in (old, new):
            if one is not None:
                self._of_gang.get(one.gang, {}).pop(one.uid, None)
        if new is not None:
            self._of_gang.setdefault(new.gang, {})[new.uid] = new
        for uid in {one.gang for one in (old, new) if one is not None}:
            if not self._of_gang.get(uid):
                self._of_gang.pop(uid, None)
            self._changed(uid)

    def _flavor_changed(self, _old: KubeFlavor | None, _new: KubeFlavor | None) -> None:
        """Pods that run stay where they are; those that are created next go to the new nodes."""


def _chosen(gang: KubeGang, found: Sequence[KubeWorkload]) -> KubeWorkload | None:
    """What asks for the gang. Others are left from when it had other roles, and may be written at any time."""
    if len(found) <= 1 or gang.job is None:
        return max(found, key=_age, default=None)
    roles = (gang.job.status.roles_hash, roles_hash(gang.job.spec.roles))
    rank = {one.uid: roles.index(its) for one in found if (its := one.workload.roles_hash) in roles}
    return max(found, key=lambda one: (rank.get(one.uid, -1), _age(one)))


def _asking(every: Sequence[KubeWorkload]) -> list[KubeWorkload]:
    return [one for one in every if one.grows is None]


def _more(every: Sequence[KubeWorkload]) -> list[KubeWorkload]:
    """What asks for members by which the gang grows, the oldest first."""
    return sorted([one for one in every if one.grows is not None], key=lambda one: one.grows or 0)


def _age(one: KubeWorkload) -> int:
    return int(one.resource_version or 0)
