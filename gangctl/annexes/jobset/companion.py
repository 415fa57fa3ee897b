"""Run JobSets: watch those that name gangctl, apply their GangJobs, and store their status.

The rule: a JobSet is the only thing that its user writes, and its GangJob follows from it. The GangJob is applied
(server-side) when the JobSet asks for something new, so what is set on the GangJob itself (a restart, a pause) stays. A
JobSet that doesn't name gangctl is never touched, and neither is a GangJob, Service or claim of another owner. This
runs beside the gangs' loop while the process leads, and decides nothing: that is in ``translation.py`` and
``status.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NoReturn

from gangctl.annexes.jobset import names, status, translation
from gangctl.annexes.jobset.status import Outcome, Running
from gangctl.annexes.jobset.translation import Stage, UnsupportedError
from gangctl.api.status import ENDED, GangPhase
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import MERGE_PATCH, AlreadyExists, NotFound, Rejected
from gangctl.cluster.kube.decoding import WatchDecoder
from gangctl.cluster.kube.projections import KubeGang
from gangctl.cluster.kube.reflector import NamespacedCopy, Reflector, WatchHealth, health
from gangctl.cluster.port import ObjectIdentity, PlainObject
from gangctl.controller.companions import House
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.kubernetes.schema import RawMetadata
from gangctl.telemetry.metrics.process import Counts
from gangctl.words.message import Message

log = logging.getLogger(__name__)

NO_CRD: Final = "this cluster has no JobSets (jobsets.jobset.x-k8s.io). This controller keeps looking for them"
APPLY: Final = "application/apply-patch+yaml"
WRITER: Final = "gangctl-jobset"
"""The field manager of what is applied."""
WORKERS: Final = 8
"""JobSets that are worked on at once."""
FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 60.0
RESULTS: Final = ("applied", "failed")


@dataclass(frozen=True, slots=True)
class KubeJobSet:
    """A JobSet. Of one that isn't gangctl's, nothing is kept."""

    uid: str
    namespace: str
    name: str
    resource_version: str = field(compare=False)
    kept: bytes = b""
    """The whole object as compressed JSON; empty if it is another controller's, or is being deleted."""

    @property
    def jobset(self) -> Mapping[str, Any]:
        """The whole object."""
        found: Mapping[str, Any] = json.loads(zlib.decompress(self.kept))
        return found


def _read(raw: dict[str, Any]) -> KubeJobSet:
    metadata, spec = RawMetadata.model_validate(raw.get("metadata")), raw.get("spec")
    ours = isinstance(spec, dict) and spec.get("managedBy") == names.CONTROLLER and not metadata.deletion_timestamp
    kept = b""
    if ours:
        slim = {key: one for key, one in raw["metadata"].items() if key != "managedFields"}
        kept = zlib.compress(json.dumps(raw | {"metadata": slim}).encode())
    return KubeJobSet(metadata.uid, metadata.namespace, metadata.name, metadata.resource_version, kept)


JOBSETS: Final = WatchDecoder(dict[str, Any], _read)


