"""Peers that are frozen, refuse, send nonsense or don't read."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gangsidecar import wire
from gangsidecar.agent import relay, uplink
from gangsidecar.agent.relay import Relay
from gangsidecar.agent.uplink import FirstContact
from tests.sidecar.agent.sidecars import (
    HOLD,
    REPORT,
    TOKEN,
    controller,
    sidecar,
    supervisor,
    until,
    world,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_sidecar_leaves_a_frozen_controller_and_dials_again(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    monkeypatch.setattr(uplink, "SILENCE", 0.3)
    monkeypatch.setattr(uplink, "LAST_WAIT", 0.2)
    (directory / "token").write_text(TOKEN)
    async with controller() as frozen:
        address = uplink.Address(str(directory / "token"), frozen.url)
        relay = Relay(asyncio.get_running_loop())
        connection = asyncio.create_task(
            uplink.stay_connected(address, relay, FirstContact(str(directory / "contact"), ""))
        )
        await frozen.connected(3)
        assert frozen.connections[0].socket.closed
        connection.cancel()
        await asyncio.wait([connection])


@pytest.mark.parametrize("relays", [False, True])
async def test_the_sidecar_keeps_a_controller_that_pings(
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    *,
    relays: bool,
) -> None:
    """A replica that relays, and has no leader, pings by WebSocket alone."""
    monkeypatch.setattr(uplink, "SILENCE", 3.0)
    (directory / "token").write_text(TOKEN)
    async with controller() as alive:
        relay = Relay(asyncio.get_running_loop())
        address, contact = (
            uplink.Address(str(directory / "token"), alive.url),
            FirstContact(str(directory / "contact"), ""),
        )
        task = asyncio.create_task(uplink.stay_connected(address, relay, contact))
        connection = await alive.connected()
        end = time.monotonic() + 4.0
        while time.monotonic() < end:
            await (connection.socket.ping() if relays else connection.send(wire.Ping()))
            await asyncio.sleep(0.1)  # less than SILENCE
        assert len(alive.connections) == 1
        task.cancel()
        await asyncio.wait([task])


CONNECTED = "connected to the controller"


@pytest.mark.parametrize(("status", "text"), [(401, "the token has expired"), (409, "pod-uid was replaced")])
async def test_a_refusal_is_logged_with_its_reason_and_retried_slowly(directory: Path, status: int, text: str) -> None:
    async with controller() as above, sidecar(directory, "ws://127.0.0.1:9/") as here:
        above.refusal = status, text
        (directory / "controller").write_text(above.url)
        await until(lambda: text in here.log())
        assert f"answered {status}" in here.log()
        above.refusal = None
        await above.connected()
        await until(lambda: CONNECTED in here.log())
        tried = [at(line) for line in here.log().splitlines() if text in line or CONNECTED in line]
        assert all(later - earlier >= timedelta(seconds=2) for earlier, later in pairwise(tried))


def at(line: str) -> datetime:
    """When a line was logged."""
    return datetime.fromisoformat(line.partition(" ")[0])


MALFORMED = {
    "no JSON": "{",
    "no object": "[]",
    "another version": '{"v":2,"type":"Ping"}',
    "an unknown type": '{"v":1,"type":"Pong"}',
    "an unknown field": '{"v":1,"type":"Ping","x":1}',
    "a report of the wrong side": wire.encode(REPORT),
    "over the limit": '{"v":1,"type":"Ping"' + " " * wire.MAX_BYTES + "}",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_message_of_the_controller_closes_only_its_connection(directory: Path, text: str) -> None:
    async with world(directory) as here:
        with suppress(ConnectionError):  # it may hang up before it has read all of a large one
            await here.connection.socket.send_str(text)
        await until(lambda: here.connection.socket.closed)
        await until(lambda: "there is no connection to the controller" in here.sidecar.log())
        assert "the controller sent" in here.sidecar.log()
        assert not here.supervisor.ended
        assert here.supervisor.received == []
        assert (await here.sidecar.call("GET", "/v1/attempt"))[0] == 200


async def test_a_binary_message_of_the_controller_closes_its_connection(directory: Path) -> None:
    async with world(directory) as here:
        await here.connection.socket.send_bytes(wire.encode(HOLD).encode())
        await until(lambda: here.connection.socket.closed)
        assert here.supervisor.received == []


@pytest.mark.parametrize(
    "line",
    [
        *(text.encode() for name, text in MALFORMED.items() if not name.startswith("a report")),
        wire.encode(HOLD).encode(),
        b"\xff\xfe",
    ],
    ids=[*(name for name in MALFORMED if not name.startswith("a report")), "a directive of the wrong side", "no text"],
)
async def test_a_malformed_message_of_a_supervisor_closes_only_its_connection(directory: Path, line: bytes) -> None:
    async with world(directory) as here:
        await here.supervisor.send_raw(line + b"\n")
        await until(lambda: here.supervisor.ended)
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        async with supervisor(directory, replace(REPORT, seq=2)):
            await until(lambda: len(here.connection.reports()) == 2)
        assert not here.connection.socket.closed


async def test_a_supervisor_that_reads_nothing_is_disconnected(directory: Path) -> None:
    async with controller() as above, sidecar(directory, above.url) as here:
        reader, writer = await asyncio.open_unix_connection(str(directory / "supervisor.sock"), limit=1024)
        writer.write(wire.encode(REPORT).encode() + b"\n")
        connection = await above.connected()
        await until(connection.reports)
        large = wire.encode(HOLD) + " " * 500_000
        for _ in range(12):
            await connection.socket.send_str(large)
        await until(lambda: "the supervisor reads nothing any more" in here.log())
        assert here.resident_kilobytes() < 50_000
        assert not connection.socket.closed
        writer.close()
        assert reader is not None


async def test_a_supervisor_without_a_report_for_too_long_is_logged(
    monkeypatch: pytest.MonkeyPatch, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(relay, "SILENCE", 0.1)
    monkeypatch.chdir(directory)
    link = relay.Downlink(Relay(asyncio.get_running_loop()))
    await link.open("supervisor.sock")
    said = ""

    def logged(text: str) -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return text in said

    await until(lambda: logged("no supervisor has connected"))
    async with supervisor(directory) as below:
        await until(lambda: logged("has connected, but sent no report"))
        await below.send(REPORT)
    await until(lambda: logged("has not come back"))
    await link.close()
