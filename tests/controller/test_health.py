from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import pytest

from gangctl.controller import health
from gangctl.controller.health import Health
from tests.cluster.local import until


async def answer(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as found:
        return found.status, await found.text()


async def test_readiness_says_each_reason_why_not_and_changes_with_them() -> None:
    problems = ["the watch of GangJobs has been broken for 40 s", "there is no certificate yet"]
    async with Health(lambda: problems).serve("127.0.0.1", 0) as port:
        assert await answer(port, "/readyz") == (503, "".join(f"{one}\n" for one in problems))
        problems.clear()
        assert await answer(port, "/readyz") == (200, "ok\n")


async def test_a_process_that_is_not_ready_is_alive() -> None:
    async with Health(lambda: ["the API server is away"]).serve("127.0.0.1", 0) as port:
        assert await answer(port, "/healthz") == (200, "ok\n")
        assert (await answer(port, "/metrics"))[0] == 404


async def test_a_process_whose_heart_has_stopped_is_not_alive_until_it_beats_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "LATE_SECONDS", 0.2)
    here = Health(list)
    async with here.serve("127.0.0.1", 0) as port:
        async with asyncio.timeout(10):
            while (await answer(port, "/healthz"))[0] == 200:
                pass
        assert "nothing has been done for" in (await answer(port, "/healthz"))[1]
        beating = asyncio.create_task(here.beat())
        await until(lambda: not beating.done())
        assert (await answer(port, "/healthz"))[0] == 200
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