class JobSets:
    """The JobSets of one cluster."""

    def __init__(self, house: House) -> None:
        self.results = dict.fromkeys(RESULTS, 0)
        self._house = house
        self._client = house.client
        self._copy: NamespacedCopy[KubeJobSet] = NamespacedCopy(
            house.settings.watch_namespaces,
            lambda one: Reflector(
                *(house.client, _path(one), JOBSETS, self._on_change),
                selector=house.settings.selector,
                absent=NO_CRD,
            ),
        )
        self._due: dict[str, float] = {}
        """UID of a JobSet -> when to look at it, on the monotonic clock."""
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._is_due = asyncio.Event()
        self._gangs: dict[tuple[str, str], str] = {}
        """Namespace and name of a GangJob -> its UID."""
        self._names: dict[str, tuple[str, str]] = {}
        """The same, the other way round."""
        self._made: set[tuple[str, str]] = set()
        """UID of a JobSet, and a Service or claim that it has, or a pod that is out of the Service."""

    @property
    def health(self) -> WatchHealth:
        """Return how fresh they are: of several namespaces, the least fresh."""
        return health("jobsets", self._copy.reflectors.values())

    @property
    def requests(self) -> Counts:
        """The metric of the writes."""
        return Counts("gangctl_jobset_writes", "Writes for JobSets, by result.", "result", self.results)

    async def watch(self) -> None:
        """Keep the JobSets fresh until cancelled."""
        self._house.informers.listeners.append(self._gang_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self._copy.reflectors.values():
                    tasks.create_task(one.run())
        finally:
            self._house.informers.listeners.remove(self._gang_changed)

    async def lead(self) -> NoReturn:
        """Work for one term: until cancelled. It begins with each JobSet."""
        self._due = dict.fromkeys(self._copy.items, 0.0)
        self._busy.clear()
        self._failures.clear()
        self._made.clear()
        self._is_due.set()
        for uid in tuple(self._house.informers.gangs.items):
            self._gang_changed(uid)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS - 1):
                tasks.create_task(self._work())
            await self._work()

    # What to look at.

    def _on_change(self, old: KubeJobSet | None, new: KubeJobSet | None) -> None:
        if new is not None and new.kept:
            self._look_at(new.uid)
        elif old is not None:
            self._due.pop(old.uid, None)
            self._made = {one for one in self._made if one[0] != old.uid}

    def _gang_changed(self, uid: str) -> None:
        gang = self._house.informers.gangs.items.get(uid)
        if gang is None:
            key = self._names.pop(uid, None)
            if key is not None and self._gangs.get(key) == uid:
                del self._gangs[key]
            return
        key = (gang.namespace, gang.name)
        self._gangs[key], self._names[uid] = uid, key
        self._look_at(gang.owner)

    def _look_at(self, uid: str, seconds: float = 0.0) -> None:
        if uid in self._copy.items:
            at = time.monotonic() + seconds
            self._due[uid] = min(at, self._due.get(uid, at))
            self._is_due.set()

    async def _work(self) -> NoReturn:
        while True:
            uid = await self._next()
            self._busy.add(uid)
            try:
                await self._reconcile(uid)
                self._failures.pop(uid, None)
            except ClusterError as error:
                self._fail(uid, error)
            except Exception:  # a JobSet that can't be read must not end the others
                log.exception("JobSet %s can't be run", uid)
                self._fail(uid, None)
            finally:
                self._busy.discard(uid)
                self._is_due.set()

    def _fail(self, uid: str, error: ClusterError | None) -> None:
        self.results["failed"] += 1
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        seconds = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS)
        if error is not None and not isinstance(error, Conflict):
            log.warning("JobSet %s: %s; the next try is in %g s", uid, error, seconds)
        self._look_at(uid, seconds)

    async def _next(self) -> str:
        while True:
            self._is_due.clear()
            ready = [(at, uid) for uid, at in self._due.items() if uid not in self._busy]
            now = time.monotonic()
            at, uid = min(ready, default=(None, ""))
            if at is not None and at <= now:
                del self._due[uid]
                return uid
            try:
                async with asyncio.timeout(None if at is None else at - now):
                    await self._is_due.wait()
            except TimeoutError:
                continue

    # What to do about one.

    async def _reconcile(self, uid: str) -> None:
        item = self._copy.items.get(uid)
        if item is None or not item.kept:
            return
        jobset = item.jobset
        if await self._is_over(item, jobset):
            return
        refusal, stages = "", tuple[Stage, ...]()
        try:
            stages = translation.stages(jobset)
            if not status.is_finished(jobset):
                await self._ensure_objects(jobset)
                await self._apply_stages(jobset, stages)
        except UnsupportedError as error:  # What runs already goes on: only what was added can have changed.
            refusal = str(error)
            with suppress(UnsupportedError):
                stages = translation.stages(translation.without_annotation(jobset))
        except Rejected as error:
            self._look_at(uid, LONGEST_RETRY_SECONDS)
            refusal = translation.in_terms_of_jobset(error.message)
        running = [self._running(jobset, one) for one in stages]
        for one in running:
            await self._hide_replaced(item, one.pods)
        await self._store(item, jobset, status.current(jobset, running, clock.now(), refusal))

    async def _apply_stages(self, jobset: Mapping[str, Any], stages: Sequence[Stage]) -> None:
        """Apply the GangJob whose turn it is, unless it is as it was applied.

        Raises:
            Rejected: it can't be applied.
            ClusterError: it can't be applied now.
        """
        metadata = jobset["metadata"]
        for stage in stages:
            gang = self._gang(metadata["namespace"], stage.gang)
            if gang is not None and (gang.deleting or gang.owner != metadata["uid"]):
                if gang.deleting or (gang.owner and gang.owner not in self._copy.items):
                    raise Retryable(f"the GangJob {stage.gang} of an earlier JobSet hasn't been deleted yet")
                text = f"a GangJob {stage.gang} exists that doesn't belong to the JobSet; delete or rename it"
                raise Rejected(text, text)
            phase = self._running(jobset, stage).phase
            if phase not in ENDED and (gang is None or gang.applied != stage.applied):
                await self._apply(stage)
            if phase is not GangPhase.SUCCEEDED:
                return

    def _running(self, jobset: Mapping[str, Any], stage: Stage) -> Running:
        gang = self._gang(jobset["metadata"]["namespace"], stage.gang)
        if gang is None or gang.owner != jobset["metadata"]["uid"]:
            return Running(stage, None)
        return Running(stage, gang.job, tuple(one.pod for one in self._house.informers.pods_of(gang.uid)))

    def _gang(self, namespace: str, name: str) -> KubeGang | None:
        return self._house.informers.gangs.items.get(self._gangs.get((namespace, name), ""))

    async def _apply(self, stage: Stage) -> None:
        namespace = stage.document["metadata"]["namespace"]
        await self._client.request(
            "PATCH",
            paths.gang_path(namespace, stage.gang),
            query={"fieldManager": WRITER, "force": "true"},
            body=json.dumps(stage.document).encode(),
            content_type=APPLY,
        )
        self.results["applied"] += 1

    async def _ensure_objects(self, jobset: Mapping[str, Any]) -> None:
        """Create the headless Service and the claims that are missing."""
        metadata, name = jobset["metadata"], jobset["metadata"]["name"]
        subdomain = translation.subdomain(jobset)
        if subdomain:
            ready = (jobset["spec"].get("network") or {}).get("publishNotReadyAddresses", True)
            spec = {
                "clusterIP": "None",
                "selector": {names.JOBSET_NAME: name},
                "publishNotReadyAddresses": ready,
            }
            await self._ensure(jobset, "services", subdomain, {"kind": "Service", "spec": spec}, is_owned=True)
        for one in translation.claim_templates(jobset):
            given = one.get("metadata") or {}
            claim = {
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "labels": {**(given.get("labels") or {}), names.JOBSET_NAME: name},
                    "annotations": given.get("annotations") or {},
                },
                "spec": one["spec"],
            }
            called = translation.claim_name(given["name"], metadata["name"])
            await self._ensure(jobset, "persistentvolumeclaims", called, claim, is_owned=one["isDeleted"])

    async def _ensure(
        self, jobset: Mapping[str, Any], plural: str, name: str, body: Mapping[str, Any], *, is_owned: bool
    ) -> None:
        metadata = jobset["metadata"]
        key = metadata["uid"], f"{plural}/{name}"
        if key in self._made:
            return
        made: dict[str, Any] = {"apiVersion": "v1", **body}
        made["metadata"] = {**body.get("metadata", {}), "name": name, "namespace": metadata["namespace"]}
        if is_owned:
            made["metadata"]["ownerReferences"] = [_owner(metadata)]
        path = f"/api/v1/namespaces/{metadata['namespace']}/{plural}"
        try:
            await self._client.request("POST", path, body=json.dumps(made).encode())
        except AlreadyExists:
            stored = json.loads(await self._client.request("GET", f"{path}/{name}"))["metadata"]
            owners = {one["uid"] for one in stored.get("ownerReferences") or () if one["kind"] == names.KIND}
            if stored.get("deletionTimestamp") or owners - {metadata["uid"]}:
                raise Retryable(f"{plural}/{name} of an earlier JobSet hasn't been deleted yet") from None
        self._made.add(key)

    async def _hide_replaced(self, item: KubeJobSet, pods: Sequence[Pod]) -> None:
        """Take pods that have a successor out of the Service: they have its host name.

        A pod on a lost node stays for minutes, and peers that look its name up would find two addresses.
        """
        newest: dict[str, int] = {}
        for pod in pods:
            newest[pod.member] = max(pod.incarnation, newest.get(pod.member, 0))
        for pod in pods:
            key = item.uid, f"pods/{pod.uid}"
            if pod.incarnation < newest[pod.member] and key not in self._made:
                change = {"metadata": {"uid": pod.uid, "labels": {names.JOBSET_NAME: None}}}
                path, body = f"{paths.pod(item.namespace, pod.name)}/status", json.dumps(change).encode()
                with suppress(NotFound, Conflict):
                    await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
                self._made.add(key)

    async def _store(self, item: KubeJobSet, jobset: Mapping[str, Any], outcome: Outcome) -> None:
        """Store the status, then say what has changed.

        Raises:
            ClusterError: it can't be stored now.
        """
        if outcome.status == (jobset.get("status") or {}):
            return
        body = {"metadata": {"resourceVersion": item.resource_version}, "status": outcome.status}
        path = f"{_path(item.namespace)}/{item.name}"
        try:
            answer = await self._client.request(
                "PATCH", f"{path}/status", body=json.dumps(body).encode(), content_type=MERGE_PATCH
            )
        except NotFound:
            return
        stored = JOBSETS.item(answer)
        if stored is not None:
            self._copy.put(stored)
        about = PlainObject(ObjectIdentity(item.uid, item.namespace, item.name), names.KIND, names.API_VERSION)
        for said in outcome.events:
            kind = EventType.WARNING if said.is_warning else EventType.NORMAL
            event = Event(kind, said.reason, Message.stored(said.message, None))
            try:
                self._house.recorder.record(about, event, "")
            except ClusterError as error:
                log.warning("an Event of JobSet %s/%s is not sent: %s", item.namespace, item.name, error)

    async def _is_over(self, item: KubeJobSet, jobset: Mapping[str, Any]) -> bool:
        """Delete a JobSet whose time after its end is over; return whether it was."""
        seconds, ended = jobset["spec"].get("ttlSecondsAfterFinished"), status.finished_at(jobset)
        if seconds is None or ended is None:
            return False
        left = datetime.fromisoformat(ended).timestamp() + seconds - clock.now()
        if left > 0:
            self._look_at(item.uid, left)
            return False
        options = {"preconditions": {"uid": item.uid}, "propagationPolicy": "Foreground"}
        path = f"{_path(item.namespace)}/{item.name}"
        try:
            await self._client.request("DELETE", path, body=json.dumps(options).encode())
        except (NotFound, Conflict):
            log.info("JobSet %s/%s is gone already", item.namespace, item.name)
        except Terminal:
            log.exception("JobSet %s/%s can't be deleted, though its time is over", item.namespace, item.name)
        return True


def _owner(metadata: Mapping[str, Any]) -> dict[str, Any]:
    named = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"], "uid": metadata["uid"]}
    return named | {"controller": True, "blockOwnerDeletion": True}


def _path(namespace: str) -> str:
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{names.API_VERSION}{within}/jobsets"


def companion(house: House) -> JobSets:
    """Make the companion of a process."""
    return JobSets(house)
