"""Candidates of an election in virtual time, over a fake Lease that offers what the API server does: a locked write.

The real :class:`Election` runs. The test decides when its requests reach the store, whether the answers arrive, how
fast its clock runs, and when its process is frozen and continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gangctl.cluster.errors import Conflict, Retryable
from gangctl.cluster.kube.election import Election, LeaseRecord, LeaseTiming, lease_object

TIMING = LeaseTiming()
STEP = 0.5
"""Seconds of one step without faults, in which everything that is due happens."""


@dataclass
class Request:
    """A request in flight."""

    arguments: tuple[LeaseRecord | None, str, int, str] | None
    """Of a write; None = a read."""
    answer: asyncio.Future[LeaseRecord | None]
    result: LeaseRecord | Conflict | None = None
    is_applied: bool = False


@dataclass
class Store:
    """The Lease."""

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
            request.result = Conflict("another candidate was faster")
            return
        self.versions += 1
        document = lease_object(over, holder, duration, address, now=0.0)
        changes = document["spec"]["leaseTransitions"]
        self.record = LeaseRecord(str(self.versions), holder, duration, address, changes, document)
        request.result = self.record


@dataclass
class Candidate:
    """A process: its clock, its requests, its work."""

    name: str
    rate: float
    """Speed of its clock; 1 = true time."""
    offset: float
    time: float = 0.0
    """True time, which the process can't see."""
    is_frozen: bool = False
    requests: list[Request] = field(default_factory=list)
    """In flight, without an answer yet."""
    sleeps: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)
    working: int = 0
    terms: int = 0
    ends_at_once: bool = True
    """If false, its work doesn't end after a cancellation until this is true again."""
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
        """Wake the tasks whose sleep is over."""
        if self.is_frozen:
            return
        due = [woken for at, woken in self.sleeps if at <= self.now()]
        self.sleeps = [(at, woken) for at, woken in self.sleeps if at > self.now() and not woken.done()]
        for woken in due:
            if not woken.done():
                woken.set_result(None)

    def answer(self) -> None:
        """Deliver the answers of the store."""
        for request in [one for one in self.requests if one.is_applied and not self.is_frozen]:
            self.requests.remove(request)
            if request.answer.done():
                continue
            if isinstance(request.result, Conflict):
                request.answer.set_exception(request.result)
            else:
                request.answer.set_result(request.result)

    def lose(self, *, on_the_way: bool) -> None:
        """Fail the oldest request here; if it is ``on_the_way``, it may still reach the store."""
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
    """The store and all candidates."""

    store: Store = field(default_factory=Store)
    candidates: list[Candidate] = field(default_factory=list)
    killed: list[Candidate] = field(default_factory=list)

    def add(self, name: str, rate: float = 1.0, offset: float = 0.0) -> Candidate:
        """Start a process."""
        time = self.candidates[0].time if self.candidates else 0.0
        found = Candidate(name, rate, offset, time)
        self.candidates.append(found)
        return found

    def replace(self, at: int) -> None:
        """Kill a process and start another one in its place.

        One request that the killed process has sent reaches the store only now.
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
        """Candidates that may write now, including frozen ones."""
        return [one.name for one in self.candidates if one.election.may_write()]

    def advance(self, seconds: float) -> None:
        """Let time pass, and nothing else."""
        for one in self.candidates:
            one.time += seconds
        self.check()

    def reach(self, candidate: Candidate) -> None:
        """Apply a candidate's requests to the store, in the order of sending."""
        for request in candidate.requests:
            if not request.is_applied:
                self.store.apply(request)

    async def settle(self) -> None:
        """Let all tasks run that need neither time nor the network."""
        for _ in range(12):
            await asyncio.sleep(0)
            self.check()

    async def run_well(self, seconds: float) -> None:
        """Let time pass in small steps while the network works; frozen candidates stay frozen."""
        for _ in range(int(seconds / STEP)):
            self.advance(STEP)
            for one in self.candidates:
                one.wake()
            await self.settle()
            for _ in range(2):  # a read, and the write after it
                for one in self.candidates:
                    self.reach(one)
                    one.answer()
                await self.settle()

    def check(self) -> None:
        """Check the invariants, which hold at each instant."""
        assert len(self.leaders()) <= 1, f"{self.leaders()} lead"
        for one in self.candidates:
            assert one.working <= 1, f"{one.name} works for two terms at once"
            assert not one.released_while_working, f"{one.name} released the Lease while it worked"
            assert not one.process.done() or one.process.cancelled(), "no process ends by itself"


@asynccontextmanager
async def elections(*names: str) -> AsyncIterator[Elections]:
    """Candidates that have just started."""
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
