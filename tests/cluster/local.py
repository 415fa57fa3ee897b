"""A local cluster in a test's own folder, with real processes, of which none outlives the test."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.cluster import LocalCluster
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, StateDirectory, runtime_directory
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import LocalProcess
from gangctl.cluster.local.termination import teardown
from gangctl.core.facts.world import Pod
from gangctl.core.policy.pods import CreatePod
from tests.signal_sets import has_signal
from tests.wait import until_async


def manifest(
    name: str = "g", replicas: int = 2, command: tuple[str, ...] = ("sleep", "600"), **container: Any
) -> GangJob:
    """A gang of workers that do what ``command`` says."""
    worker = {"name": "main", "command": list(command), **container}
    role = {"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [worker]}}}
    return GangJob.model_validate(
        {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": name},
            "spec": {"roles": [role], "recovery": {"replaceAfter": 100, "stopGracePeriodSeconds": 2}},
        }
    )


@dataclass
class Machine:
    """One state directory with one gang in it."""

    state: StateDirectory
    store: GangStore
    changes: list[str] = field(default_factory=list)
    cluster: LocalCluster = field(init=False)

    @property
    def folder(self) -> GangFolder:
        """Of the gang."""
        return self.store.folder

    @property
    def job(self) -> GangJob:
        """As it is stored."""
        return self.store.read()

    @property
    def pods(self) -> tuple[Pod, ...]:
        """As the cluster shows them."""
        return self.cluster.pods(self.job.metadata.uid)

    async def create(self, member: str = "worker-0", incarnation: int = 0) -> PodRecord:
        """Create a pod and wait until both of its processes run, and its supervisor listens to signals."""
        await self.cluster.create_pod(self.job, CreatePod(member, incarnation))
        pod = await self.running(member)
        assert pod.supervisor is not None
        pid = pod.supervisor.pid
        await until_async("the supervisor handles signals", lambda: has_signal(pid, "SigCgt", signal.SIGTERM))
        return pod

    def sessions(self, pod: PodRecord) -> int:
        """How often its supervisor has got so far as to begin a session."""
        path = self.folder.pod(pod.name).supervisor_log
        return path.read_text().count("a session begins") if path.exists() else 0

    async def running(self, member: str = "worker-0") -> PodRecord:
        """Wait until both processes of the member's newest pod run."""
        pod: PodRecord = await until_async("both processes of the pod run", lambda: self.whole(member))
        return pod

    def whole(self, member: str) -> PodRecord | None:
        """The stored pod, if both processes run."""
        found = [one for one in pod_record.load_all(self.folder) if one.member == member]
        one = max(found, key=lambda pod: pod.incarnation, default=None)
        ids = () if one is None else (one.sidecar, one.supervisor)
        return one if one and all(pid is not None and process.is_alive(pid) for pid in ids) else None

    def pod(self, name: str) -> Pod:
        """As the cluster shows it."""
        return next(pod for pod in self.pods if pod.name == name)

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[LocalCluster]:
        """A controller's cluster; at the end it is left as a killed controller leaves it."""
        self.cluster = LocalCluster(self.state)
        watching = asyncio.create_task(self.cluster.watch(self.changes.append))
        try:
            await until_async(
                "the cluster watches",
                lambda: self.cluster.listening_since("") or (watching.done() and watching.result()),
            )
            yield self.cluster
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


@asynccontextmanager
async def machine(path: Path, job: GangJob | None = None) -> AsyncIterator[Machine]:
    """A state directory with a gang; at the end nothing of it runs."""
    job = job or manifest()
    state = StateDirectory(path / "state")
    state.gangs.mkdir(parents=True)
    # no controller listens: sidecars connect to a closed port
    state.url.write_text("ws://127.0.0.1:9/v1/connect")
    store = GangStore(state.gang(job.metadata.name))
    store.create(job, path)
    try:
        yield Machine(state, store)
    finally:
        await teardown(state, job.metadata.name, 0.0)
        assert not left(state)
        sockets = [pod.sockets for pod in pod_record.load_all(store.folder)]
        assert not set(sockets) & set(map(str, runtime_directory().iterdir()))


def left(state: StateDirectory) -> list[str]:
    """Command lines of processes that belong to the state directory."""
    lines = [" ".join(process.command_line(int(pid))) for pid in os.listdir("/proc") if pid.isdigit()]  # noqa: PTH208
    return [line for line in lines if str(state.path) in line]


def alive(one: LocalProcess | None) -> bool:
    """Whether it is one and lives."""
    return one is not None and process.is_alive(one)
