from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from types import SimpleNamespace

import aiohttp
import pytest

from gangctl.controller import endpoints, listener
from gangctl.controller.endpoints import Health
from tests.wait import SECONDS


async def answer(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as found:
        return found.status, await found.text()


async def test_readyz_lists_every_problem_and_follows_their_changes() -> None:
    problems = ["the watch of GangJobs has been broken for 40 s", "there is no certificate yet"]
    async with Health(lambda: problems).serve("127.0.0.1", 0) as port:
        assert await answer(port, "/readyz") == (503, "".join(f"{one}\n" for one in problems))
        problems.clear()
        assert await answer(port, "/readyz") == (200, "ok\n")


async def test_a_process_that_is_not_ready_is_healthy() -> None:
    async with Health(lambda: ["the API server is away"]).serve("127.0.0.1", 0) as port:
        assert await answer(port, "/healthz") == (200, "ok\n")


async def test_the_health_port_answers_probes_only() -> None:
    async with Health(list).serve("127.0.0.1", 0) as port:
        for path in ("/metrics", "/", "/healthz/more"):
            assert (await answer(port, path))[0] == 404
        async with aiohttp.ClientSession() as session, session.post(f"http://127.0.0.1:{port}/healthz") as found:
            assert found.status == 405


async def test_a_stuck_event_loop_is_not_healthy_until_it_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(endpoints, "time", SimpleNamespace(monotonic=lambda: now))
    here = Health(list)
    async with here.serve("127.0.0.1", 0) as port:
        now += endpoints.LATE_SECONDS
        assert (await answer(port, "/healthz"))[0] == 200
        now += 1
        assert await answer(port, "/healthz") == (503, "the event loop has been stuck for 16 s\n")
        beating = asyncio.create_task(here.beat())
        await asyncio.sleep(0)
        assert (await answer(port, "/healthz"))[0] == 200
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


async def test_a_connection_carries_one_request() -> None:
    async with Health(list).serve("127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        async with asyncio.timeout(SECONDS):
            text = await reader.read()
        assert text.count(b"HTTP/1.1 200 OK") == 1
        assert b"Connection: close" in text
        writer.close()


async def test_slow_clients_are_cut_off_and_keep_no_probe_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "ADMISSION_SECONDS", 1)
    monkeypatch.setattr(endpoints, "MAX_PROBES", 8)
    async with Health(list).serve("127.0.0.1", 0) as port:
        crowd = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(40)]
        for _, writer in crowd:
            writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        for _ in range(10):
            assert await answer(port, "/healthz") == (200, "ok\n")
        async with asyncio.timeout(SECONDS):
            for reader, _ in crowd:
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        for _, writer in crowd:
            writer.close()
        assert await answer(port, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_that_dials_as_the_server_ends_is_hung_up_on(turns: int) -> None:
    with socket.socket() as client:
        client.setblocking(False)  # noqa: FBT003 - its signature
        async with Health(list).serve("127.0.0.1", 0) as port:
            client.connect_ex(("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
