"""Kubernetes as the controller's world: reads from what is watched, writes to the API server.

Whatever a write returns is merged into what is read before it is acknowledged, so the next decision sees it. After a
write whose outcome isn't known the object is read again.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.names import member_name, pod_name
from gangctl.api.status import GangPhase, Status
from gangctl.cluster.errors import Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.auth.token_authenticator import TokenAuthenticator
from gangctl.cluster.kube.budgeting import DisruptionBudgets
from gangctl.cluster.kube.client import AlreadyExists, Client, NoAnswer, NotFound, Rejected
from gangctl.cluster.kube.events.event import related_pod
from gangctl.cluster.kube.events.recorder import EventRecorder
from gangctl.cluster.kube.pod import builder
from gangctl.cluster.kube.pod.admission import PodAdmission
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.cluster.kube.watch.decoding import kind_of
from gangctl.cluster.kube.watch.informers import Informers, WatchHealth
from gangctl.cluster.kube.watch.projections import GANGS, PODS
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import Event
from gangctl.core.policy.pods import CreatePod, DeletePod

AT_ONCE: Final = 64
"""So many pods are created and deleted at once: a time-out is for the API server's part, not for the queue."""
LARGE: Final = 1 << 20
"""Bytes of an object that etcd may refuse; its limit is 1.5 MiB by default."""
NO_DRY_RUN: Final = "does not support dry run"
"""How the API server says, with no reason of its own, that a webhook can't be asked."""

_ENDED: Final = frozenset({GangPhase.SUCCEEDED, GangPhase.FAILED})


