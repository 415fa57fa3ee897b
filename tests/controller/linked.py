"""A leader and relays in this process, on real sockets, without TLS, tokens and a Lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp

from gangctl.cluster.kube.election import LeaderAt
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.controller.hub import Hub
from gangctl.controller.links import LINK_PATH, RELAY_HEADER, Links
from gangctl.controller.relay import Dialing, Relay
from gangsidecar import wire
from tests.controller.fake_sidecars import Sidecar
from tests.controller.replicas import ANY
from tests.wait import until_async


def identity(token: str) -> MemberIdentity:
    """A token is gang and member; the namespace has the gang's name."""
    gang, member = token.split("/")
    return MemberIdentity(gang, member, 0, f"{gang}-{member}", gang)


async def identify(token: str) -> MemberIdentity:
    """Accept every token."""
    return identity(token)


async def at_once(_token: str) -> Refusal | None:
    """Every replica is one."""
    return None


def said(token: str, **fields: object) -> wire.Report:
    """A report of this member."""
    who = identity(token)
    known = {"session": "s", "seq": 1, "attempt": 0, "phase": wire.Phase.IDLE, **fields}
    return wire.Report(who.gang, who.member, 0, who.pod, **known)  # type: ignore[arg-type]


@dataclass
class Linked:
    """The leader, and relays with their own addresses."""

    hub: Hub
    links: Links
    session: aiohttp.ClientSession
    leader: LeaderAt
    found: LeaderAt | None
    """What the relays read in the Lease."""
    leads: bool = True
    relays: list[Relay] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    async def dial(self, token: str, order: int = 1, at: int = 0) -> Sidecar:
        """Connect a sidecar to a relay."""
        headers = {"Authorization": f"Bearer {token}", wire.ORDER_HEADER: str(order)}
        return Sidecar(await self.session.ws_connect(self.urls[at], headers=headers, max_msg_size=2**22))

    async def member(self, token: str, **fields: object) -> Sidecar:
        """A sidecar whose report the leader has answered."""
        sidecar = await self.dial(token)
        await sidecar.say(said(token, **fields))
        assert isinstance(await sidecar.hear_all(), wire.Ping)
        return sidecar

    async def link(self, name: str = "by-hand") -> aiohttp.ClientWebSocketResponse:
        """Dial the leader as a relay does."""
        url = self.leader.url.replace(wire.CONNECT_PATH, LINK_PATH)
        return await self.session.ws_connect(url, headers={"Authorization": "Bearer x", RELAY_HEADER: name})

    async def connected(self, count: int) -> None:
        """Wait until the leader has so many members."""
        await until_async(f"{count} members are connected", lambda: len(self.hub.connections) == count)


@asynccontextmanager
async def linked(
    relays: int = 1,
    *,
    patience: float = 60.0,
    authenticate: Callable[[str], Awaitable[Refusal | None]] = at_once,
    token: Callable[[], str] = lambda: "token",
) -> AsyncIterator[Linked]:
    """A leader without gangs, and so many relays."""

    def hub(leader: Callable[[], str | None]) -> Hub:
        return Hub(identify, lambda _job, _before: lambda _report: None, _ignore, _ignore, leader)

    leading = hub(lambda: None if here.leads else "")
    links = Links(leading, authenticate, lambda: here.leader.term)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(leading.serve("127.0.0.1", 0, None, {LINK_PATH: links.handle}))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        leader = LeaderAt(url, "leader/1")
        here = Linked(leading, links, session, leader, leader)
        tasks = list[asyncio.Task[None]]()
        for at in range(relays):
            own = hub(lambda: "")
            relay = Relay(
                own,
                identify,
                lambda: here.found,
                lambda: None,
                Dialing(f"relay-{at}", "name", token, lambda: ANY),
                patience,
            )
            routes = {wire.CONNECT_PATH: relay.server.handle}
            here.urls.append(await stack.enter_async_context(own.serve("127.0.0.1", 0, None, routes)))
            here.relays.append(relay)
            tasks.append(asyncio.create_task(relay.run()))
        try:
            yield here
        finally:
            await session.close()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def _ignore(_gang: str) -> None:
    """Do nothing."""
