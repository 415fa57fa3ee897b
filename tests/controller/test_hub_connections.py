"""Which connections the hub accepts, and when it closes them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import StreamWriter

from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller import connection as connection_module
from gangctl.controller.connection import Connection, Connections, SocketOutlet
from gangctl.controller.gate import ConnectionRefusal, Gate, RefusalLog
from gangctl.controller.intake import CONTROL_SECONDS, SHARES, Owner
from gangctl.core.lifecycle.plan import AskScan
from gangsidecar import wire
from tests.controller.fake_sidecars import MEMBERS, Served, job, report, served, serving
from tests.wait import SECONDS, until_async


def connected(here: Served) -> list[bool]:
    return [one.connected for one in here.hub.reports.heard("uid-g")]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({}, "NoToken"),
        ({"Authorization": "Bearer unknown"}, "UnknownPod"),
        ({"Authorization": "Bearer "}, "NoToken"),
        ({"Authorization": "Basic token-0"}, "NoToken"),
    ],
)
async def test_a_client_without_a_pods_token_is_refused(header: dict[str, str], reason: str) -> None:
    async with served() as here:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await here.session.ws_connect(here.url, headers=header)
        assert raised.value.status == 401
        assert here.hub.refusals.counts == Counter({reason: 1})
        assert here.hub.reports.heard("uid-g") == ()


WRONG = [
    ("not JSON", "not JSON"),
    ("{}", "version None instead of 1"),
    ('{"v":2,"type":"Report"}', "different releases"),
    ('{"v":1,"type":"Reboot"}', "unknown message type"),
    ('{"v":1,"type":"Report","gang":7}', "Report.gang: a int instead of str"),
    ("[" * 100_000, "not JSON"),
    (wire.encode(wire.Ping()), "doesn't come from a sidecar"),
    (wire.encode(wire.Directive("uid-g", "pod-0", 1, wire.Verb.HOLD)), "doesn't come from a sidecar"),
    (wire.encode(report(1)), "a report of another member: 'worker-1'"),
    (wire.encode(report(incarnation=1)), "a report of another member"),
    (wire.encode(report(gang="uid-of-another")), "a report of another member"),
    (wire.encode(report(pod="pod-of-before")), "a report of another member"),
    (wire.encode(wire.Scanned(1, "pod-1")), "an answer to a scan from another pod: 'pod-1'"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
async def test_a_wrong_message_closes_only_its_own_connection(
    text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as here:
        here.hub.publish(job())
        bad, good = await here.dial("token-0"), await here.dial("token-1")
        await bad.say(text)
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert said in caplog.text
        assert "worker-0 (pod pod-0): its connection is closed" in caplog.text
        assert sum(here.hub.refusals.counts.values()) == 1
        await good.say(report(1))
        assert (await good.hear()).pod == "pod-1"
        again = await here.dial("token-0")
        await again.say(report(0))
        assert (await again.hear()).pod == "pod-0", "it may come back"


async def test_an_oversize_message_closes_its_connection_with_1009() -> None:
    async with served() as here:
        bad = await here.dial()
        await bad.say("x" * (wire.MAX_BYTES + 1))
        assert await bad.closed() == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        assert here.hub.refusals.counts == Counter({"Broken": 1})


async def test_a_report_that_is_larger_than_a_real_one_closes_its_connection() -> None:
    async with served() as here:
        bad = await here.dial()
        await bad.say(wire.encode(report()).replace("{", "{" + " " * wire.MAX_REPORT_BYTES, 1))
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert here.hub.refusals.counts == Counter({"Malformed": 1})


async def test_the_answer_to_a_scan_may_be_larger_than_a_report() -> None:
    async with served() as here:
        here.hub.publish(job())
        member = await here.dial()
        await member.say(report())
        await member.hear()
        here.hub.ask("uid-g", AskScan("pod-0", wire.Scan(1, ())))
        await member.hear()
        paths = tuple(wire.Found("t", step, "p" * 4096, "m") for step in range(wire.MAX_FOUND))
        await member.say(wire.Scanned(1, "pod-0", paths * 2))
        await until_async("the answer is there", lambda: here.hub.reports.scanned("uid-g")[0])


async def test_a_pod_whose_gang_changed_gets_the_directives_of_its_newest_connection_only() -> None:
    connections = Connections()
    first, second = (_connection(gang) for gang in ("uid-g", "uid-h"))
    assert connections.add(first) is None
    assert connections.add(second) is first
    assert (list(connections.of("uid-g")), list(connections.of("uid-h"))) == ([], [second])
    assert not connections.remove(first)
    assert len(connections) == 1
    assert connections.remove(second)
    assert not len(connections)


async def test_what_is_done_for_a_gang_looks_at_its_own_connections_only() -> None:
    connections = Connections()
    own = [_connection("uid-g", f"pod-{at}") for at in range(3)]
    for one in (*own, *(_connection("uid-h", f"other-{at}") for at in range(100))):
        connections.add(one)
    served_in_turn = connections.of("uid-g")
    connections.remove(own[1])
    assert list(served_in_turn) == [own[0], own[2]], "one that ends before its turn is left out"


async def _unknown(_token: str) -> Refusal:
    return Refusal(RefusalReason.UNKNOWN_POD, "")


def _connection(gang: str, pod: str = "pod-0") -> Connection:
    protocol = BaseProtocol(loop := asyncio.get_running_loop())
    gate = Gate(_unknown, lambda: None, RefusalLog())
    outlet = SocketOutlet(web.WebSocketResponse(), protocol, StreamWriter(protocol, loop), gate)
    return Connection(MemberIdentity(gang, "worker-0", 0, pod), outlet, 0, 4)


async def test_a_binary_frame_closes_its_connection() -> None:
    async with served() as here:
        bad = await here.dial()
        await bad.socket.send_bytes(wire.encode(report()).encode())
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION


async def test_garbage_instead_of_http_affects_no_member() -> None:
    async with served() as here:
        here.hub.publish(job())
        address = urlsplit(here.url)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(os.urandom(4096))
            async with asyncio.timeout(SECONDS):
                await reader.read()
            writer.close()
        sidecar = await here.dial()
        await sidecar.say(report())
        assert await sidecar.hear()


async def test_a_newer_connection_of_a_pod_replaces_the_older_one() -> None:
    async with served() as here:
        here.hub.publish(job())
        older = await here.dial()
        await older.say(report(seq=1))
        await older.hear()
        newer = await here.dial()
        assert await older.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert connected(here) == [False], "its supervisor has not spoken on the new one"
        await newer.say(report(seq=2))
        assert await newer.hear(), "it is told again, for the sidecar has forgotten it"
        assert connected(here) == [True]
        here.hub.publish(job(attempt=2, version="2"))
        assert (await newer.hear()).attempt == 2


async def test_what_a_superseded_connection_sends_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SocketOutlet, "close_soon", lambda _self, _frame: None)
    async with served() as here:
        here.hub.publish(job())
        older = await here.dial()
        await older.say(report(seq=1))
        await older.hear()
        newer = await here.dial()
        await newer.say(report(seq=2))
        await newer.hear()
        await older.say(report(seq=3))
        await until_async("the report is stale", lambda: here.hub.stale["Superseded"] == 1)
        monkeypatch.undo()


async def test_a_flood_of_connections_does_not_delay_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_SECONDS", SECONDS)  # They answer late, after all have connected.
    async with served() as here:
        here.hub.publish(job())
        good = await here.dial("token-1")
        await good.say(report(1))
        await good.hear()
        address = urlsplit(here.url)
        assert address.hostname
        mute = [socket.create_connection((address.hostname, address.port)) for _ in range(200)]

        async def knock() -> int:
            try:
                await here.dial("unknown")
            except aiohttp.WSServerHandshakeError as error:
                return error.status
            return 0

        assert set(await asyncio.gather(*(knock() for _ in range(200)))) == {401}
        last, closed = await here.dial("token-0"), list[asyncio.Task[int]]()
        for _ in range(49):  # Each reads why it is closed: the hub doesn't wait long for one that doesn't.
            closed.append(asyncio.create_task(last.closed()))
            last = await here.dial("token-0")
        here.hub.publish(job(attempt=2, version="2"))
        assert (await good.hear()).attempt == 2
        assert set(await asyncio.gather(*closed)) == {aiohttp.WSCloseCode.POLICY_VIOLATION}
        await last.say(report(0))
        assert (await last.hear()).attempt == 2
        for one in mute:
            one.close()


async def test_the_end_of_the_controller_closes_every_connection() -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(session) as here:
            sidecars = [await here.dial(token) for token in MEMBERS]
            closed = [asyncio.create_task(sidecar.closed()) for sidecar in sidecars]
        assert set(await asyncio.gather(*closed)) == {aiohttp.WSCloseCode.GOING_AWAY}


async def test_a_pod_that_floods_the_hub_with_pings_is_closed_and_pays_from_its_share() -> None:
    async with served() as here:
        member = await here.dial(autoping=False)
        await member.say(report())
        with suppress(ConnectionError):
            for _ in range(int(4 * SHARES[Owner.POD].burst / CONTROL_SECONDS)):
                await member.socket.ping()
        assert await member.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert here.hub.refusals.counts[ConnectionRefusal.FLOODING] == 1


async def test_a_few_pings_do_not_matter() -> None:
    async with served() as here:
        member = await here.dial()
        for _ in range(100):
            await member.socket.ping()
        await member.say(report())
        await until_async("its report arrives", lambda: here.hub.reports.heard("uid-g"))
        assert here.hub.refusals.counts[ConnectionRefusal.FLOODING] == 0


async def test_a_header_that_is_too_long_puts_no_part_of_a_token_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served() as here:
        with suppress(aiohttp.ClientError):
            await here.session.get(
                here.url.replace("ws", "http", 1), headers={"Authorization": "Bearer eyJsecret" + "a" * 9000}
            )
        await until_async("it is refused", lambda: here.hub.refusals.counts[ConnectionRefusal.NO_REQUEST])
    assert "eyJsecret" not in caplog.text
