"""Run JobSets: watch those that name gangctl, apply their GangJobs, and store their status.

The rule: a JobSet is the only thing that its user writes, and its GangJob follows from it. The GangJob is applied
(server-side) when the JobSet asks for something new, so what is set on the GangJob itself (a restart, a pause) stays.
Its headless Service and its claims exist until it ends: those that are deleted are made again. A JobSet that doesn't
name gangctl is never touched, and neither is a GangJob, Service or claim of another owner. This runs beside the gangs'
loop while the process leads, and decides nothing: that is in ``translation.py`` and ``status.py``.
"""

import asyncio
import json
import logging
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from gangctl.annexes.jobset import names, status, translation
from gangctl.annexes.jobset.status import Outcome, Running
from gangctl.annexes.jobset.translation import Stage, UnsupportedError
from gangctl.api.status import ENDED, GangPhase
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.fair_slots import FairSlots
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import MERGE_PATCH, NotFound, Rejected
from gangctl.cluster.kube.decoding import Decoder, WatchDecoder
from gangctl.cluster.kube.projections import KubeGang
from gangctl.cluster.kube.reflector import ALL, NamespacedCopy, Reflector, WatchHealth, health
from gangctl.cluster.port import ObjectIdentity, PlainObject
from gangctl.controller.companions import House
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import Event
from gangctl.kubernetes.schema import RawMetadata, RawNamed
from gangctl.telemetry.metrics.process import Counts
from gangctl.words.message import Message

log = logging.getLogger(__name__)

NO_CRD: Final = "this cluster has no JobSets (jobsets.jobset.x-k8s.io). This controller keeps looking for them"
APPLY: Final = "application/apply-patch+yaml"
WRITER: Final = "gangctl-jobset"
"""The field manager of what is applied."""
FORCED: Final = {"fieldManager": WRITER, "force": "true"}
SLOTS: Final = 16
"""JobSets that are worked on at once, shared between namespaces."""
FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 300.0
TRIES_IN_SILENCE: Final = 5
"""The JobSet itself says what hinders it after so many tries, which is after 15 seconds."""
SHORTEST_REST_SECONDS: Final = 0.05
REST_FACTOR: Final = 4.0
"""A JobSet rests four times as long as it was worked on, so one takes at most a fifth of a core."""
RESULTS: Final = ("applied", "failed")
SERVICES: Final = "services"
CLAIMS: Final = "persistentvolumeclaims"


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


def counts(results: Mapping[str, int]) -> Counts:
    return Counts("gangctl_jobset_writes", "Writes for JobSets, by result.", "result", results)


def _read(raw: dict[str, Any]) -> KubeJobSet:
    metadata, spec = RawMetadata.model_validate(raw.get("metadata")), raw.get("spec")
    ours = isinstance(spec, dict) and spec.get("managedBy") == names.CONTROLLER and not metadata.deletion_timestamp
    kept = b""
    if ours:
        slim = {key: one for key, one in raw["metadata"].items() if key != "managedFields"}
        kept = zlib.compress(json.dumps(raw | {"metadata": slim}).encode())
    return KubeJobSet(metadata.uid, metadata.namespace, metadata.name, metadata.resource_version, kept)


