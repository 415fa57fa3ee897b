"""The page's routes: three files, and streams of events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

The rule: every answer forbids the browser to load, run or embed anything that is not the page's own file, and it only
answers GET. Who may ask is decided before (the application's middleware). The number of streams is bounded, and a
viewer that doesn't take an event within ten seconds loses its connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from gangctl.cluster import clock
from gangctl.controller.page.feeds import Feeds, Make, Observe, frame_of
from gangctl.controller.page.source import Source
from gangctl.explain.page.documents import Missing, Standby
from gangctl.explain.page.gang import drawing, gang
from gangctl.explain.page.gangs import listed

PATH: Final = "/ui/"
MAX_STREAMS: Final = 64
DRAWN_SECONDS: Final = 3.0
"""How old a picture may be."""
HEARTBEAT_SECONDS: Final = 10.0
SLOW_SECONDS: Final = 10.0
STREAM_SECONDS: Final = 60.0
"""A stream ends after this time, and the browser asks again: a right that was taken away must not outlast it."""
RETRY_MILLISECONDS: Final = 1000
"""When it asks again."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_OF_A_PICTURE: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""A picture runs nothing, and has its own style."""
_STATIC: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "": ("index.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "tree.js": ("tree.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


class Page:
    """The page of one controller."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._feeds = Feeds()
        self._streams = 0
        self._drawings: dict[tuple[str, str], tuple[float, asyncio.Future[str]]] = {}
        """When each was asked for, and the picture."""

    def add_to(self, application: web.Application) -> None:
        """Add the routes, all below :data:`PATH`."""
        for path, (name, kind) in _FILES.items():
            text = (_STATIC / name).read_text(encoding="utf-8")
            application.router.add_get(PATH + path, partial(_file, text, kind), allow_head=False)
        application.router.add_get(PATH + "gangs", self._gangs, allow_head=False)
        application.router.add_get(PATH + "gangs/{namespace}/{name}", self._gang, allow_head=False)
        application.router.add_get(PATH + "gangs/{namespace}/{name}/timeline.svg", self._timeline, allow_head=False)

    async def _gangs(self, request: web.Request) -> web.StreamResponse:
        def observe() -> Make:
            return partial(listed, tuple(self._source.jobs()), self._source.unreadable())

        return await self._stream(request, "", observe)

    async def _gang(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]

        def observe() -> Make:
            found = self._source.look(namespace, name)
            if found is None:
                return partial(Missing, namespace=namespace, name=name)
            return partial(gang, clock.now(), *found, self._source.traces)

        return await self._stream(request, (namespace, name), observe)

    async def _timeline(self, request: web.Request) -> web.Response:
        """The timeline as a picture, which all viewers share for some seconds."""
        key, oldest = (request.match_info["namespace"], request.match_info["name"]), time.monotonic() - DRAWN_SECONDS
        self._drawings = {one: drawn for one, drawn in self._drawings.items() if drawn[0] > oldest}
        if key not in self._drawings:
            found = self._source.look(*key)
            if found is None:
                raise web.HTTPNotFound(text="there is no such gang\n", headers=HEADERS)
            drawn = asyncio.ensure_future(self._feeds.made(partial(drawing, clock.now(), *found)))
            self._drawings[key] = time.monotonic(), drawn
        text = await asyncio.shield(self._drawings[key][1])  # A viewer that leaves must not end it for the others.
        return web.Response(text=text, content_type="image/svg+xml", headers={**HEADERS, **_OF_A_PICTURE})

    async def _stream(self, request: web.Request, key: Hashable, observe: Observe) -> web.StreamResponse:
        """Send the newest document after each change. On a standby: who leads, and the end of the stream."""
        if self._streams >= MAX_STREAMS:
            raise web.HTTPServiceUnavailable(text=f"{MAX_STREAMS} viewers watch already\n", headers=HEADERS)
        self._streams += 1
        try:
            return await self._send(request, key, observe)
        finally:
            self._streams -= 1

    async def _send(self, request: web.Request, key: Hashable, observe: Observe) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        end = time.monotonic() + STREAM_SECONDS
        with suppress(ConnectionError):  # the viewer has left
            await _write(
                request, response, b"retry: %d\nevent: time\ndata: %.3f\n\n" % (RETRY_MILLISECONDS, clock.now())
            )
            async with self._feeds.watching(key, observe) as feed:
                version = 0
                while self._source.loop() is not None and time.monotonic() < end:
                    frame = b": \n\n"
                    with suppress(TimeoutError):
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            version, frame = await feed.after(version)
                    if self._source.loop() is not None:  # What a standby sees is not what the leader sees.
                        await _write(request, response, frame)
            if self._source.loop() is None:
                await _write(request, response, frame_of(Standby(leader=self._source.leader())))
        return response


async def _write(request: web.Request, response: web.StreamResponse, frame: bytes) -> None:
    try:
        async with asyncio.timeout(SLOW_SECONDS):
            await response.write(frame)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the viewer reads too slowly") from None


async def _file(text: str, kind: str, _request: web.Request) -> web.Response:
    return web.Response(text=text, content_type=kind, charset="utf-8", headers=HEADERS)
