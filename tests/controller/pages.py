"""The page of a loop with a cluster in memory, on a real socket, and viewers of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.controller.loop import Loop
from gangctl.controller.page.routes import UI_PATH, GangSource, Page, ViewerReview, allow_everyone
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.plan import Plan
from tests.controller.fake_cluster import FakeCluster, running
from tests.messages import words
from tests.wait import SECONDS


def nothing(_now: float, _job: GangJob, _observed: Observed) -> Plan:
    """A core that leaves everything as it is."""
    return Plan(because=words("nothing happens"))


@dataclass
class Viewer:
    """A stream that a test reads."""

    content: aiohttp.StreamReader

    async def event(self) -> tuple[str, Any]:
        """The next event that is no time: its type and its document."""
        async with asyncio.timeout(SECONDS):
            while True:
                lines = (await self.content.readuntil(b"\n\n")).decode().splitlines()
                fields = dict(line.split(": ", 1) for line in lines if ": " in line[1:])
                if fields.get("event", "time") != "time":
                    return fields["event"], json.loads(fields["data"])


@dataclass
class Served:
    """The page."""

    url: str
    session: aiohttp.ClientSession

    @asynccontextmanager
    async def viewer(self, path: str) -> AsyncIterator[Viewer]:
        async with self.session.get(self.url + path) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            yield Viewer(answer.content)


@asynccontextmanager
async def page_of(
    world: FakeCluster,
    loop: Callable[[Loop], Loop | None] = lambda found: found,
    leader: str = "",
    refusal: ViewerReview = allow_everyone,
) -> AsyncIterator[Served]:
    """Serve it. ``loop``: what leads; None for a standby. ``refusal``: what a viewer may not see."""
    async with running(world, nothing) as here, aiohttp.ClientSession() as session:
        page = Page(GangSource(world, lambda: loop(here.loop), lambda: leader, "https://jaeger.example.com"), refusal)
        application = web.Application()
        page.add_to(application)
        runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield Served(f"http://127.0.0.1:{runner.addresses[0][1]}{UI_PATH}", session)
        finally:
            await runner.cleanup()
