"""The hub over TLS, on real sockets: certificates, the bound on new connections, and the end of a term."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from gangctl.cluster.kube.certificates import CertificateBundle, rotate_bundle
from gangctl.controller import listener
from gangsidecar import wire
from tests.controller.fake_sidecars import Served, Sidecar, job, report, serving
from tests.wait import SECONDS, until_async

NAME = "gangctl.gangctl-system.svc"
KEPT, _ = rotate_bundle(CertificateBundle(), (NAME,), datetime.now(UTC))
TRUST = ssl.create_default_context(cadata=KEPT.ca.decode())
GREETING = b"GET /v1/connect HTTP/1.1\r\nHost: gangctl\r\n"


@pytest.fixture
def tls(tmp_path: Any) -> ssl.SSLContext:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(KEPT.chain + KEPT.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


def here_leads() -> str | None:
    return None


@asynccontextmanager
async def served(tls: ssl.SSLContext, leader: Callable[[], str | None] = here_leads) -> AsyncIterator[Served]:
    async with aiohttp.ClientSession() as session, serving(session, tls=tls, leader=leader) as here:
        yield here
        await session.close()


async def dial(here: Served, token: str = "token-0", **options: Any) -> Sidecar:
    return await here.dial(token, ssl=TRUST, server_hostname=NAME, **options)


async def knock(here: Served, *, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect without authentication."""
    address = urlsplit(here.url)
    secure: dict[str, Any] = {"ssl": TRUST, "server_hostname": NAME} if tls else {}
    return await asyncio.open_connection(address.hostname, address.port, **secure)


async def ended(reader: asyncio.StreamReader, seconds: float = SECONDS) -> bytes:
    """Everything that arrives until the other side closes the connection."""
    try:
        async with asyncio.timeout(seconds):
            return await reader.read()
    except ConnectionError:
        return b""


async def test_a_member_reports_and_gets_its_directive_over_tls_1_3(tls: ssl.SSLContext) -> None:
    async with served(tls) as here:
        assert here.url.startswith("wss://")
        here.hub.publish(job(attempt=3))
        sidecar = await dial(here)
        await sidecar.say(report())
        assert (await sidecar.hear()).attempt == 3
        secured = sidecar.socket.get_extra_info("ssl_object")
        assert secured.version() == "TLSv1.3"


async def test_a_sidecar_rejects_a_certificate_for_another_name(tls: ssl.SSLContext) -> None:
    async with served(tls) as here:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await here.dial("token-0", ssl=TRUST, server_hostname="gangctl.elsewhere.svc")


async def test_large_messages_pass_the_small_tls_buffer_both_ways(tls: ssl.SSLContext) -> None:
    reason = "x" * wire.MAX_STRING

    def tell(stored: Any, said: wire.Report) -> wire.Directive | None:
        return wire.Directive(said.gang, said.pod, stored.status.attempt, wire.Verb.HOLD, reason)

    async with aiohttp.ClientSession() as session, serving(session, tell, tls=tls) as here:
        here.hub.publish(job())
        sidecar = await dial(here)
        ends = tuple(wire.End(at, 0, 100, exit_code=3, message="m" * 3000) for at in range(wire.MAX_ENDS))
        text = wire.encode(report(ends=ends))
        assert len(text) > 20 * listener.TLS_BUFFER_BYTES
        await sidecar.say(text)
        assert (await sidecar.hear()).reason == reason
        assert here.hub.reports.heard("uid-g")[0].report.ends == ends
        await session.close()


async def test_a_standby_answers_with_the_leaders_address(tls: ssl.SSLContext) -> None:
    leader: list[str | None] = ["wss://10.0.0.7:8443/v1/connect"]
    async with served(tls, lambda: leader[0]) as here:
        for known in ("wss://10.0.0.7:8443/v1/connect", ""):
            leader[0] = known
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await dial(here)
            assert raised.value.status == 503
            assert raised.value.headers is not None
            assert raised.value.headers.get("Gang-Leader", "") == known
        leader[0] = None
        await dial(here)
        assert here.hub.refusals.counts == Counter({"Standby": 2})


async def test_a_leader_that_loses_its_lease_aborts_all_connections_and_forgets_all_reports(
    tls: ssl.SSLContext,
) -> None:
    leader: list[str | None] = [None]
    async with served(tls, lambda: leader[0]) as here:
        here.hub.publish(job(attempt=2))
        sidecars = [await dial(here, f"token-{at}") for at in range(8)]
        for at, sidecar in enumerate(sidecars):
            await sidecar.say(report(at))
            await sidecar.hear()
        leader[0] = "wss://10.0.0.7:8443/v1/connect"
        here.hub.publish(job(attempt=3, version="2"))  # it has not noticed yet
        here.hub.end_term()
        assert len(here.hub.connections) == 0
        assert here.hub.reports.heard("uid-g") == ()
        for sidecar in sidecars:
            frame = await sidecar.socket.receive(10)
            assert frame.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR}
            assert sidecar.socket.close_code == 1006, "no goodbye, and no directive"
        leader[0] = None
        again = await dial(here)
        await again.say(report(seq=1))
        here.hub.publish(job(attempt=4, version="3"))
        assert (await again.hear()).attempt == 4, "the next term begins with what is heard then"


