"""Unauthenticated clients at the hub of a cluster, with real TLS, sockets and tokens. Members must not be affected.

The API server is a fake: it serves the keys, which are made here, and it can be made to fail.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from gangctl.cluster.kube.certificates import CertificateBundle, rotate_bundle
from gangctl.cluster.kube.projections import KubePod
from gangctl.cluster.kube.tokens import TokenAuthenticator
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.controller import listener
from gangsidecar import wire
from tests.cluster.kube.auth.tokens import AUDIENCE, GANG, NAMESPACE, Issuer, bound, claims, pod, rsa_key, sign, token
from tests.cluster.kube.fakeapi import serving as api_serving
from tests.controller.fake_sidecars import Served, Sidecar, job, report, serving
from tests.wait import until_async

FOREVER = 3600
NAME = "gangctl.gangctl-system.svc"
KEPT, _ = rotate_bundle(CertificateBundle(), (NAME,), datetime.now(UTC))
TRUST = ssl.create_default_context(cadata=KEPT.ca.decode())
BOUND_SECONDS = 2.0
"""Of processor time, in which a report is answered, whatever other clients do. Other programs do not count."""


@dataclass
class Guarded:
    """A hub that asks a real identifier."""

    served: Served
    issuer: Issuer
    pods: dict[str, KubePod] = field(default_factory=lambda: {f"pod-{at}": pod(at) for at in range(4)})
    gangs: dict[str, tuple[str, str]] = field(default_factory=lambda: {GANG: (NAMESPACE, "g")})
    said: int = 0

    async def dial(self, shown: str) -> Sidecar:
        return await self.served.dial(shown, ssl=TRUST, server_hostname=NAME)

    async def refused(self, shown: str | None) -> tuple[int, str]:
        """Status and reason of the refusal of this token."""
        headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        url = self.served.url.replace("wss:", "https:")
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        session = self.served.session
        async with session.get(url, headers={**headers, **upgrade, **key}, ssl=TRUST, server_hostname=NAME) as answer:
            text = await answer.text()
            assert not shown or shown not in text
            return answer.status, text.partition(":")[0]

    async def goes_on(self, member: Sidecar) -> float:
        """A report of worker-0 is answered; after how many seconds of processor time."""
        self.said += 1
        began = time.process_time()
        self.served.hub.publish(job(attempt=self.said, version=str(self.said)))
        await member.say(report(seq=self.said, phase_age_ms=self.said))
        while (await member.hear()).attempt != self.said:
            pass
        return time.process_time() - began


@pytest.fixture
async def here(tmp_path: Any) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as found:
        yield found


@asynccontextmanager
async def guarded(tmp_path: Any) -> AsyncIterator[Guarded]:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(KEPT.chain + KEPT.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    connector = aiohttp.TCPConnector(limit=0)
    async with api_serving() as (api, client), aiohttp.ClientSession(connector=connector) as session:
        issuer = Issuer()
        api.faults.append(issuer)
        authenticator = TokenAuthenticator(client, AUDIENCE)

        async def authenticate(shown: str) -> MemberIdentity | Refusal:
            return await authenticator.authenticate(shown, found.pods.get, found.gangs.get)

        async with serving(session, tls=tls, identify=authenticate) as served:
            found = Guarded(served, issuer)
            yield found
            await session.close()


async def test_only_the_token_of_a_running_member_is_accepted(here: Guarded) -> None:
    member = await here.dial(token())
    await here.goes_on(member)
    here.pods["pod-2"] = pod(2, terminated=True)
    here.pods["pod-of-another"] = pod(uid="pod-of-another", name="g-worker-0-0", namespace="other", owner="uid-other")
    gone = token(3)
    await (await here.dial(gone)).socket.close()
    del here.pods["pod-3"]
    refusals = {
        None: (401, "NoToken"),
        "garbage": (401, "Malformed"),
        sign(claims(aud=["https://kubernetes.default.svc"])): (401, "WrongAudience"),
        sign(claims(exp=int(time.time()) - 3600)): (401, "Expired"),
        sign(claims(), rsa_key()): (401, "BadSignature"),
        sign(claims(), rsa_key("unknown")): (401, "UnknownKey"),
        sign(bound(pod=None)): (401, "NotBound"),
        token(2): (401, "PodGone"),
        gone: (401, "PodGone"),
        sign(bound(pod={"name": "g-worker-0-0", "uid": "pod-of-another"})): (401, "NotAMember"),
        sign(bound(pod={"name": "g-worker-9-0", "uid": "pod-9"})): (503, "UnknownPod"),
    }
    for shown, expected in refusals.items():
        assert await here.refused(shown) == expected
    reasons = [reason for _, reason in refusals.values()]
    assert here.served.hub.refusals.counts == Counter({reason: reasons.count(reason) for reason in reasons})
    assert await here.goes_on(member) < BOUND_SECONDS


async def test_no_token_is_ever_written_to_the_log(here: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    shown = [token(), sign(claims(exp=1)), sign(claims(), rsa_key("x")), sign(bound(pod={"name": "n", "uid": "u"}))]
    await here.dial(shown[0])
    for one in shown[1:]:
        await here.refused(one)
    for one in shown:
        assert one not in caplog.text
        assert one.split(".")[1] not in caplog.text
        assert one.split(".")[2] not in caplog.text


async def test_a_member_can_report_only_for_itself(here: Guarded) -> None:
    victim, liar = await here.dial(token(0)), await here.dial(token(1))
    await here.goes_on(victim)
    await liar.say(report(0, seq=100, attempt=99))
    assert await liar.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert here.served.hub.refusals.counts == Counter({"WrongIdentity": 1})
    assert here.served.hub.reports.heard(GANG)[0].report.attempt == 0
    assert await here.goes_on(victim) < BOUND_SECONDS


async def test_repeated_connections_of_a_member_cost_no_request_to_the_api_server(here: Guarded) -> None:
    for _ in range(20):
        await (await here.dial(token())).socket.close()
    assert here.issuer.fetched == 1
    assert here.issuer.reviewed == []


async def test_two_thousand_garbage_connections_do_not_delay_a_report(
    here: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A report that waited for the end of these connections would come too late.
    monkeypatch.setattr(listener, "ADMISSION_SECONDS", FOREVER)
    member = await here.dial(token())
    await here.goes_on(member)
    address = urlsplit(here.served.url)
    target = (address.hostname or "", address.port or 0)
    kinds = [
        b"",
        os.urandom(600),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + os.urandom(400),
        b"\x16\x03\x01",
    ]
    slowest = 0.0
    crowd: list[socket.socket] = []
    for at in range(2000):
        one = socket.create_connection(target)
        crowd.append(one)
        if kinds[at % 5]:
            one.send(kinds[at % 5])
        if at % 100 == 99:
            slowest = max(slowest, await here.goes_on(member))
    for one in crowd:
        one.close()
    slowest = max(slowest, await here.goes_on(member))
    assert slowest < BOUND_SECONDS
    late = await here.dial(token(1))
    await late.say(report(1))
    assert (await late.hear()).pod == "pod-1", "a member that connects later is accepted"


async def test_slow_clients_are_cut_off_and_a_member_connects_meanwhile(
    here: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await here.dial(token())
    address = urlsplit(here.served.url)

    async def knock(times: int) -> list[asyncio.StreamWriter]:
        where: dict[str, Any] = {"host": address.hostname, "port": address.port, "ssl": TRUST, "server_hostname": NAME}
        return [(await asyncio.open_connection(**where))[1] for _ in range(times)]

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /v1/connect HTTP/1.1\r\n")
        while not writer.is_closing():
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.1)

    monkeypatch.setattr(listener, "ADMISSION_SECONDS", FOREVER)
    patient = await knock(50)
    drips = [asyncio.create_task(drip(writer)) for writer in patient]
    late = await here.dial(token(1))
    await late.say(report(1))
    assert await here.goes_on(member) < BOUND_SECONDS
    assert here.served.hub.refusals.counts["TooSlow"] == 0, "they are still there"
    monkeypatch.setattr(listener, "ADMISSION_SECONDS", 2)
    hurried = await knock(50)
    drips += [asyncio.create_task(drip(writer)) for writer in hurried]
    await until_async("every slow client is cut off", lambda: all(writer.is_closing() for writer in hurried))
    assert here.served.hub.refusals.counts["TooSlow"] > 0
    for writer in (*patient, *hurried):
        writer.close()
    await asyncio.gather(*drips, return_exceptions=True)


async def test_three_hundred_members_can_reconnect_at_once(here: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the controller. They do not count as a flood, and the event loop is not blocked for long."""
    monkeypatch.setattr(
        listener, "ADMISSION_SECONDS", FOREVER
    )  # All of them are in this process, and are slow with it.
    members = 300
    here.pods.update({f"pod-{at}": pod(at) for at in range(members)})
    tokens = [token(at) for at in range(members)]
    slowest, ended = 0.0, asyncio.Event()

    async def feel() -> None:
        nonlocal slowest
        while not ended.is_set():
            began = time.thread_time()  # What other programs take from the processor doesn't count.
            await asyncio.sleep(0.005)
            slowest = max(slowest, time.thread_time() - began)

    feeling = asyncio.create_task(feel())
    sidecars = await asyncio.gather(*(here.dial(one) for one in tokens))
    ended.set()
    await feeling
    assert len(sidecars) == len(here.served.hub.connections) == members
    assert here.issuer.fetched == 1
    assert here.served.hub.refusals.counts == Counter({})
    assert slowest < BOUND_SECONDS


async def test_a_known_member_can_reconnect_while_the_api_server_is_away(here: Guarded) -> None:
    await (await here.dial(token())).socket.close()
    here.issuer.hidden = web.Response(status=503)
    sidecar = await here.dial(token(1))
    await sidecar.say(report(1))
    await until_async("the report arrives", lambda: len(here.served.hub.reports.heard(GANG)) == 1)
    assert isinstance(here.served.hub.reports.heard(GANG)[0].report, wire.Report)
