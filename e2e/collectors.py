"""Broken collectors: one that is down, one that never answers, one that refuses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web


@dataclass
class Collector:
    """Where spans are sent in vain; ``asked`` counts connections or requests, except for one that is down."""

    url: str
    asked: int = 0


@asynccontextmanager
async def down(host: str) -> AsyncIterator[Collector]:
    """A port that refuses connections; it is bound, so that no other process listens there."""
    with socket.socket() as holder:
        holder.bind((host, 0))
        yield Collector(f"http://{host}:{holder.getsockname()[1]}")


@asynccontextmanager
async def hanging(host: str) -> AsyncIterator[Collector]:
    """A collector that accepts connections, reads, and never answers."""
    found = Collector("")
    writers: list[asyncio.StreamWriter] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.asked += 1
        writers.append(writer)
        while await reader.read(1 << 16):
            pass

    server = await asyncio.start_server(swallow, host, 0)
    found.url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def refusing(host: str, code: int) -> AsyncIterator[Collector]:
    """A collector that answers every request with this status code."""
    found = Collector("")

    async def refuse(_request: web.Request) -> web.Response:
        found.asked += 1
        return web.Response(status=code, text="no spans here")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        found.url = f"http://{host}:{runner.addresses[0][1]}"
        yield found
    finally:
        await runner.cleanup()
