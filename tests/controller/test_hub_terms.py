"""A process that does not lead any more, and has not noticed yet, says nothing to any member."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from gangctl.api.gangjob import GangJob
from gangctl.controller import hub as hub_module
from gangctl.core.lifecycle.plan import AskScan
from gangsidecar import wire
from tests.controller.fake_sidecars import Served, Sidecar, held, job, report, serving
from tests.wait import SECONDS, until_async

SCAN = AskScan("pod-0", wire.Scan(1, (wire.Tier("shared", "/c", "step-{step}"),)))


async def says_nothing(sidecar: Sidecar) -> None:
    """Nothing but the end of the connection comes for a while."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            raise AssertionError(await sidecar.hear())


async def known(here: Served) -> Sidecar:
    """A sidecar that has reported and was directed."""
    sidecar = await here.dial()
    await sidecar.say(report())
    assert isinstance(await sidecar.hear(), wire.Directive)
    return sidecar


async def test_a_frozen_leader_that_lost_its_lease_neither_directs_nor_asks_nor_pings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader: list[str | None] = [None]
    async with aiohttp.ClientSession() as session, serving(session, leader=lambda: leader[0]) as here:
        here.hub.publish(job(attempt=2))
        sidecar = await known(here)
        leader[0] = "wss://10.0.0.7:8443/v1/connect"
        monkeypatch.setattr(hub_module, "PING_SECONDS", 0.01)
        pinging = asyncio.create_task(here.hub.keep_alive())
        here.hub.publish(job(attempt=3, version="2"))
        here.hub.ask("uid-g", SCAN)
        with pytest.raises(TimeoutError):  # No ping either.
            await sidecar.socket.receive(0.3)
        pinging.cancel()
        await session.close()


async def test_what_waits_for_a_slow_receiver_when_a_leader_is_frozen_is_not_sent_after_its_lease() -> None:
    leader: list[str | None] = [None]
    last = 2000

    def tell(stored: GangJob, said: wire.Report) -> wire.Directive | None:
        found = held(stored, said)
        assert found is not None
        return replace(found, reason="x" * 8000)

    async with aiohttp.ClientSession() as session, serving(session, tell, leader=lambda: leader[0]) as here:
        here.hub.publish(job(attempt=2))
        sidecar = await known(here)
        transport = sidecar.socket._writer.transport  # noqa: SLF001 - a peer that does not read
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        for attempt in range(3, last + 1):
            here.hub.publish(job(attempt=attempt, version=str(attempt)))
        leader[0] = "wss://10.0.0.7:8443/v1/connect"  # Nothing has run since: the process was frozen.
        transport.resume_reading()
        while (frame := await sidecar.socket.receive(SECONDS)).type is aiohttp.WSMsgType.TEXT:
            assert wire.decode(frame.data).attempt < last
        assert frame.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
        await until_async("the connection is forgotten", lambda: not len(here.hub.connections))
        leader[0] = None  # It has renewed its Lease after all: the member learns what it missed.
        again = await here.dial()
        await again.say(report(seq=2))
        found = await again.hear()
        assert isinstance(found, wire.Directive)
        assert found.attempt == last
        await session.close()


async def test_what_was_stored_in_an_earlier_term_directs_no_member_in_the_next() -> None:
    async with aiohttp.ClientSession() as session, serving(session) as here:
        here.hub.publish(job(attempt=2))
        sidecar = await known(here)
        here.hub.end_term()
        assert here.hub.reports.heard("uid-g") == ()
        assert (await sidecar.socket.receive(SECONDS)).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
        again = await here.dial()
        await again.say(report(seq=2))
        await until_async("the report arrives", lambda: here.hub.reports.heard("uid-g"))
        await says_nothing(again)
        await session.close()


async def test_a_connection_whose_upgrade_ends_after_the_term_is_not_served() -> None:
    leader: list[str | None] = [None]
    looks = 0

    def lost_after_the_gate() -> str | None:
        nonlocal looks
        looks += 1
        return leader[0] if looks <= 2 else "wss://10.0.0.7:8443/v1/connect"

    async with aiohttp.ClientSession() as session, serving(session, leader=lost_after_the_gate) as here:
        sidecar = await here.dial()
        frame = await sidecar.socket.receive(SECONDS)
        assert frame.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR}
        assert len(here.hub.connections) == 0
        await session.close()
