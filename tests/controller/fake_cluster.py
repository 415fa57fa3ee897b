"""A cluster in memory, for tests of the loop. Other tests use the real clusters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.cluster.errors import Conflict
from gangctl.cluster.port import ObjectIdentity, Refusal, RefusalReason, UnreadableGang
from gangctl.controller.loop import Decide, Loop, Wakes
from gangctl.core.facts.printed import Printed, ReadOutput
from gangctl.core.facts.world import NO_QUEUE, NodeState, Pod, Queue
from gangctl.core.lifecycle.plan import DeleteGang, Event
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.telemetry.port import Telemetry, TelemetryFanout
from tests.controller.fake_sidecars import DirectiveFor, Served, Sidecar, held, job, report, served


@dataclass
class FakeCluster:
    """Gangs, and everything that was done to them."""

    jobs: dict[str, GangJob] = field(default_factory=lambda: {"uid-g": job(version="1", attempt=0)})
    shown: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    done: list[object] = field(default_factory=list)
    """Every effect, in order: statuses, creations, deletions, events."""
    before_write: Callable[[GangJob], object] = lambda _job: None
    """Called before a status is stored; what it raises is raised, what it returns is awaited if that is possible."""
    before_create: Callable[[CreatePod], object] = lambda _create: None
    since: float = field(default_factory=time.time)
    refused: tuple[str, ...] = ()
    queued: Queue = NO_QUEUE
    output: Printed = field(default_factory=Printed)
    broken: dict[str, str] = field(default_factory=dict)
    """Gangs that can't be read: UID -> why."""

    def uids(self) -> tuple[str, ...]:
        return tuple(uid for uid in self.jobs if uid not in self.broken)

    def exists(self, uid: str) -> bool:
        return uid in self.jobs

    def gang(self, uid: str) -> GangJob | None:
        return None if uid in self.broken else self.jobs.get(uid)

    def unreadable(self, uid: str) -> UnreadableGang | None:
        return UnreadableGang(ObjectIdentity(uid, "default", "g"), self.broken[uid]) if uid in self.broken else None

    def pods(self, uid: str) -> tuple[Pod, ...]:
        return self.shown.get(uid, ())

    def listening_since(self, _uid: str) -> float:
        return self.since

    def lost_nodes(self) -> dict[str, float]:
        return {}

    def nodes(self) -> dict[str, NodeState]:
        return {}

    def unfavoured_nodes(self, _uid: str) -> frozenset[str]:
        return frozenset()

    def pod_rejections(self, _uid: str) -> tuple[str, ...]:
        return self.refused

    def queue(self, _uid: str) -> Queue:
        return self.queued

    async def authenticate(self, _token: str) -> Refusal:
        return Refusal(RefusalReason.UNKNOWN_POD, "the token is unknown")

    async def watch(self, changed: Callable[[str], None]) -> None:
        for uid in self.jobs:
            changed(uid)
        await asyncio.Event().wait()

    async def write_status(self, job: GangJob, status: Status) -> GangJob:
        waiting = self.before_write(job)
        if isinstance(waiting, asyncio.Future):
            await waiting
        uid = job.metadata.uid
        stored = self.jobs[uid]
        if stored is not job:
            raise Conflict("another process wrote first")
        self.change(uid, status)
        self.done.append(status)
        return self.jobs[uid]

    def change(self, uid: str, status: Status) -> None:
        """Store a status, as another process would."""
        stored = self.jobs[uid]
        version = str(int(stored.metadata.resource_version) + 1)
        metadata = stored.metadata.model_copy(update={"resource_version": version})
        self.jobs[uid] = stored.model_copy(update={"metadata": metadata, "status": status})

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        self.before_create(create)
        self.done.append(create)
        uid = job.metadata.uid
        pod = Pod(f"g-{create.member}-{create.incarnation}", f"pod-{create.member}", create.member, create.incarnation)
        self.shown[uid] = (*self.shown.get(uid, ()), pod)

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        self.done.append(delete)
        uid = job.metadata.uid
        self.shown[uid] = tuple(replace(pod, deleting=pod.uid == delete.uid) for pod in self.shown[uid])

    async def printed(self, _job: GangJob, query: ReadOutput) -> Printed:
        self.done.append(query)
        return self.output

    async def tell_queue(self, _job: GangJob, tell: TellQueue) -> None:
        self.done.append(tell)

    async def delete_gang(self, job: GangJob) -> None:
        self.done.append(DeleteGang())
        del self.jobs[job.metadata.uid]

    async def emit(self, gang: GangJob | UnreadableGang, event: Event) -> None:  # noqa: ARG002 - as the port has it
        self.done.append(event)


@dataclass
class Running:
    """A running loop with its cluster and its hub."""

    world: FakeCluster
    served: Served
    wakes: Wakes
    loop: Loop
    members: list[Sidecar] = field(default_factory=list)
    """One that is forgotten would be closed by the garbage collector."""

    async def member(self, at: int = 0) -> Sidecar:
        """Connect worker-AT and let it report."""
        sidecar = await self.served.dial(f"token-{at}")
        self.members.append(sidecar)
        await sidecar.say(report(at))
        return sidecar


@asynccontextmanager
async def running(
    world: FakeCluster, decide: Decide, *telemetry: Telemetry, tell: DirectiveFor = held
) -> AsyncIterator[Running]:
    """Run the loop, beginning with a round of each gang; it reports to ``telemetry``."""
    wakes = Wakes()
    async with served(tell, wakes.wake) as here:
        loop = Loop(world, here.hub, wakes, decide, TelemetryFanout(*telemetry))
        task = asyncio.create_task(loop.run())
        for uid in world.jobs:
            wakes.wake(uid)
        try:
            yield Running(world, here, wakes, loop)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
