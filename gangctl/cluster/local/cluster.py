"""The local cluster: implements the cluster port on one machine. Gangs are folders, pods are processes.

If the controller is killed, everything keeps running. The next controller reads the folders, adopts the running
processes, restarts those that died meanwhile, and must not touch a worker. Changes by other processes (the command
line) are noticed within 200 ms.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.api.names import pod_name
from gangctl.api.status import Status
from gangctl.cluster import clock
from gangctl.cluster.errors import Conflict, Terminal
from gangctl.cluster.local import atomic_files, pod_record
from gangctl.cluster.local.atomic_files import Stamp, append_line
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, StateDirectory
from gangctl.cluster.local.local_pod import LocalPod
from gangctl.cluster.local.log_files import LogFileReader
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import LocalProcess
from gangctl.cluster.local.programs import Programs, ignored_fields, store_pod
from gangctl.cluster.local.termination import find_processes, pod_processes
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason, UnreadableGang
from gangctl.core.facts.printed import Printed, ReadOutput
from gangctl.core.facts.world import NO_QUEUE, NodeState, Pod, Queue
from gangctl.core.lifecycle.plan import Event
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.pods import CreatePod, DeletePod

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
CONCURRENT_STARTS: Final = 2
"""Maximum number of pods to create concurrently: more would compete for CPU with each other and the controller."""


@dataclass
class _Gang:
    store: GangStore
    job: GangJob
    pods: dict[str, LocalPod]
    """Pods by name. They include pods of an earlier gang in the same folder until those are gone."""


class LocalCluster:
    """One state directory as a :class:`~gangctl.cluster.port.Cluster`."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._programs = Programs(state)
        self._gangs: dict[str, _Gang] = {}
        """By UID."""
        self._pods: dict[GangFolder, dict[str, LocalPod]] = {}
        """Pods by folder and name: a pod outlives its gang until it has ended."""
        self._unreadable: dict[Path, Stamp | None] = {}
        """Files that can't be read, so that each version is logged only once."""
        self._tokens: dict[str, MemberIdentity] = {}
        self._output = LogFileReader()
        self._starting = asyncio.Semaphore(CONCURRENT_STARTS)
        self._tasks: asyncio.TaskGroup | None = None
        self._changed: Callable[[str], None] = lambda _uid: None
        self._listening_since = 0.0

    def uids(self) -> tuple[str, ...]:
        """UIDs of all gangs of the state directory."""
        return tuple(self._gangs)

    def exists(self, uid: str) -> bool:
        """Return whether the gang is stored. If it can't be read any more, the last readable version counts."""
        return uid in self._gangs

    def gang(self, uid: str) -> GangJob | None:
        gang = self._gangs.get(uid)
        return None if gang is None else gang.job

    def unreadable(self, _uid: str) -> None:
        """None: of a gang that can't be read any more, the last readable version counts."""

    def named(self, name: str) -> GangJob | None:
        return next((gang.job for gang in self._gangs.values() if gang.job.metadata.name == name), None)

    def pods(self, uid: str) -> tuple[Pod, ...]:
        """All pods of the gang that exist."""
        pods = self._gangs[uid].pods.values() if uid in self._gangs else ()
        return tuple(pod.shown for pod in pods if pod.record.gang == uid)

    def listening_since(self, _uid: str) -> float:
        """Since when the state directory has been polled."""
        return self._listening_since

    def lost_nodes(self) -> Mapping[str, float]:
        """None: this machine is the only node."""
        return {}

    def nodes(self) -> Mapping[str, NodeState]:
        """None: this machine shows nothing."""
        return {}

    def unfavoured_nodes(self, _uid: str) -> frozenset[str]:
        """None: this machine is the only node."""
        return frozenset()

    def pod_rejections(self, _uid: str) -> tuple[str, ...]:
        """None: a gang that this machine can't run is rejected before it is stored."""
        return ()

    def queue(self, _uid: str) -> Queue:
        """None: this machine has no queues."""
        return NO_QUEUE

    async def authenticate(self, token: str) -> MemberIdentity | Refusal:
        return self._tokens.get(token) or Refusal(
            RefusalReason.UNKNOWN_POD, "the token belongs to no pod, or the pod is gone"
        )

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Keep all pods running and poll for changes until cancelled. Processes keep running then."""
        await asyncio.to_thread(self._programs.install)
        self._changed = changed
        async with asyncio.TaskGroup() as self._tasks:
            await self._poll()
            self._listening_since = clock.now()
            while True:
                await asyncio.sleep(POLL_SECONDS)
                await self._poll()

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        gang = self._gangs.get(job.metadata.uid)
        if gang is None:
            raise Conflict(f"gang {job.metadata.name} is gone")
        try:
            stored = await asyncio.to_thread(gang.store.write_status, job, status)
        finally:
            _refresh(gang)  # Also after a conflict, which was found by reading the stored version.
        if status.started_attempt != job.status.started_attempt:  # Its processes start after this.
            self._output.attempt_starts(gang.store.folder, gang.pods, status.started_attempt)
        return stored

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        """Create a pod: store it, then start its processes. The gang may be removed at any moment."""
        uid, name = job.metadata.uid, pod_name(job.metadata.name, create.member, create.incarnation)
        async with self._starting:
            gang = self._gangs.get(uid)
            if gang is None or name in gang.pods:
                return
            stored = await asyncio.to_thread(store_pod, self._state, gang.store.folder, job, create)
            self._start_pod(gang, stored, {})
            if uid not in self._gangs:
                await gang.pods[name].abandon()
        self._changed(uid)

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        """Start to terminate a pod."""
        gang = self._gangs.get(job.metadata.uid)
        pod = None if gang is None else gang.pods.get(delete.name)
        if pod is not None and pod.record.uid == delete.uid:
            await pod.delete(delete.grace_seconds)

    async def printed(self, job: GangJob, query: ReadOutput) -> Printed:
        gang = self._gangs.get(job.metadata.uid)
        name = pod_name(job.metadata.name, query.member, query.incarnation)
        if gang is None:
            return Printed()
        return await asyncio.to_thread(self._output.printed, gang.store.folder.pod(name), query.attempt, query.rank)

    async def tell_queue(self, job: GangJob, tell: TellQueue) -> None:
        """Never wanted: no gang is in a queue here."""
        raise Terminal(f"gang {job.metadata.name} is in no queue on this machine: {tell.verb}")

    async def delete_gang(self, job: GangJob) -> None:
        """Do nothing: `gangctl run` removes the gang."""

    async def emit(self, gang: GangJob | UnreadableGang, event: Event) -> None:
        """Append the event to the gang's ``events.jsonl``."""
        found = self._gangs.get(gang.metadata.uid)
        if found is None:
            return
        line = {
            "time": rfc3339(clock.now()),
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "member": event.member,
            "traceID": event.trace_id,
        }
        await asyncio.to_thread(append_line, found.store.folder.events, json.dumps(line))

    def _start_pod(self, gang: _Gang, stored: PodRecord, living: dict[str, LocalProcess]) -> None:
        folder = gang.store.folder.pod(stored.name)
        found = pod_processes(stored, living)
        pod = LocalPod(folder, stored, self._programs, lambda: self._changed(stored.gang), found)
        self._tokens[stored.token] = MemberIdentity(stored.gang, stored.member, stored.incarnation, stored.uid)
        gang.pods[stored.name] = pod
        assert self._tasks is not None
        self._tasks.create_task(self._run_pod(gang, pod), name=f"pod {stored.name}")

    async def _run_pod(self, gang: _Gang, pod: LocalPod) -> None:
        try:
            await pod.run()
        except Exception:
            # a failure of one pod must not end the controller or other gangs
            log.exception("pod %s is no longer managed; a restarted controller tries again", pod.record.name)
            return
        del gang.pods[pod.record.name]
        del self._tokens[pod.record.token]
        for uid, one in self._gangs.items():
            if one.pods is gang.pods:
                self._changed(uid)

    async def _poll(self) -> None:
        """Find gangs that are new, changed or gone. A gang that can't be read counts as unchanged."""
        known = {gang.store.folder: uid for uid, gang in self._gangs.items()}
        try:
            folders = [GangFolder(path) for path in self._state.gangs.iterdir()]
            stamps = {folder: atomic_files.stamp(folder.job) for folder in folders}
        except FileNotFoundError:
            stamps = {}
        except OSError as error:
            log.error("%s can't be read: %s", self._state.gangs, error)  # noqa: TRY400 - the message is complete
            return
        for folder in known.keys() | stamps.keys():
            uid, stamp = known.get(folder), stamps.get(folder)
            store = GangStore(folder) if uid is None else self._gangs[uid].store
            if stamp is None and uid is not None:
                await self._drop(uid)
            elif stamp not in {None, self._unreadable.get(folder.job), store.newest and store.newest[0]}:
                await self._read(uid, store)

    async def _read(self, known: str | None, store: GangStore) -> None:
        """Read a gang. ``known``: UID of the gang that was in this file at the last poll."""
        stamp = store.stamp()
        try:
            job = await asyncio.to_thread(store.read)
            uid = job.metadata.uid
            if uid == known:
                _refresh(self._gangs[uid])
            else:
                if known is not None:
                    await self._drop(known)
                self._gangs[uid] = await self._adopt(store, job)
        except Terminal as error:
            log.error("%s", error)  # noqa: TRY400 - the message is complete
            self._unreadable[store.folder.job] = stamp
            return
        self._changed(uid)

    async def _adopt(self, store: GangStore, job: GangJob) -> _Gang:
        """Adopt the stored pods; terminate those of an earlier gang of the same name."""
        gang = _Gang(store, job, self._pods.setdefault(store.folder, {}))
        records = await asyncio.to_thread(pod_record.load_all, store.folder)
        living = await asyncio.to_thread(find_processes) if records else {}
        for stored in records:
            if stored.name not in gang.pods:
                self._start_pod(gang, stored, living)
                if stored.gang != job.metadata.uid:
                    await gang.pods[stored.name].abandon()
        for sentence in ignored_fields(job):
            log.warning("gang %s: %s", job.metadata.name, sentence)
        return gang

    async def _drop(self, uid: str) -> None:
        """Terminate the pods of a gang whose folder or object is gone."""
        gang = self._gangs.pop(uid)
        for pod in list(gang.pods.values()):
            await pod.abandon()
        self._changed(uid)


def _refresh(gang: _Gang) -> None:
    """Use the version that was last read or written, if it is still the same gang."""
    newest = gang.store.newest
    if newest is not None and newest[1].metadata.uid == gang.job.metadata.uid:
        gang.job = newest[1]
