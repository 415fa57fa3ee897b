"""Collectors that do not work, each in its own way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import web

from tests.telemetry.otlp_receiver import hangs, receiving


@asynccontextmanager
async def down() -> AsyncIterator[str]:
    """A port without a listener."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def answering(answer: Callable[[], Awaitable[web.Response | None]]) -> Callable[[], AbstractAsyncContextManager[str]]:
    """A collector with this answer."""

    @asynccontextmanager
    async def found() -> AsyncIterator[str]:
        async with receiving() as receiver:
            receiver.answer = answer
            yield receiver.url

    return found


def refusing(status: int) -> Callable[[], AbstractAsyncContextManager[str]]:
    """A collector that answers with this status, and a text that must not get into the log."""

    async def refuse() -> web.Response:
        return web.Response(status=status, text="\x1b[2J no spans here")

    return answering(refuse)


async def moved() -> web.Response:
    """A redirection."""
    return web.Response(status=302, headers={"Location": "/elsewhere"})


@asynccontextmanager
async def garbage() -> AsyncIterator[str]:
    """A server that does not speak HTTP."""

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\xff\x1b[2J no HTTP \r\n" * 20)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def later() -> None:
    """The delay of a slow collector."""
    await asyncio.sleep(0.5)


COLLECTORS = {
    "down": down,
    "hanging": answering(hangs),
    "moved": answering(moved),
    "304": refusing(304),
    "307": refusing(307),
    "400": refusing(400),
    "401": refusing(401),
    "500": refusing(500),
    "503": refusing(503),
    "garbage": garbage,
}
