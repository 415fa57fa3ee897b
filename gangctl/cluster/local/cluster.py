"""The local cluster: the controller's world on one machine. Gangs are folders, pods are processes.

A controller that is killed leaves everything running. The next one reads the folders, adopts what lives, starts again
what died meanwhile, and touches no worker. Changes by others (the command line) are noticed within 200 ms.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.api.names import pod_name
from gangctl.api.status import Status
from gangctl.cluster.errors import Conflict, Terminal
from gangctl.cluster.local import atomic_files, pod_record
from gangctl.cluster.local.atomic_files import Stamp, sync_folder, unwritable, write
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, StateDirectory, runtime_directory
from gangctl.cluster.local.local_pod import LocalPod
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.programs import Programs
from gangctl.cluster.local.termination import find_processes, processes_of
from gangctl.cluster.local.worker_command import command, ignored
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import Event
from gangctl.core.policy.pods import CreatePod, DeletePod

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
STARTING_AT_ONCE: Final = 2
"""Pods that are created at the same time: more would only push each other, and the controller, off the processors."""


@dataclass
class _Gang:
    store: GangStore
    job: GangJob
    pods: dict[str, LocalPod]
    """By name. Those of an earlier gang in the same folder are among them until they are gone."""


class LocalCluster:
    """One state directory as a :class:`~gangctl.cluster.port.Cluster`."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._programs = Programs(state)
        self._gangs: dict[str, _Gang] = {}
        """By UID."""
        self._pods: dict[GangFolder, dict[str, LocalPod]] = {}
        """By folder and name: pods outlive their gang for as long as they need to end."""
        self._bad: dict[Path, Stamp | None] = {}
        """Files that can't be read, so that each version is complained about once."""
        self._tokens: dict[str, MemberIdentity] = {}
        self._starting = asyncio.Semaphore(STARTING_AT_ONCE)
        self._keepers: asyncio.TaskGroup | None = None
        self._changed: Callable[[str], None] = _nobody
        self.listening_since = 0.0

    def gang(self, uid: str) -> GangJob | None:
        """The gang as it is stored."""
        gang = self._gangs.get(uid)
        return None if gang is None else gang.job

    def named(self, name: str) -> GangJob | None:
        """The gang of this name, as it is stored."""
        return next((gang.job for gang in self._gangs.values() if gang.job.metadata.name == name), None)

    def pods(self, uid: str) -> tuple[Pod, ...]:
        """All pods of the gang that are not gone."""
        gang = self._gangs.get(uid)
        pods = () if gang is None else gang.pods.values()
        return tuple(pod.shown for pod in pods if pod.record.gang == uid)

    def lost_nodes(self) -> frozenset[str]:
        """None: this machine is the only node."""
        return frozenset()

    def pod_rejections(self, uid: str) -> tuple[str, ...]:
        """None: what this machine can't run is refused before it is stored."""
        del uid
        return ()

    async def authenticate(self, token: str) -> MemberIdentity | Refusal:
        """Whose token this is."""
        return self._tokens.get(token) or Refusal(
            RefusalReason.UNKNOWN_POD, "the token is nobody's, or its pod is gone"
        )

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Keep every pod and look for changes until cancelled; processes are left running then.

        Raises:
            Terminal: the state directory can't be used.
        """
        await asyncio.to_thread(self._programs.install)
        self._changed = changed
        async with asyncio.TaskGroup() as self._keepers:
            await self._look()
            self.listening_since = time.time()
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self._look()

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        """Store the status; see the port."""
        gang = self._gangs.get(job.metadata.uid)
        if gang is None:
            raise Conflict(f"gang {job.metadata.name} is gone")
        try:
            written = await asyncio.to_thread(gang.store.write_status, job, status)
        finally:
            # Of a conflict as well: it was found by reading what is stored now.
            _refresh(gang)
        return written

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        """Create a pod: first it is stored, then its processes are started.

        Raises:
            Retryable: it can't be stored.
            Terminal: its template can't be run on this machine.
        """
        gang = self._gangs.get(job.metadata.uid)
        name = pod_name(job.metadata.name, create.member, create.incarnation)
        if gang is None or name in gang.pods:
            return
        async with self._starting:
            stored = await asyncio.to_thread(self._store_pod, gang.store.folder, job, create)
            self._keep(gang, stored, {})
        self._changed(stored.gang)

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        """Begin to end a pod."""
        gang = self._gangs.get(job.metadata.uid)
        pod = None if gang is None else gang.pods.get(delete.name)
        if pod is not None and pod.record.uid == delete.uid:
            await pod.delete(delete.grace_seconds)

    async def delete_gang(self, job: GangJob) -> None:
        """Nothing: whoever started the gang on this machine removes it."""

    async def emit(self, job: GangJob, event: Event) -> None:
        """Append the event to the gang's ``events.jsonl``.

        Raises:
            Retryable: it can't be written.
        """
        gang = self._gangs.get(job.metadata.uid)
        if gang is None:
            return
        line = {
            "time": rfc3339(time.time()),
            "type": event.type.value,
            "reason": event.reason,
            "message": event.message,
            "member": event.member,
            "traceID": event.trace_id,
        }
        await asyncio.to_thread(_append, gang.store.folder.events, json.dumps(line))

    def _store_pod(self, folder: GangFolder, job: GangJob, create: CreatePod) -> PodRecord:
        worker = command(job, create.member, os.environ)
        uid = str(uuid.uuid4())
        stored = PodRecord(
            name=pod_name(job.metadata.name, create.member, create.incarnation),
            uid=uid,
            gang=job.metadata.uid,
            member=create.member,
            incarnation=create.incarnation,
            created=time.time(),
            token=secrets.token_urlsafe(32),
            sockets=str(runtime_directory() / uid.replace("-", "")[:16]),
            command=worker.words,
            environment=worker.environment,
            directory=str(worker.directory),
            grace_seconds=worker.grace_seconds,
        )
        pod = folder.pod(stored.name)
        try:
            pod.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            pod.state_file.unlink(missing_ok=True)
            write(pod.program, self._state.program.read_bytes(), durable=False)
            write(pod.token, stored.token.encode(), durable=False)
            pod_record.save(pod, stored, durable=True)
            sync_folder(folder.pods)
        except OSError as error:
            raise unwritable(pod.path, error) from error
        return stored

    def _keep(self, gang: _Gang, stored: PodRecord, living: dict[str, Process]) -> None:
        folder = gang.store.folder.pod(stored.name)
        found = processes_of(stored, living)
        pod = LocalPod(folder, stored, self._programs, lambda: self._changed(stored.gang), found)
        self._tokens[stored.token] = MemberIdentity(stored.gang, stored.member, stored.incarnation, stored.uid)
        gang.pods[stored.name] = pod
        assert self._keepers is not None
        self._keepers.create_task(self._kept(gang, pod), name=f"pod {stored.name}")

    async def _kept(self, gang: _Gang, pod: LocalPod) -> None:
        try:
            await pod.keep()
        except Exception:
            # One pod that can't be kept must not take the controller along, nor the other gangs.
            log.exception("pod %s isn't kept any more; a restarted controller tries again", pod.record.name)
            return
        del gang.pods[pod.record.name]
        del self._tokens[pod.record.token]
        for uid, one in self._gangs.items():
            if one.pods is gang.pods:
                self._changed(uid)

    async def _look(self) -> None:
        """Find gangs that are new, changed or gone. What can't be looked at is taken to be as it was."""
        known = {gang.store.folder: uid for uid, gang in self._gangs.items()}
        try:
            folders = [GangFolder(path) for path in self._state.gangs.iterdir()]
            stamps = {folder: atomic_files.stamp(folder.job) for folder in folders}
        except FileNotFoundError:
            stamps = {}
        except OSError as error:
            log.error("%s can't be looked at: %s", self._state.gangs, error)  # noqa: TRY400 - the sentence says it all
            return
        for folder in known.keys() | stamps.keys():
            uid, stamp = known.get(folder), stamps.get(folder)
            store = GangStore(folder) if uid is None else self._gangs[uid].store
            if stamp is None and uid is not None:
                await self._drop(uid)
            elif stamp not in {None, self._bad.get(folder.job), store.newest and store.newest[0]}:
                await self._read(uid, store)

    async def _read(self, known: str | None, store: GangStore) -> None:
        """``known``: the UID of the gang that was in this file when it was last looked at."""
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
            log.error("%s", error)  # noqa: TRY400 - the sentence says it all
            self._bad[store.folder.job] = stamp
            return
        self._changed(uid)

    async def _adopt(self, store: GangStore, job: GangJob) -> _Gang:
        """Keep the pods that are stored; those of an earlier gang of the same name are ended."""
        gang = _Gang(store, job, self._pods.setdefault(store.folder, {}))
        records = await asyncio.to_thread(pod_record.load_all, store.folder)
        living = await asyncio.to_thread(find_processes) if records else {}
        for stored in records:
            if stored.name not in gang.pods:
                self._keep(gang, stored, living)
                if stored.gang != job.metadata.uid:
                    await gang.pods[stored.name].give_up()
        for sentence in ignored(job):
            log.warning("gang %s: %s", job.metadata.name, sentence)
        return gang

    async def _drop(self, uid: str) -> None:
        """The gang's folder or object is gone: its processes go, too."""
        gang = self._gangs.pop(uid)
        for pod in list(gang.pods.values()):
            await pod.give_up()
        self._changed(uid)


def _refresh(gang: _Gang) -> None:
    """Show what was last read or written, if it is still the same gang."""
    newest = gang.store.newest
    if newest is not None and newest[1].metadata.uid == gang.job.metadata.uid:
        gang.job = newest[1]


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise unwritable(path, error) from error


def _nobody(_uid: str) -> None:
    """Before anybody watches."""
