"""The stream of events that the framework API sends."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from gangsidecar import wire
from tests.sidecar.agent.sidecars import (
    HOLD,
    World,
    run,
    training,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
from tests.sidecar.agent.api_calls import call, valid
from tests.wait import SECONDS


class Stream:
    """The events that one reader has got."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(SECONDS):
            name = (await self._answer.content.readline()).decode().strip().removeprefix("event: ")
            data = json.loads((await self._answer.content.readline()).decode().removeprefix("data: "))
            await self._answer.content.readline()
        shape = {"run": "RunEvent", "stop": "StopEvent"}[name]
        assert valid({"$ref": f"#/components/schemas/{shape}"}, data)
        return name, data


@asynccontextmanager
async def stream(here: World) -> AsyncIterator[Stream]:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(here.sidecar.socket))) as session,
        session.get("http://gang/v1/events") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        yield Stream(answer)


async def test_the_stream_sends_run_and_stop(directory: Path) -> None:
    async with training(directory) as here, stream(here) as events:
        assert await events.next() == ("run", {"attempt": 3})
        await here.direct(replace(HOLD, attempt=4, reason="worker-5 was killed", grace_ms=15_000))
        name, data = await events.next()
        assert name == "stop"
        assert 14_000 < data.pop("millisecondsLeft") <= 15_000
        assert data == {"attempt": 3, "reason": "worker-5 was killed", "planned": False}
        await here.report(attempt=4, phase=wire.Phase.STOPPING)
        await here.report(attempt=4, phase=wire.Phase.READY)
        await here.direct(run(4))
        assert await events.next() == ("run", {"attempt": 4})
        await here.direct(replace(HOLD, attempt=4, verb=wire.Verb.FINISH))
        assert (await events.next())[1]["attempt"] == 4


async def test_a_stop_is_sent_when_the_stacks_of_the_worker_are_taken(directory: Path) -> None:
    async with training(directory) as here, stream(here) as events:
        await events.next()
        await here.direct(replace(HOLD, attempt=4, stacks=True, grace_ms=15_000))
        await here.report(attempt=4, phase=wire.Phase.STOPPING, stacks=wire.Stacks(2, "of another worker"))
        assert "stopping" not in (await call(here, "GET", "/v1/attempt"))[1]
        await here.report(attempt=4, phase=wire.Phase.STOPPING, stacks=wire.Stacks(3, ""))
        name, data = await events.next()
        assert (name, data["attempt"]) == ("stop", 3)


async def test_a_late_reader_of_the_stream_gets_the_current_stop(directory: Path) -> None:
    async with training(directory) as here:
        await here.direct(replace(HOLD, attempt=4, planned=True, grace_ms=120_000))
        async with stream(here) as events:
            name, data = await events.next()
            assert (name, data["attempt"], data["planned"]) == ("stop", 3, True)


async def test_an_older_directive_causes_no_stop_event(directory: Path) -> None:
    async with training(directory) as here, stream(here) as events:
        await events.next()
        await here.direct(replace(HOLD, attempt=2))
        await here.direct(replace(HOLD, attempt=3))
        await here.direct(replace(HOLD, attempt=5))
        assert (await events.next())[0] == "stop"
        assert (await call(here, "GET", "/v1/attempt"))[1]["attempt"] == 3


async def test_a_sidecar_forgets_readers_that_disconnect(directory: Path) -> None:
    async with training(directory) as here:
        descriptors = Path(f"/proc/{here.sidecar.process.pid}/fd")

        def opened() -> int:
            return len(list(descriptors.iterdir()))

        before = opened()
        for _ in range(20):
            async with stream(here) as events:
                await events.next()
        await until(lambda: opened() <= before + 1)
