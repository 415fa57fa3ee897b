"""Replicas of the controller that run in this process, against a fake API server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
from aiohttp import web

from gangctl.cluster.kube.client import Client
from gangctl.controller import flags
from gangctl.controller.kube import Controller
from gangsidecar import wire
from tests.cluster.kube.fakeapi import FakeApi, Fault
from tests.ports import free_port
from tests.wait import SECONDS, until_async

T = TypeVar("T")
LEASE = ("--lease-duration", "15", "--renew-deadline", "10", "--retry-period", "0.2")
"""A replica that waits for a processor keeps it; one that ends gives it back."""
QUICK = ("--lease-duration", "2", "--renew-deadline", "1.2", "--retry-period", "0.2")
"""For a test that waits until a Lease is lost."""
ANY = ssl.create_default_context()
ANY.check_hostname, ANY.verify_mode = False, ssl.CERT_NONE


@dataclass
class Replica:
    """One controller."""

    name: str
    options: flags.Options
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return self.options.address.replace("wss", "https")

    async def ready(self) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.options.health_port}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def answer(self) -> tuple[int, str | None]:
        """The answer to a request without a token (401 from the leader), and the leader that it names."""
        async with aiohttp.ClientSession() as session, session.get(self.url, ssl=ANY) as answer:
            return answer.status, answer.headers.get(wire.LEADER_HEADER)

    async def until_ready(self, said: str = "ok") -> None:
        """Wait until ``/readyz`` answers with this text."""
        await until_answered(f"/readyz of {self.name} answers {said!r}", self.ready, lambda found: said in found[1])

    async def until_it_leads(self) -> None:
        await until_answered(f"{self.name} leads", self.answer, lambda found: found[0] == 401)


async def until_answered(what: str, ask: Callable[[], Awaitable[T]], expected: Callable[[T], bool]) -> None:
    """Wait until the answer is the expected one; a connection may fail meanwhile."""

    async def is_answered() -> bool:
        with suppress(aiohttp.ClientConnectionError):
            return expected(await ask())
        return False

    await until_async(what, is_answered, every=0.02)


@asynccontextmanager
async def replica(api: FakeApi, name: str, *more: str) -> AsyncIterator[Replica]:
    """A controller that runs until ``ended`` is set, at the latest until the end of the block."""
    image = ("--sidecar-image", "registry.example/gangctl/sidecar:1")
    words = ("--namespace", "default", "--pod-name", name, "--hub-port", str(free_port()), *image)
    ports = ("--health-port", str(free_port()), "--metrics-port", str(free_port()))
    found = Replica(name, flags.parse([*words, *ports, *LEASE, *more]))
    async with Client(api.credentials()) as client:
        running = asyncio.create_task(Controller(found.options, client).run(found.ended))
        try:
            await until_answered(f"{name} listens", found.ready, bool)
            yield found
        finally:
            found.ended.set()
            async with asyncio.timeout(SECONDS):
                await running


def holder(api: FakeApi) -> str:
    """The pod that holds the Lease."""
    lease = api.objects.get(("leases", "default", "gangctl"))
    return "" if lease is None else lease["spec"]["holderIdentity"].partition("_")[0]


def about(plural: str, answer: Callable[[], web.StreamResponse]) -> Fault:
    """A fault of all requests for these objects."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        return answer() if f"/{plural}" in request.path else None

    return fault
