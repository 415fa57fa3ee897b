"""The page's routes: three files, and streams of events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

The rule: every answer forbids the browser to load, run or embed anything that is not the page's own file, and it only
answers GET. Who may ask is decided before (the application's middleware). The number of streams is bounded, and a
viewer that doesn't take an event within ten seconds loses its connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.cluster import clock
from gangctl.controller.page.feeds import Feeds, Make, Observe, frame_of
from gangctl.core.facts.world import Observed
from gangctl.explain.page.documents import Missing, Standby
from gangctl.explain.page.gang import gang
from gangctl.explain.page.gangs import listed
from gangctl.explain.page.traces import VARIABLE, is_address

log = logging.getLogger(__name__)

PATH: Final = "/ui/"
MAX_STREAMS: Final = 64
HEARTBEAT_SECONDS: Final = 10.0
SLOW_SECONDS: Final = 10.0
RETRY_MILLISECONDS: Final = 1000
"""A browser whose stream has ended asks again after this time."""
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
_STATIC: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "": ("index.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "tree.js": ("tree.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


def traces_from_environment() -> str:
    """Address of Jaeger's pages; empty if it is not set, or can't be used, which the log tells."""
    text = os.environ.get(VARIABLE, "")
    if text and not is_address(text):
        log.warning("the page has no links to traces: $%s is %r, which is no http or https address", VARIABLE, text)
        return ""
    return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the page's contents come from."""

    jobs: Callable[[], Iterable[GangJob]]
    """All gangs."""
    look: Callable[[str, str], tuple[GangJob, Observed] | None]
    """A gang by namespace and name, with what is observed of it now."""
    leader: Callable[[], str | None] = lambda: None
    """None = this controller leads; else the URL of the leader's page, or empty if no leader is known."""
    traces: str = ""
    """Address of Jaeger's pages; empty if it is not known."""


class Page:
    """The page of one controller."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._feeds = Feeds()
        self._streams = 0

    def add_to(self, application: web.Application) -> None:
        """Add the routes, all below :data:`PATH`."""
        for path, (name, kind) in _FILES.items():
            text = (_STATIC / name).read_text(encoding="utf-8")
            application.router.add_get(PATH + path, partial(_file, text, kind))
        application.router.add_get(PATH + "gangs", self._gangs)
        application.router.add_get(PATH + "gangs/{namespace}/{name}", self._gang)

    async def _gangs(self, request: web.Request) -> web.StreamResponse:
        def observe() -> Make:
            return partial(listed, tuple(self._source.jobs()))

        return await self._stream(request, "", observe)

    async def _gang(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]

        def observe() -> Make:
            found = self._source.look(namespace, name)
            if found is None:
                return partial(Missing, namespace=namespace, name=name)
            return partial(gang, clock.now(), *found, self._source.traces)

        return await self._stream(request, (namespace, name), observe)

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
        with suppress(ConnectionError):  # the viewer has left
            await _write(
                request, response, b"retry: %d\nevent: time\ndata: %.3f\n\n" % (RETRY_MILLISECONDS, clock.now())
            )
            async with self._feeds.watching(key, observe) as feed:
                version = 0
                while (leader := self._source.leader()) is None:
                    frame = b": \n\n"
                    with suppress(TimeoutError):
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            version, frame = await feed.after(version)
                    if self._source.leader() is None:  # What a standby sees is not what the leader sees.
                        await _write(request, response, frame)
            await _write(request, response, frame_of(Standby(leader=leader)))
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