async def test_a_sidecar_is_refused_when_the_lease_is_lost_during_its_authentication(tls: ssl.SSLContext) -> None:
    leader: list[str | None] = [None]
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        asked.set()
        await answer.wait()

    async with (
        aiohttp.ClientSession() as session,
        serving(session, tls=tls, leader=lambda: leader[0], before_identify=slowly) as here,
    ):
        dialling = asyncio.create_task(dial(here))
        await asked.wait()
        leader[0] = ""
        here.hub.end_term()
        answer.set()
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await dialling
        assert len(here.hub.connections) == 0


async def test_a_silent_or_slow_client_is_cut_off_in_time(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tls) as here:
        sidecar = await dial(here)
        monkeypatch.setattr(listener, "ADMISSION_SECONDS", 1)
        silent, one = await knock(here, tls=False)
        mute, two = await knock(here)
        dripping, tap = await knock(here)

        async def drip() -> None:
            while True:
                tap.write(b"X-Drop: 1\r\n")
                await tap.drain()
                await asyncio.sleep(0.05)

        tap.write(GREETING)
        drips = asyncio.create_task(drip())
        await asyncio.gather(*(ended(one) for one in (silent, mute, dripping)))
        drips.cancel()
        await asyncio.gather(drips, return_exceptions=True)
        for writer in (one, two, tap):
            writer.close()
        await until_async("a slow client is refused", lambda: here.hub.refusals.counts["TooSlow"] >= 1)
        here.hub.publish(job())
        await sidecar.say(report())
        assert await sidecar.hear(), "an authenticated sidecar may stay"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"\x00\xff" * 4000, b"400"),
        (GREETING + b"X-Large: " + b"x" * 100_000 + b"\r\n\r\n", b"400"),
        (GREETING + b"".join(b"X-%d: y\r\n" % at for at in range(5000)) + b"\r\n", b"400"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /v1/connect HTTP/1.1\r\nHost: g\r\nContent-Length: 9999999999\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n", b"404"),
        (GREETING + b"\r\n", b"401"),
    ],
    ids=range(7),
)
async def test_a_request_without_an_upgrade_gets_a_short_answer_and_its_connection_is_closed(
    tls: ssl.SSLContext, sent: bytes, answered: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "ADMISSION_SECONDS", 2)
    async with served(tls) as here:
        reader, writer = await knock(here)
        writer.write(sent)
        said = await ended(reader)
        assert said.split(b" ")[1:2] in ([answered], [])
        assert len(said) < 50_000
        writer.close()
    assert "Traceback" not in caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


async def test_garbage_instead_of_tls_does_not_flood_the_log(
    tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tls) as here:
        for _ in range(50):
            reader, writer = await knock(here, tls=False)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await ended(reader)
            writer.close()
        await dial(here)
    assert len(caplog.records) < 10


async def test_above_the_bound_the_address_with_the_most_pending_connections_loses_one(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_PENDING", 20)
    async with served(tls) as here:
        address = urlsplit(here.url)

        def flood(source: str, count: int) -> list[socket.socket]:
            target = (address.hostname or "", address.port or 0)
            return [socket.create_connection(target, source_address=(source, 0)) for _ in range(count)]

        crowd = flood("127.0.0.2", 100)
        await until_async("the flood is refused", lambda: here.hub.refusals.counts["TooMany"] >= 80)
        others = flood("127.0.0.3", 5)
        sidecar = await dial(here)
        here.hub.publish(job())
        await sidecar.say(report())
        assert await sidecar.hear(), "from its own address it comes through"
        for one in others:
            one.setblocking(False)  # noqa: FBT003
            with pytest.raises(BlockingIOError):
                one.recv(1)
        for one in crowd + others:
            one.close()


async def test_the_end_of_the_controller_closes_every_tls_connection_with_a_close_frame(tls: ssl.SSLContext) -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(session, tls=tls) as here:
            sidecars = [await dial(here, f"token-{at}") for at in range(4)]
            closed = [asyncio.create_task(sidecar.closed()) for sidecar in sidecars]
        assert set(await asyncio.gather(*closed)) == {aiohttp.WSCloseCode.GOING_AWAY}
