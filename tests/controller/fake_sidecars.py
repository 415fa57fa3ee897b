"""A hub on a real socket, and sidecars that a test controls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import aiohttp

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Status
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller.gate import Authenticate
from gangctl.controller.hub import Hub
from gangsidecar import wire
from tests.wait import SECONDS, until_async

DirectiveFor = Callable[[GangJob, wire.Report], wire.Directive | None]

MEMBERS = {f"token-{at}": MemberIdentity("uid-g", f"worker-{at}", 0, f"pod-{at}") for at in range(8)}


def job(attempt: int = 1, phase: GangPhase = GangPhase.GATHERING, version: str = "1", **status: Any) -> GangJob:
    """A stored gang."""
    found = GangJob.model_validate(
        {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": "g", "uid": "uid-g", "resourceVersion": version},
            "spec": {
                "roles": [
                    {
                        "name": "worker",
                        "replicas": 4,
                        "template": {"spec": {"containers": [{"name": "m", "command": ["w"]}]}},
                    }
                ]
            },
        }
    )
    return found.model_copy(update={"status": Status(attempt=attempt, phase=phase, **status)})


def report(at: int = 0, **fields: Any) -> wire.Report:
    """A report of the supervisor of worker-AT."""
    member = MEMBERS[f"token-{at}"]
    first = wire.Report(
        member.gang, member.member, member.incarnation, member.pod, f"session-{at}", 1, 0, wire.Phase.IDLE
    )
    return replace(first, **fields)


def held(stored: GangJob, said: wire.Report) -> wire.Directive | None:
    """A simple directive: hold the stored attempt, with the object's version as the reason."""
    version = stored.metadata.resource_version
    return wire.Directive(said.gang, said.pod, stored.status.attempt, wire.Verb.HOLD, f"version {version}")


@dataclass
class Sidecar:
    """The other end of one connection."""

    socket: aiohttp.ClientWebSocketResponse

    async def say(self, message: Any) -> None:
        """Send a message, or a raw text."""
        await self.socket.send_str(message if isinstance(message, str) else wire.encode(message))

    async def hear(self) -> Any:
        """The next message that is no ping."""
        while isinstance(message := await self.hear_all(), wire.Ping):
            pass
        return message

    async def hear_all(self) -> Any:
        """The next message."""
        async with asyncio.timeout(SECONDS):
            return wire.decode(await self.socket.receive_str())

    async def closed(self) -> int:
        """Wait until the hub closes the connection; returns the close code."""
        async with asyncio.timeout(SECONDS):
            while (await self.socket.receive()).type is not aiohttp.WSMsgType.CLOSED:
                pass
        assert self.socket.close_code is not None
        return self.socket.close_code


@dataclass
class Served:
    """A hub that listens."""

    hub: Hub
    url: str
    session: aiohttp.ClientSession
    woken: list[str] = field(default_factory=list)

    async def dial(self, token: str = "token-0", revision: int = wire.REVISION, **options: Any) -> Sidecar:
        """Connect as the sidecar with this token, of a release with this revision of the wire."""
        headers = {"Authorization": f"Bearer {token}", wire.REVISION_HEADER: str(revision)}
        return Sidecar(await self.session.ws_connect(self.url, headers=headers, max_msg_size=2**22, **options))

    async def taken(self, sidecar: Sidecar, said: wire.Report) -> None:
        """Let a sidecar send a report, and wait until it is taken: else the next one would take its place."""
        before = self.hub.stale.total()

        def is_taken() -> bool:
            heard = {one.report.pod: one.report for one in self.hub.reports.heard(said.gang)}
            return heard.get(said.pod) == said or self.hub.stale.total() > before

        await sidecar.say(said)
        await until_async("the report is taken", is_taken)


def _nobody(_gang: str) -> None:
    """Do nothing."""


@asynccontextmanager
async def served(tell: DirectiveFor = held, wake: Callable[[str], None] = _nobody) -> AsyncIterator[Served]:
    """A hub with eight members, worker-0 to worker-7."""
    async with aiohttp.ClientSession() as session, serving(session, tell, wake) as here:
        yield here
        await session.close()  # Otherwise the hub would wait for open connections.


async def _at_once() -> None:
    """Do nothing."""


def _here() -> str | None:
    """This process leads."""
    return None


@asynccontextmanager
async def serving(
    session: aiohttp.ClientSession,
    tell: DirectiveFor = held,
    wake: Callable[[str], None] = _nobody,
    *,
    tls: ssl.SSLContext | None = None,
    leader: Callable[[], str | None] = _here,
    before_identify: Callable[[], Awaitable[None]] = _at_once,
    identify: Authenticate | None = None,
) -> AsyncIterator[Served]:
    """The same, for sidecars that outlive it."""

    async def known(token: str) -> MemberIdentity | Refusal:
        await before_identify()
        return MEMBERS.get(token, Refusal(RefusalReason.UNKNOWN_POD, "the token is unknown"))

    def woke(gang: str) -> None:
        woken.append(gang)
        wake(gang)

    woken: list[str] = []
    hub = Hub(identify or known, lambda stored, _before: partial(tell, stored), woke, woke, leader)
    async with hub.serve("127.0.0.1", 0, tls) as url:
        yield Served(hub, url, session, woken)
