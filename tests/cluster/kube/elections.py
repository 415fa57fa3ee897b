"""Candidates in virtual time, over a fake Lease: it is no API server, but it keeps its one promise, the locked write.

The real :class:`Election` runs. The test says what happens to it: when its requests reach the store, whether their
answers come back, how fast its clock goes, and when its process is stopped and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gangctl.cluster.errors import Conflict, Retryable
from gangctl.cluster.kube.leases.election import Election
from gangctl.cluster.kube.leases.leadership import LeaseTiming
from gangctl.cluster.kube.leases.lease import LeaseRecord, lease_object

TIMING = LeaseTiming()
STEP = 0.5
"""Seconds in which everything that is due happens, when nothing is wrong."""


@dataclass
class Request:
    """One request on its way."""

    arguments: tuple[LeaseRecord | None, str, int, str] | None
    """Of a write; None = a read."""
    answer: asyncio.Future[LeaseRecord | None]
    result: LeaseRecord | Conflict | None = None
    is_applied: bool = False


@dataclass
class Store:
    """The one Lease."""

    record: LeaseRecord | None = None
    versions: int = 0

    def apply(self, request: Request) -> None:
        """The request reaches the store."""
        request.is_applied = True
        if request.arguments is None:
            request.result = self.record
            return
        over, holder, duration, address = request.arguments
        if (over and over.version) != (self.record and self.record.version):
            request.result = Conflict("somebody else was faster")
            return
        self.versions += 1
        document = lease_object(over, holder, duration, address, now=0.0)
        changes = document["spec"]["leaseTransitions"]
        self.record = LeaseRecord(str(self.versions), holder, duration, address, changes, document)
        request.result = self.record


@dataclass
class Candidate:
    """One process: its clock, its requests, its work."""

    name: str
    rate: float
    """How fast its clock goes."""
    offset: float
    time: float = 0.0
    """True time, which it doesn't know."""
    is_frozen: bool = False
    requests: list[Request] = field(default_factory=list)
    """On their way, the answer not yet given."""
    sleeps: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)
    working: int = 0
    terms: int = 0
    ends_at_once: bool = True
    """Otherwise its work, when it is cancelled, takes until this is set again."""
    released_while_working: bool = False
    election: Election = field(init=False)
    process: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.election = Election(self, self.name, f"wss://{self.name}/v1/connect", TIMING, self)
        self.process = asyncio.create_task(self.election.run(self._work))

    def now(self) -> float:
        return self.offset + self.rate * self.time

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self.sleeps.append((self.now() + seconds, woken))
        await woken

    async def read(self) -> LeaseRecord | None:
        return await self._send(None)

    async def write(self, over: LeaseRecord | None, holder: str, duration: int, address: str) -> LeaseRecord:
        self.released_while_working |= not holder and self.working > 0
        found = await self._send((over, holder, duration, address))
        assert found is not None
        return found

    async def _send(self, arguments: tuple[LeaseRecord | None, str, int, str] | None) -> LeaseRecord | None:
        request = Request(arguments, asyncio.get_running_loop().create_future())
        self.requests.append(request)
        return await request.answer

    async def _work(self) -> None:
        self.working += 1
        self.terms += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            while not self.ends_at_once:
                await self.sleep(0.1)
            self.working -= 1

    def wake(self) -> None:
        """Whoever has slept for long enough goes on."""
        if self.is_frozen:
            return
        due = [woken for at, woken in self.sleeps if at <= self.now()]
        self.sleeps = [(at, woken) for at, woken in self.sleeps if at > self.now() and not woken.done()]
        for woken in due:
            if not woken.done():
                woken.set_result(None)

    def answer(self) -> None:
        """The answers that are there arrive."""
        for request in [one for one in self.requests if one.is_applied and not self.is_frozen]:
            self.requests.remove(request)
            if request.answer.done():
                continue
            if isinstance(request.result, Conflict):
                request.answer.set_exception(request.result)
            else:
                request.answer.set_result(request.result)

    def lose(self, *, on_the_way: bool) -> None:
        """Its oldest request fails here; if it is ``on_the_way``, it may still reach the store."""
        if self.is_frozen:
            return
        for request in self.requests:
            if not request.answer.done():
                request.answer.set_exception(Retryable("the network is down"))
                if request.is_applied or not on_the_way:
                    self.requests.remove(request)
                return


@dataclass
class Elections:
    """The store and everybody who stands for election."""

    store: Store = field(default_factory=Store)
    candidates: list[Candidate] = field(default_factory=list)
    killed: list[Candidate] = field(default_factory=list)

    def add(self, name: str, rate: float = 1.0, offset: float = 0.0) -> Candidate:
        """A process is started."""
        time = self.candidates[0].time if self.candidates else 0.0
        found = Candidate(name, rate, offset, time)
        self.candidates.append(found)
        return found

    def replace(self, at: int) -> None:
        """A process is killed in the middle of whatever it did, and another one is started in its place.

        Of what the dead one has sent, one request reaches the store only now.
        """
        dead = self.candidates[at]
        dead.is_frozen = True
        self.killed.append(dead)
        born = self.add(f"{dead.name[0]}{len(self.killed)}", dead.rate, -dead.offset)
        self.candidates[at] = born
        self.candidates.pop()
        if dead.requests and not dead.requests[-1].is_applied:
            self.store.apply(dead.requests[-1])

    def leaders(self) -> list[str]:
        """Who may write at this very moment, also among those that are frozen."""
        return [one.name for one in self.candidates if one.election.may_write()]

    def go_by(self, seconds: float) -> None:
        """Only time passes."""
        for one in self.candidates:
            one.time += seconds
        self.check()

    def reach(self, candidate: Candidate) -> None:
        """What a candidate has sent reaches the store, in the order of sending."""
        for request in candidate.requests:
            if not request.is_applied:
                self.store.apply(request)

    async def settle(self) -> None:
        """Let everybody do what he can do without time or network."""
        for _ in range(12):
            await asyncio.sleep(0)
            self.check()

    async def go_well(self, seconds: float) -> None:
        """Time passes in small steps and the network works; who is frozen stays so."""
        for _ in range(int(seconds / STEP)):
            self.go_by(STEP)
            for one in self.candidates:
                one.wake()
            await self.settle()
            for _ in range(2):  # a read, and the write after it
                for one in self.candidates:
                    self.reach(one)
                    one.answer()
                await self.settle()

    def check(self) -> None:
        """What must hold at each instant."""
        assert len(self.leaders()) <= 1, f"{self.leaders()} lead"
        for one in self.candidates:
            assert one.working <= 1, f"{one.name} works for two terms at once"
            assert not one.released_while_working, f"{one.name} has released the Lease while it worked"
            assert not one.process.done() or one.process.cancelled(), "no process ends by itself"


@asynccontextmanager
async def elections(*names: str) -> AsyncIterator[Elections]:
    """Candidates who have just been started."""
    found = Elections()
    for name in names:
        found.add(name)
    try:
        await found.settle()
        yield found
    finally:
        found.candidates += found.killed
        for one in found.candidates:
            one.process.cancel()
            one.is_frozen, one.ends_at_once = False, True
        while not all(one.process.done() for one in found.candidates):
            for one in found.candidates:
                one.time += STEP
                one.wake()
                found.reach(one)
                one.answer()
            await asyncio.sleep(0)