JOBSETS: Final = WatchDecoder(dict[str, Any], _read)
_AS_STORED: Final = Decoder[dict[str, Any]](dict[str, Any], lambda raw: raw)
"""A user's object may be nested deeply."""
OBJECTS: Final = WatchDecoder(RawNamed, lambda raw: raw.metadata)
"""Services and claims."""


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
        self._objects = [
            Reflector(
                *(house.client, paths.collection("/api/v1", namespace, plural), OBJECTS),
                partial(self._on_object_change, plural),
                selector=names.JOBSET_NAME,
            )
            for namespace in house.settings.watch_namespaces or (ALL,)
            for plural in (SERVICES, CLAIMS)
        ]
        """What was made for JobSets, which have a label of that name."""
        self._slots = FairSlots(SLOTS)
        self._tasks: asyncio.TaskGroup | None = None
        """Of this term; None while this process doesn't lead."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """UID of a JobSet -> when to look at it."""
        self._busy: dict[str, bool] = {}
        """UID of a JobSet that is worked on -> whether to look at it again."""
        self._rests: dict[str, float] = {}
        """UID of a JobSet -> until when it rests, by the clock of the event loop."""
        self._failures: Counter[str] = Counter()
        self._owners: dict[str, str] = {}
        """UID of a GangJob -> UID of the object that owns it."""
        self._gangs: dict[str, set[str]] = {}
        """The same by owner: UID of the object -> UIDs of its GangJobs."""
        self._made: dict[str, set[str]] = {}
        """UID of a JobSet -> paths of the Services and claims that it has, and of the pods out of its Service."""
        self._translated: dict[str, tuple[Hashable, tuple[Stage, ...], str]] = {}
        """UID of a JobSet -> what it was translated from, its stages, and why it is refused."""

    @property
    def health(self) -> WatchHealth:
        """Return how fresh they are: of several namespaces, the least fresh."""
        return health("jobsets", self._copy.reflectors.values())

    @property
    def requests(self) -> Counts:
        return counts(self.results)

    async def watch(self) -> None:
        """Keep the JobSets fresh until cancelled."""
        self._house.informers.listeners.append(self._gang_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in (*self._copy.reflectors.values(), *self._objects):
                    tasks.create_task(one.run())
        finally:
            self._house.informers.listeners.remove(self._gang_changed)

    async def lead(self) -> NoReturn:
        """Work for one term: until cancelled. It begins with each JobSet, as the last leader left it."""
        self._failures.clear()
        self._made.clear()
        self._busy.clear()
        await self._catch_up()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for uid in tuple(self._house.informers.gangs.items):
                    self._gang_changed(uid)
                for uid in tuple(self._copy.items):
                    self._look_at(uid)
                await asyncio.get_running_loop().create_future()
                raise AssertionError
            finally:
                self._tasks = None
                for timer in self._timers.values():
                    timer.cancel()
                self._timers.clear()

    async def _catch_up(self) -> None:
        """Read what the last leader wrote: an older copy could resume what a queue has suspended."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ClusterError),
            wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
        ):
            with attempt, suppress(NotFound):
                await self._copy.refresh()

    # What to look at.

    def _on_change(self, old: KubeJobSet | None, new: KubeJobSet | None) -> None:
        if new is not None and new.kept:
            self._look_at(new.uid)
        elif old is not None:
            timer = self._timers.pop(old.uid, None)
            if timer is not None:
                timer.cancel()
            for known in (self._failures, self._rests, self._translated, self._made):
                known.pop(old.uid, None)

    def _on_object_change(self, plural: str, old: RawMetadata | None, new: RawMetadata | None) -> None:
        """Look at the JobSets that had an object which has been deleted."""
        if old is None or new is not None:
            return
        path = f"{paths.collection('/api/v1', old.namespace, plural)}/{old.name}"
        for uid, made in self._made.items():
            if path in made:
                made.remove(path)
                self._look_at(uid)

    def _gang_changed(self, uid: str) -> None:
        gang, owner = self._house.informers.gangs.items.get(uid), self._owners.pop(uid, "")
        if owner:
            self._gangs[owner].remove(uid)
            if not self._gangs[owner]:
                del self._gangs[owner]
        if gang is not None:
            owner = gang.owner
            if owner:
                self._owners[uid] = owner
                self._gangs.setdefault(owner, set()).add(uid)
        self._look_at(owner)

    def _look_at(self, uid: str, seconds: float = 0.0) -> None:
        """Look at a JobSet after these seconds, and after its rest, unless that is to be done earlier."""
        if self._tasks is None or uid not in self._copy.items:
            return
        if uid in self._busy and not seconds:
            self._busy[uid] = True
            return
        loop = asyncio.get_running_loop()
        at, timer = max(loop.time() + seconds, self._rests.get(uid, 0.0)), self._timers.get(uid)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[uid] = loop.call_at(at, self._begin, uid)

    def _begin(self, uid: str) -> None:
        del self._timers[uid]
        if uid in self._busy:
            self._busy[uid] = True
        elif self._tasks is not None:
            self._busy[uid] = False
            self._tasks.create_task(self._work(uid))

    async def _work(self, uid: str) -> None:
        item, loop = self._copy.items.get(uid), asyncio.get_running_loop()
        try:
            if item is not None and item.kept:
                async with self._slots.slot(item.namespace, uid):
                    began = loop.time()
                    await self._reconcile(item)
                    self._rests[uid] = loop.time() + max(SHORTEST_REST_SECONDS, REST_FACTOR * (loop.time() - began))
        except Conflict:
            self._fail(uid, "it has been changed by another process")
        except ClusterError as error:
            if self._failures[uid] >= TRIES_IN_SILENCE:
                await self._say(uid, f"gangctl can't run this JobSet yet: {error}. It tries again")
            self._fail(uid, str(error))
        except Exception as error:  # one JobSet must not end the others
            log.exception("JobSet %s can't be run", uid)
            report = "Report it, with the log of gangctl's controller. It tries again"
            await self._say(uid, f"gangctl has a bug with this JobSet: {error!r:.200}. {report}")
            self._fail(uid, "")
        finally:
            if self._busy.pop(uid, False):
                self._look_at(uid)

    async def _say(self, uid: str, why: str) -> None:
        """Say in the JobSet what hinders it, if that can be stored now."""
        item = self._copy.items.get(uid)
        if item is not None and item.kept:
            with suppress(ClusterError):
                await self._store(item, item.jobset, status.hindered(item.jobset, clock.now(), why))

    def _fail(self, uid: str, why: str) -> None:
        self.results["failed"] += 1
        self._failures[uid] += 1
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** (min(self._failures[uid], 30) - 1), LONGEST_RETRY_SECONDS)
        log.warning("JobSet %s: %s; the next try is in %g s", uid, why, seconds)
        self._look_at(uid, seconds)

    # What to do about one.

    async def _reconcile(self, item: KubeJobSet) -> None:
        jobset = item.jobset
        if not self._house.informers.shows(item.namespace):
            raise Retryable(f"the gangs of namespace {item.namespace} aren't listed yet")
        if await self._is_over(item, jobset):
            return
        stages, refusal = self._translate(item, jobset)
        running = self._running(item, stages)
        if not status.is_finished(jobset):
            try:
                await self._follow_suspension(item, stages, wanted=bool(jobset["spec"].get("suspend")))
                if not refusal:
                    await self._apply(item, jobset, running)
            except Rejected as error:
                refusal = error.message
        has_gang = bool(refusal) and not stages and item.uid in self._gangs
        outcome = status.current(jobset, running, clock.now(), refusal, has_gang=has_gang)
        await self._store(item, jobset, outcome)
        for one in running:
            await self._hide_replaced(item, one.pods)
        if refusal and not status.is_finished(jobset):
            self._fail(item.uid, refusal)
        else:
            self._failures.pop(item.uid, None)

    def _translate(self, item: KubeJobSet, jobset: Mapping[str, Any]) -> tuple[tuple[Stage, ...], str]:
        """The stages of a JobSet, and why what it asks for can't be run. What runs already goes on."""
        metadata = jobset["metadata"]
        given = (metadata.get("annotations") or {}, metadata.get("labels") or {}, metadata.get("generation"))
        source, known = json.dumps(given, sort_keys=True), self._translated.get(item.uid)
        if known is not None and known[0] == source:
            return known[1:]
        stages, refusal = tuple[Stage, ...](), ""
        try:
            stages = translation.stages(jobset)
        except UnsupportedError as error:
            refusal = str(error)
            with suppress(UnsupportedError):  # Only what was added can have changed.
                stages = translation.stages(translation.without_annotation(jobset))
        self._translated[item.uid] = source, stages, refusal
        return stages, refusal

    def _running(self, item: KubeJobSet, stages: Sequence[Stage]) -> list[Running]:
        """What is known of each stage. Those before the last that has begun are over."""
        gangs = [self._owned(item, one.gang) for one in stages]
        last = max((at for at, one in enumerate(gangs) if one is not None), default=-1)
        pods = [() if one is None else self._house.informers.pods_of(one.uid) for one in gangs]
        return [
            Running(stage, None if gang is None else gang.job, tuple(one.pod for one in pods[at]), is_over=at < last)
            for at, (stage, gang) in enumerate(zip(stages, gangs, strict=True))
        ]

    def _its_gangs(self, item: KubeJobSet) -> Iterator[KubeGang]:
        """Those of its namespace that aren't being deleted."""
        gangs = self._house.informers.gangs.items
        found = (gangs.get(uid) for uid in tuple(self._gangs.get(item.uid, ())))
        return (one for one in found if one is not None and one.namespace == item.namespace and not one.deleting)

    def _owned(self, item: KubeJobSet, name: str) -> KubeGang | None:
        return next((one for one in self._its_gangs(item) if one.name == name), None)

    async def _follow_suspension(self, item: KubeJobSet, stages: Sequence[Stage], *, wanted: bool) -> None:
        """Suspend the gangs of a suspended JobSet, whatever else is to be done: a queue takes its quota back.

        A gang that runs with other roles than a queue has admitted meanwhile is suspended too, as its roles can't be
        changed before.
        """
        stage_of = {one.gang: one for one in stages}
        for gang in self._its_gangs(item):
            if gang.job is None or gang.job.status.phase in ENDED:
                continue
            stage = stage_of.get(gang.name)
            if not gang.job.spec.suspend and (wanted or (stage is not None and not stage.keeps_pods(gang.applied))):
                body = {"metadata": {"uid": gang.uid}, "spec": {"suspend": True}}
                with suppress(NotFound):
                    await self._write(item, gang.name, body, MERGE_PATCH, {"fieldManager": WRITER})

    async def _apply(self, item: KubeJobSet, jobset: Mapping[str, Any], running: Sequence[Running]) -> None:
        """Apply the GangJob whose turn it is, unless it is as it was applied, and make what its pods need.

        Raises:
            Rejected: it can't be applied.
            ClusterError: it can't be applied now.
        """
        restarts = 0
        for one in running:
            stage, gang = one.stage, self._owned(item, one.stage.gang)
            if one.phase is GangPhase.SUCCEEDED:
                restarts += 0 if one.job is None else stage.restarts(one.job.status.restarts.counted)
                continue
            if one.phase is GangPhase.FAILED:
                return
            await self._ensure_objects(jobset)
            if gang is not None and stage.is_applied(gang.applied):
                return
            document = stage.after(restarts)
            stored = await self._stored(item, stage.gang)
            if stored is not None:
                document["metadata"] = {**document["metadata"], "uid": stored["metadata"]["uid"]}
                if not stored["spec"].get("suspend"):
                    document = translation.with_roles_of(stored, document)
            try:
                await self._write(item, stage.gang, document, APPLY, FORCED)
            except Rejected as error:
                text = stage.in_terms_of_jobset(error.message)
                raise Rejected(text, text) from None
            return

    async def _stored(self, item: KubeJobSet, name: str) -> Mapping[str, Any] | None:
        """The GangJob of this name, which this process may not see yet, or not any more; None if there is none.

        Raises:
            Rejected: it is another's.
            Retryable: an earlier JobSet left it, or it is being deleted.
        """
        try:
            found = _AS_STORED.item(await self._client.request("GET", paths.gang_path(item.namespace, name)))
        except NotFound:
            return None
        if found is None:
            raise Retryable(f"the GangJob {name} can't be read")
        owners = names.owners(found["metadata"], item.name)
        if owners == {item.uid} and not found["metadata"].get("deletionTimestamp"):
            return found
        if owners or found["metadata"].get("deletionTimestamp"):
            raise Retryable(f"the GangJob {name} is an earlier JobSet's, or hasn't been deleted yet")
        text = f"a GangJob {name} exists that doesn't belong to the JobSet; delete or rename it"
        raise Rejected(text, text)

    async def _write(
        self, item: KubeJobSet, gang: str, change: Mapping[str, Any], kind: str, query: Mapping[str, str]
    ) -> None:
        path = paths.gang_path(item.namespace, gang)
        await self._client.request("PATCH", path, query=query, body=change, content_type=kind)
        self.results["applied"] += 1

    async def _ensure_objects(self, jobset: Mapping[str, Any]) -> None:
        """Create the headless Service and the claims that are missing. As JobSet does, use those of others.

        Raises:
            Retryable: one is being deleted, or will be with an earlier JobSet of the name.
        """
        metadata, name = jobset["metadata"], jobset["metadata"]["name"]
        subdomain = translation.subdomain(jobset)
        if subdomain:
            ready = (jobset["spec"].get("network") or {}).get("publishNotReadyAddresses", True)
            spec = {
                "clusterIP": "None",
                "selector": {names.JOBSET_NAME: name},
                "publishNotReadyAddresses": ready,
            }
            service = {"kind": "Service", "metadata": {"labels": {names.JOBSET_NAME: name}}, "spec": spec}
            await self._ensure(jobset, SERVICES, subdomain, service, is_owned=True)
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
            await self._ensure(jobset, CLAIMS, called, claim, is_owned=one["isDeleted"])

    async def _ensure(
        self, jobset: Mapping[str, Any], plural: str, name: str, body: Mapping[str, Any], *, is_owned: bool
    ) -> None:
        metadata = jobset["metadata"]
        made = self._made.setdefault(metadata["uid"], set())
        collection = paths.collection("/api/v1", metadata["namespace"], plural)
        path = f"{collection}/{name}"
        if path in made:
            return
        try:
            stored = json.loads(await self._client.request("GET", path))["metadata"]
        except NotFound:
            new: dict[str, Any] = {"apiVersion": "v1", **body}
            new["metadata"] = {**body.get("metadata", {}), "name": name, "namespace": metadata["namespace"]}
            if is_owned:
                new["metadata"]["ownerReferences"] = [names.owner(metadata)]
            await self._client.request("POST", collection, body=new)
        else:
            if stored.get("deletionTimestamp") or names.owners(stored, metadata["name"]) - {metadata["uid"]}:
                raise Retryable(f"{plural}/{name} of an earlier JobSet hasn't been deleted yet")
        made.add(path)

    async def _hide_replaced(self, item: KubeJobSet, pods: Sequence[Pod]) -> None:
        """Take pods that have a successor out of the Service: they have its host name.

        A pod on a lost node stays for minutes, and peers that look its name up would find two addresses.

        Raises:
            Retryable: one can't be changed now.
        """
        made, newest = self._made.setdefault(item.uid, set()), dict[str, int]()
        for pod in pods:
            newest[pod.member] = max(pod.incarnation, newest.get(pod.member, 0))
        for pod in pods:
            path = paths.pod(item.namespace, pod.name)
            if pod.incarnation < newest[pod.member] and path not in made:
                change = {"metadata": {"uid": pod.uid, "labels": {names.JOBSET_NAME: None}}}
                try:
                    with suppress(NotFound, Conflict):
                        await self._client.request("PATCH", f"{path}/status", body=change)
                except Terminal as error:
                    log.warning("pod %s/%s keeps its host name in the Service: %s", item.namespace, pod.name, error)
                made.add(path)

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
            answer = await self._client.request("PATCH", f"{path}/status", body=body)
        except NotFound:
            return
        stored = JOBSETS.item(answer)
        if stored is not None:
            self._copy.put(stored)
        about = PlainObject(ObjectIdentity(item.uid, item.namespace, item.name), names.KIND, names.API_VERSION)
        for said in outcome.events:
            event = Event(said.reason, Message.stored(said.message, None), warns=said.is_warning)
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
        try:
            await self._client.delete(f"{_path(item.namespace)}/{item.name}", item.uid, propagationPolicy="Foreground")
        except (NotFound, Conflict):
            log.info("JobSet %s/%s is gone already", item.namespace, item.name)
        except Terminal:
            log.exception("JobSet %s/%s can't be deleted, though its time is over", item.namespace, item.name)
            self._look_at(item.uid, LONGEST_RETRY_SECONDS)
        return True


def _path(namespace: str) -> str:
    return paths.collection(f"/apis/{names.API_VERSION}", namespace, "jobsets")