class KubeCluster:
    """One Kubernetes cluster, or one namespace of it. See the port for what each method promises."""

    def __init__(
        self, client: Client, settings: KubeSettings, *, ca: Callable[[], str], authenticator: TokenAuthenticator
    ) -> None:
        """``ca``: PEM text of what sidecars trust, as of now."""
        self.leading_since = 0.0
        """Since when this process has led, in seconds since the epoch."""
        self.status_write_failures: Counter[str] = Counter({"Conflict": 0, "Retryable": 0, "Terminal": 0})
        """How many writes of a status failed, by the kind of error."""
        self._client = client
        self._settings = settings
        self._ca = ca
        self._informers = Informers(client, settings.watch_namespace)
        self._authenticator = authenticator
        self._changed: Callable[[str], None] = lambda _uid: None
        self._pod_admission = PodAdmission(self._dry_run, lambda uid: bool(self.pods(uid)), self._look_again)
        self._disruption_budgets = DisruptionBudgets(client)
        self._recorder = EventRecorder(client)
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def listening_since(self) -> float:
        """Since when it has watched without a break, and led; now, while a watch is broken."""
        return max(self._informers.synced_since, self.leading_since)

    @property
    def has_synced(self) -> bool:
        """Whether everything was listed."""
        return self._informers.has_synced

    @property
    def stale_seconds(self) -> float:
        """For how long a watch has been broken; 0 while all stand."""
        return self._informers.stale_seconds

    @property
    def watches(self) -> tuple[WatchHealth, ...]:
        """How fresh each watch is."""
        return self._informers.watches

    @property
    def problems(self) -> tuple[str, ...]:
        """Why what is shown isn't fresh, or nothing is shown, in sentences."""
        return self._informers.problems

    @property
    def event_counts(self) -> Mapping[str, int]:
        """What became of the Events that were to be sent: how many were sent, combined, left out, lost."""
        return self._recorder.counts.by_outcome

    async def wait_for_sync(self) -> None:
        """Wait until everything was listed for the first time."""
        await self._informers.synced.wait()

    def resign(self) -> None:
        """This process leads no more: what it knows is kept fresh, and nothing is asked for decisions."""
        self._pod_admission.forget_all()
        self._recorder.drop_waiting()

    async def flush_events(self, seconds: float) -> None:
        """Let what is to be told be sent, for at most so many seconds: call it before this process leads no more."""
        await self._recorder.flush(seconds)

    def uids(self) -> tuple[str, ...]:
        """UIDs of all gangs that are there."""
        return tuple(uid for uid in self._informers.gangs.items if self.gang(uid) is not None)

    def gang(self, uid: str) -> GangJob | None:
        """The gang as it is stored; None if it is gone, being deleted, or can't be read."""
        return self._informers.gang(uid)

    def pods(self, uid: str) -> tuple[Pod, ...]:
        """All pods that the gang owns."""
        return tuple(one.pod for one in self._informers.pods_of(uid))

    def lost_nodes(self) -> frozenset[str]:
        """Names of nodes that don't answer, or were deleted."""
        return self._informers.lost

    def refusals(self, uid: str) -> tuple[str, ...] | None:
        """Why the API server takes no pods of this gang, in its own words."""
        job = self.gang(uid)
        if job is None or job.status.phase in _ENDED:
            self._pod_admission.forget(uid)
            return ()
        return self._pod_admission.refusals(job)

    async def authenticate(self, token: str) -> MemberIdentity | Refusal:
        """Whose token this is, or why it is nobody's."""
        return await self._authenticator.authenticate(token, self._informers.pod, self._name_of)

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Keep what is read fresh until cancelled."""
        self._changed = changed
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informers.run(self._look_again))
            tasks.create_task(self._pod_admission.run())
            tasks.create_task(self._recorder.run())

    async def refresh(self) -> None:
        """Have what is read as new as this call: what another leader wrote last may not have been told yet.

        Raises:
            ClusterError: it can't be listed.
        """
        await self._informers.refresh()

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        """Store the status; see the port."""
        metadata = job.metadata
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        path, content = paths.gang(metadata.namespace, metadata.name), json.dumps(body).encode()
        try:
            answer = await self._client.request("PUT", f"{path}/status", body=content)
        except (Conflict, NotFound) as error:
            self.status_write_failures["Conflict"] += 1
            await self._read_again(job)
            raise Conflict(f"gang {metadata.name} was changed meanwhile: {error}") from error
        except Rejected as error:
            self.status_write_failures["Terminal"] += 1
            raise Terminal(f"the status of gang {metadata.name} can't be stored: {error.said}") from error
        except Retryable as error:
            # It may have been stored all the same.
            stored = await self._read_again(job)
            if stored is not None and stored.status == status:
                return stored
            too_large = len(content) > LARGE and not isinstance(error, NoAnswer)  # etcd's own limit is just any error
            self.status_write_failures["Terminal" if too_large else "Retryable"] += 1
            if too_large:
                raise Terminal(
                    f"the status of gang {metadata.name}, {len(content)} bytes, is refused: {error}"
                ) from error
            raise
        return self._stored(answer)

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        """Create a member's pod; see the port.

        Raises:
            Retryable: it can't be created now, or a pod that isn't this gang's has its name.
            Terminal: the API server refuses it, which is remembered as the gang's refusal.
        """
        await self._disruption_budgets.ensure(job)
        path = paths.pods(job.metadata.namespace)
        try:
            body = self._pod(job, create)
            async with self._slots:
                answer = await self._client.request("POST", path, body=body)
        except AlreadyExists:
            name = pod_name(job.metadata.name, create.member, create.incarnation)
            answer = await self._own_pod(job, name)
        except Conflict as error:  # of a quota that many pods are charged to
            raise Retryable(str(error)) from error
        except Terminal as error:
            self._pod_admission.refused(job, create.member, f"{create.member}: {_words(error)}")
            raise
        self._pod_admission.taken(job.metadata.uid, create.member)
        self._keep(answer)

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        """Begin to end a pod; see the port."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": delete.uid}}
        if delete.grace_seconds is not None:
            options["gracePeriodSeconds"] = delete.grace_seconds
        path = paths.pod(job.metadata.namespace, delete.name)
        try:
            async with self._slots:
                answer = await self._client.request("DELETE", path, body=json.dumps(options).encode())
        except (NotFound, Conflict):  # gone, or another pod has its name by now
            self._informers.pods.drop(delete.uid)
            return
        if kind_of(answer) == "Pod":
            self._keep(answer)

    async def delete_gang(self, job: GangJob) -> None:
        """Begin to delete the gang; the garbage collector takes its pods."""
        metadata = job.metadata
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": metadata.uid},
            "propagationPolicy": "Background",
        }
        path = paths.gang(metadata.namespace, metadata.name)
        try:
            answer = await self._client.request("DELETE", path, body=json.dumps(options).encode())
        except (NotFound, Conflict):
            self._informers.gangs.drop(metadata.uid)
            return
        if kind_of(answer) == KIND:
            self._stored(answer)
        else:
            self._informers.gangs.drop(metadata.uid)

    async def emit(self, job: GangJob, event: Event) -> None:
        """Send an Event soon.

        Raises:
            Retryable: too many wait to be sent, in all or of the gang's namespace.
        """
        name = related_pod(job, event)
        uid = next((one.uid for one in self._informers.pods_of(job.metadata.uid) if one.pod.name == name), "")
        self._recorder.record(job, event, uid)

    def _name_of(self, uid: str) -> tuple[str, str] | None:
        job = self.gang(uid)
        return None if job is None else (job.metadata.namespace, job.metadata.name)

    def _look_again(self, uid: str) -> None:
        if uid not in self._informers.gangs.items:
            self._pod_admission.forget(uid)
            self._disruption_budgets.forget(uid)
        self._changed(uid)

    def _pod(self, job: GangJob, create: CreatePod) -> bytes:
        made = builder.build(job, create, self._settings, ca=self._ca(), restart_all=self._informers.restarts_all)
        return json.dumps(made).encode()

    async def _dry_run(self, job: GangJob, role: str) -> str:
        create = CreatePod(member_name(role, 0), job.status.base_incarnation)
        try:
            await self._client.request(
                "POST",
                paths.pods(job.metadata.namespace),
                query={"dryRun": "All", "fieldValidation": "Strict"},
                body=self._pod(job, create),
            )
        except AlreadyExists:  # which is found last: all else is well
            return ""
        except Rejected as error:
            # Such a webhook can't be asked: what it says is seen when pods are created.
            return "" if NO_DRY_RUN in error.said else f"role {role}: {error.said}"
        except Terminal as error:
            return str(error)
        return ""

    async def _own_pod(self, job: GangJob, name: str) -> bytes:
        """The pod that has the name already, if it is the gang's own."""
        path = paths.pod(job.metadata.namespace, name)
        try:
            answer = await self._client.request("GET", path)
        except NotFound:
            raise Retryable(f"pod {name} was there and is gone") from None
        found = PODS.item(answer)
        if found is None or found.owner != job.metadata.uid:
            raise Retryable(
                f"a pod {name} that isn't this gang's is in its place (an earlier gang of the same name may have left "
                "it); it has to go first"
            )
        return answer

    def _keep(self, answer: bytes) -> None:
        item = PODS.item(answer)
        if item is not None:
            self._informers.pods.put(item)

    def _stored(self, answer: bytes) -> GangJob:
        """The object of an answer, kept."""
        item = GANGS.item(answer)
        if item is None or item.job is None:
            raise Terminal(f"the API server's answer isn't a GangJob: {'' if item is None else item.unreadable}")
        self._informers.gangs.put(item)
        return item.job

    async def _read_again(self, job: GangJob) -> GangJob | None:
        """The object as it is stored now, kept; None if it is gone."""
        path = paths.gang(job.metadata.namespace, job.metadata.name)
        try:
            found = GANGS.item(await self._client.request("GET", path))
        except NotFound:
            found = None
        if found is not None:
            self._informers.gangs.put(found)
        if found is None or found.uid != job.metadata.uid:
            self._informers.gangs.drop(job.metadata.uid)
            return None
        return found.job


def _words(error: Terminal) -> str:
    return error.said if isinstance(error, Rejected) else str(error)
