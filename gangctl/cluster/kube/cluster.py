"""Kubernetes as the controller's cluster: it reads from informers and writes to the API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import parse_member_name
from gangctl.api.status import ENDED
from gangctl.cluster import clock
from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.admission import PodAdmission
from gangctl.cluster.kube.client import Client, Rejected
from gangctl.cluster.kube.contact import ContactUpdater, ServiceAddress
from gangctl.cluster.kube.events import EventRecorder
from gangctl.cluster.kube.informers import Informers
from gangctl.cluster.kube.owned import DisruptionBudgets, PodGroups
from gangctl.cluster.kube.pod_builder import EligibleNodes, build_pod
from gangctl.cluster.kube.projections import HubContact
from gangctl.cluster.kube.queues import Queues
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.cluster.kube.tokens import TokenAuthenticator
from gangctl.cluster.kube.worker_output import KubeletLogReader
from gangctl.cluster.kube.writers import GangWriter, PodWriter
from gangctl.cluster.port import MemberIdentity, ObjectIdentity, Refusal, UnreadableGang
from gangctl.core.facts.world import NO_QUEUE, NodeState, Pod, Queue
from gangctl.core.lifecycle.plan import Event
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.pods import CreatePod
from gangctl.kubernetes.signals import SignalTable

MAX_TEMPLATE_BYTES: Final = 256 * 1024
"""A gang with larger pod templates, all roles together and as JSON, gets no pods; a gang that has pods goes on."""
_TOO_LARGE: Final = (
    "the pod templates have {0} bytes together, and gangctl takes at most {1}; put large values into a ConfigMap and "
    "mount it"
)


class KubeCluster:
    """A Kubernetes cluster, or some namespaces of it. The port says what each method promises."""

    def __init__(
        self, client: Client, settings: KubeSettings, *, ca: Callable[[], str], authenticator: TokenAuthenticator
    ) -> None:
        """``ca``: PEM text of the authorities that sidecars trust now."""
        self.leading_since = 0.0
        """Since when this process has led, in seconds since the epoch."""
        self.advice: list[Callable[[GangJob], Sequence[str]]] = []
        """Each names nodes that new pods of a gang rather avoid."""
        self._settings = settings
        self._ca = ca
        self._authenticator = authenticator
        self._changed: Callable[[str], None] = lambda _uid: None
        self._tasks: asyncio.TaskGroup | None = None
        """Of the watches; None before."""
        self.informers = Informers(
            client, settings.watch_namespaces, settings.selector, SignalTable(settings.node_signals)
        )
        self.gang_writer = GangWriter(client, self.informers.gangs)
        self._pod_writer = PodWriter(client, self.informers.pods, self._build, self._unplaced)
        self._pod_admission = PodAdmission(self._dry_run, lambda uid: bool(self.pods(uid)), self._gang_changed)
        self._disruption_budgets = DisruptionBudgets(client)
        self._pod_groups = PodGroups(client)
        self._service_address = ServiceAddress(client, settings)
        self._contact_updater = ContactUpdater(client, self.informers.pods, self.informers.pod, settings.url)
        self._eligible_nodes = EligibleNodes()
        self.recorder = EventRecorder(client)
        self.gang = self.informers.gang
        self.write_status = self.gang_writer.write_status
        self.delete_gang = self.gang_writer.delete
        self.delete_pod = self._pod_writer.delete
        self.printed = KubeletLogReader(client, self.gang, enabled=settings.worker_output).printed
        self.flush_events = self.recorder.flush
        """Sends the recorded Events, for at most so many seconds. Call it while this process still leads."""
        self._queues = Queues(client, settings.watch_namespaces, self._queue_changed, self._unplaced)

    def begin_term(self) -> None:
        """This process leads from now on, by the clock of its term."""
        self.informers.begin_term()
        self._contact_updater.leads = True
        self.leading_since = clock.now()

    def resign(self) -> None:
        """Stop the background writes, since this process no longer leads. The reads stay fresh."""
        self._contact_updater.leads = False
        self._pod_admission.forget_all()
        self.recorder.drop_waiting()

    def uids(self) -> tuple[str, ...]:
        """UIDs of all gangs that exist, readable or not."""
        return tuple(uid for uid in self.informers.gangs.items if self.exists(uid))

    def exists(self, uid: str) -> bool:
        return self.informers.stored(uid) is not None

    def unreadable(self, uid: str) -> UnreadableGang | None:
        stored = self.informers.stored(uid)
        if stored is None or not stored.unreadable:
            return None
        return UnreadableGang(ObjectIdentity(uid, stored.namespace, stored.name), stored.unreadable)

    def pods(self, uid: str) -> tuple[Pod, ...]:
        """All pods that the gang owns."""
        return tuple(one.pod for one in self.informers.pods_of(uid))

    def listening_since(self, uid: str) -> float:
        """Say since when this process has led and watched this gang without a break; now, while a watch is broken."""
        return max(self.informers.synced_since(uid), self.informers.appeared_at(uid), self.leading_since)

    def lost_nodes(self) -> Mapping[str, float]:
        """Nodes that don't answer, or were deleted, and since when; see the port.

        What a watch shows while it is stale, or showed before this process led, counts from now on.
        """
        since = max(self.informers.nodes_synced_since, self.leading_since)
        return {name: max(at, since) for name, at in self.informers.lost.items()}

    def nodes(self) -> Mapping[str, NodeState]:
        return self.informers.shown()

    def unfavoured_nodes(self, uid: str) -> frozenset[str]:
        """Return the nodes that companions advise against; see the port."""
        job = self.gang(uid)
        return frozenset() if job is None else frozenset(node for ask in self.advice for node in ask(job))

    def pod_rejections(self, uid: str) -> tuple[str, ...] | None:
        job = self.gang(uid)
        if job is None or job.status.phase in ENDED:
            self._pod_admission.forget(uid)
            return ()
        stored = self.informers.stored(uid)
        if stored is not None and stored.template_bytes > MAX_TEMPLATE_BYTES and not self.pods(uid):
            return (_TOO_LARGE.format(stored.template_bytes, MAX_TEMPLATE_BYTES),)
        return self._pod_admission.rejections(job)

    def queue(self, uid: str) -> Queue:
        """Return what the queue says that the gang names; none if this controller takes no notice of queues."""
        stored = self.informers.stored(uid) if self._settings.kueue else None
        return NO_QUEUE if stored is None else self._queues.queue(stored)

    async def tell_queue(self, job: GangJob, tell: TellQueue) -> None:
        stored = self.informers.stored(job.metadata.uid)
        if stored is not None:
            await self._queues.tell(stored, job, tell)

    async def authenticate(self, token: str) -> MemberIdentity | Refusal:
        """The pod that this token belongs to, or why the token is refused."""
        return await self._authenticator.authenticate(token, self.informers.pod, self._name_of)

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Keep the reads fresh until cancelled; see the port."""
        self._changed = changed
        async with asyncio.TaskGroup() as self._tasks:
            tasks = self._tasks
            tasks.create_task(self.informers.run(self._gang_changed))
            tasks.create_task(self._pod_admission.run())
            tasks.create_task(self.recorder.run())
            tasks.create_task(self._service_address.run())
            if self._settings.kueue:
                tasks.create_task(self._queues.run())
            tasks.create_task(self._contact_updater.run(self._ca, lambda: self._service_address.address))

    async def refresh(self) -> None:
        """List everything, since the watches may not have shown the last writes of another leader yet."""
        await self.informers.refresh()
        await self._queues.refresh()

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        await self._disruption_budgets.ensure(job)
        try:
            await self._pod_groups.ensure(job)
            await self._pod_writer.create(job, create)
        except Terminal as error:
            words = error.message if isinstance(error, Rejected) else str(error)
            self._pod_admission.note_rejection(job, create.member, f"{create.member}: {words}")
            raise
        self._pod_admission.note_admission(job.metadata.uid, create.member)

    async def emit(self, gang: GangJob | UnreadableGang, event: Event) -> None:
        """Record an Event; it is sent in the background."""
        pod = str(event.pod)
        uid = next((one.uid for one in self.informers.pods_of(gang.metadata.uid) if one.pod.name == pod), "")
        self.recorder.record(gang, event, uid, self.informers.node_uid(event.node))

    async def _dry_run(self, job: GangJob, role: str) -> str:
        return await self._pod_groups.dry_run(job) or await self._pod_writer.dry_run(job, role)

    def _name_of(self, uid: str) -> tuple[str, str] | None:
        stored = self.informers.stored(uid)
        return None if stored is None else (stored.namespace, stored.name)

    def _gang_changed(self, uid: str) -> None:
        if uid not in self.informers.gangs.items:
            self._pod_admission.forget(uid)
            self._disruption_budgets.forget(uid)
            self._pod_groups.forget(uid)
            self._eligible_nodes.forget(uid)
        elif self._tasks is not None and self._contact_updater.leads:
            job = self.gang(uid)
            if job is not None and job.status.size is not None and job.status.phase not in ENDED:
                # A smaller gang creates no pod, and its budget must let one of the members that it has go.
                self._tasks.create_task(self._disruption_budgets.ensure(job))
        self._changed(uid)

    def _queue_changed(self, uid: str) -> None:
        """A Workload has changed; without a UID: all of them are known now."""
        for one in (uid,) if uid else self.uids():
            self._changed(one)

    def _build(self, job: GangJob, create: CreatePod) -> dict[str, Any]:
        """The pod, on the nodes of its queue.

        Raises:
            Retryable: these nodes aren't known, or the queue doesn't admit the gang any more.
        """
        stored, (role, _) = self.informers.stored(job.metadata.uid), parse_member_name(create.member)
        unfavoured = [node for ask in self.advice for node in ask(job)]
        if stored is None or not self._settings.kueue:
            return self._unplaced(job, create, unfavoured)
        if self._queues.names_domain(stored, role):
            create = create._replace(required=False)
        return self._queues.place_pod(stored, role, self._unplaced(job, create, unfavoured))

    def _unplaced(self, job: GangJob, create: CreatePod, unfavoured: Sequence[str] = ()) -> dict[str, Any]:
        name, nodes = parse_member_name(create.member)[0], self.informers.schedulable
        roles = [role for role in job.spec.roles if role.name == name]
        restart_all = all(self._eligible_nodes.restart_all(job, role, nodes) for role in roles)
        return build_pod(job, create, self._settings, self._contact(), restart_all=restart_all, unfavoured=unfavoured)

    def _contact(self) -> HubContact:
        return HubContact(self._ca(), self._settings.url, self._service_address.address or "")
