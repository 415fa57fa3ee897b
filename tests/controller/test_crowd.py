"""More clients dial than the controller can serve, on real sockets with TLS: who gives up must not delay the others."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from gangctl.cluster.port import MemberIdentity
from gangctl.controller import listener
from tests.controller.fake_sidecars import MEMBERS, serving
from tests.controller.test_hub_tls import KEPT, dial, served
from tests.wait import until_async


@pytest.fixture
def tls(tmp_path: Any) -> ssl.SSLContext:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(KEPT.chain + KEPT.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


async def test_a_client_that_hung_up_before_its_turn_costs_no_handshake(tls: ssl.SSLContext) -> None:
    """Else each one that has given up delays the next ones, until they give up too."""
    async with served(tls) as here:
        address = urlsplit(here.url)
        for _ in range(50):  # The event loop stands still meanwhile, so they wait in the kernel.
            socket.create_connection((address.hostname, address.port)).close()
        await dial(here)
        assert here.hub.refusals.counts["TooSlow"] == 50


async def test_connections_are_accepted_a_few_at_a_time(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is finished before more is begun."""
    entered, turn = Counter[int](), 0
    enter = listener.PendingConnections.enter

    def counting(self: listener.PendingConnections, connection: object, transport: asyncio.Transport) -> bool:
        entered[turn] += 1
        return enter(self, connection, transport)

    monkeypatch.setattr(listener.PendingConnections, "enter", counting)
    async with served(tls) as here:
        address = urlsplit(here.url)
        clients = [socket.create_connection((address.hostname, address.port)) for _ in range(40)]
        while entered.total() < len(clients):
            await asyncio.sleep(0)
            turn += 1
        assert max(entered.values()) <= listener.ACCEPTED_AT_ONCE
        for client in clients:
            client.close()


async def test_a_client_that_hangs_up_while_its_token_is_checked_is_no_error(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, gone, checked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    remove = listener.PendingConnections.remove

    def noticing(self: listener.PendingConnections, connection: object) -> None:
        remove(self, connection)
        gone.set()

    async def check(token: str) -> MemberIdentity:
        asked.set()
        await checked.wait()
        return MEMBERS[token]

    monkeypatch.setattr(listener.PendingConnections, "remove", noticing)
    async with aiohttp.ClientSession() as session, serving(session, tls=tls, identify=check) as here:
        dialling = asyncio.create_task(dial(here))
        await asked.wait()
        dialling.cancel()
        await asyncio.wait([dialling])
        await gone.wait()
        checked.set()
        await until_async("it is counted", lambda: here.hub.refusals.counts["TooSlow"])
        assert "Traceback" not in caplog.text
        await session.close()
