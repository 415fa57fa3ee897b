"""The page's routes: three files, and streams of events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

The rule: every answer forbids the browser to load, run or embed anything that is not the page's own file, and it only
answers GET. Who may ask is decided before (the application's middleware); which gangs a viewer sees, here, once for
each request. What only the leader knows is never answered by a standby: it names the leader. The numbers of streams and
of pictures are bounded, and a viewer that doesn't take an event within ten seconds loses its connection.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.model import escaped
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.port import Cluster
from gangctl.controller.loop import Loop
from gangctl.controller.page.feeds import Feeds, Make, Observe
from gangctl.core.facts.world import Observed
from gangctl.story.incidents import TRACES, is_address
from gangctl.story.page import Missing, drawing, gang, group_drawing, group_listed, group_of, listed
from gangctl.story.svg import PHASE_STYLE

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GangSource:
    """The gangs of one controller."""

    cluster: Cluster
    loop: Callable[[], Loop | None]
    """None while this controller doesn't lead."""
    leader: Callable[[], str] = lambda: ""
    """URL of the page of the controller that leads; empty if that is not known."""
    traces: str = ""
    """Address of Jaeger's pages; empty if it is not known."""

    def jobs(self) -> Iterator[GangJob]:
        """All gangs that can be read."""
        return (job for uid in self.cluster.uids() if (job := self.cluster.gang(uid)) is not None)

    def unreadable(self) -> int:
        """Return how many gangs this release can't read."""
        loop = self.loop()
        return 0 if loop is None else loop.unreadable_count

    def look(self, namespace: str, name: str) -> tuple[GangJob, Observed] | None:
        """A gang, and what is observed of it."""
        loop = self.loop()
        of_name = (job for job in self.jobs() if (job.metadata.namespace, job.metadata.name) == (namespace, name))
        job = next(of_name, None)
        return None if job is None or loop is None else (job, loop.observed(job.metadata.uid))

    def group(self, namespace: str, group: str) -> list[GangJob]:
        """All gangs of a replica group."""
        return [job for job in self.jobs() if (job.metadata.namespace, group_of(job)) == (namespace, group)]


def traces_from_environment() -> str:
    """Address of Jaeger's pages; empty if it is not set, or can't be used, which the log tells."""
    text = os.environ.get(TRACES, "")
    if text and not is_address(text):
        log.warning("the page has no links to traces: $%s is %r, which isn't an http or https address", TRACES, text)
        return ""
    return text.rstrip("/")


UI_PATH: Final = "/ui/"
MAX_STREAMS: Final = 64
MAX_PICTURES: Final = 64
"""Pictures of gangs that are kept or wait to be drawn: one for each stream."""
MAX_NAMESPACES: Final = 200
"""Namespaces that are looked through for a viewer who may not see them all."""
DRAWN_SECONDS: Final = 3.0
"""How old a picture may be."""
HEARTBEAT_SECONDS: Final = 10.0
SLOW_SECONDS: Final = 10.0
STREAM_SECONDS: Final = 60.0
"""A stream ends after this time, and the browser asks again: a right that was taken away must not outlast it."""
RETRY_MILLISECONDS: Final = 1000
"""When it asks again."""
RETRY_SECONDS: Final = 2
"""When a client asks again that was refused because of the moment."""
_LEADS_NOWHERE: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        f"{_LEADS_NOWHERE}; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Of every answer, errors included."""
_OF_A_PICTURE: Final = {"Content-Security-Policy": f"default-src 'none'; style-src 'unsafe-inline'; {_LEADS_NOWHERE}"}
"""A picture runs nothing, and has its own style."""
_STATIC: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "": ("index.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "tree.js": ("tree.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


ViewerReview = Callable[[str, str], Awaitable[str]]
"""Why the viewer with this Authorization header may not list the gangs of a namespace (empty: of all); empty if it may.
It raises ClusterError if that can't be found out now."""


async def allow_everyone(_authorization: str, _namespace: str) -> str:
    """Let each viewer see each gang."""
    return ""


class Page:
    """The page of one controller."""

    def __init__(self, source: GangSource, refusal: ViewerReview = allow_everyone) -> None:
        """``refusal``: which gangs a viewer may see."""
        self._source = source
        self._refusal = refusal
        self._feeds = Feeds()
        self._streams = 0
        self._pictures: dict[Hashable, tuple[float, asyncio.Future[str]]] = {}
        """When each was asked for, and the picture."""

    def add_to(self, application: web.Application) -> None:
        """Add the routes, all below :data:`UI_PATH`, and the headers of all answers."""
        for path, (name, kind) in _FILES.items():
            text = (_STATIC / name).read_text(encoding="utf-8") + (PHASE_STYLE if name == "page.css" else "")
            application.router.add_get(UI_PATH + path, partial(_file, text, kind), allow_head=False)
        application.router.add_get(UI_PATH + "gangs", self._gangs, allow_head=False)
        application.router.add_get(UI_PATH + "gangs/{namespace}/{name}", self._gang, allow_head=False)
        application.router.add_get(UI_PATH + "gangs/{namespace}/{name}/timeline.svg", self._timeline, allow_head=False)
        application.router.add_get(UI_PATH + "groups/{namespace}/{name}", self._group, allow_head=False)
        application.router.add_get(
            UI_PATH + "groups/{namespace}/{name}/timeline.svg", self._group_timeline, allow_head=False
        )
        application.on_response_prepare.append(_protect)

    async def _gangs(self, request: web.Request) -> web.StreamResponse:
        if not await self._refused(request, ""):
            return await self._stream(request, "", self._all)
        every = sorted({job.metadata.namespace for job in self._source.jobs()})
        seen = frozenset([one for one in every[:MAX_NAMESPACES] if not await self._refused(request, one)])
        unseen = len(every[MAX_NAMESPACES:])

        def observe() -> Make:
            return partial(
                listed, tuple(job for job in self._source.jobs() if job.metadata.namespace in seen), 0, unseen
            )

        return await self._stream(request, (seen, unseen), observe)

    def _all(self) -> Make:
        return partial(listed, tuple(self._source.jobs()), self._source.unreadable())

    async def _gang(self, request: web.Request) -> web.StreamResponse:
        namespace, name = await self._named(request)

        def observe() -> Make:
            found = self._source.look(namespace, name)
            if found is None:
                return partial(Missing, namespace=namespace, name=name)
            return partial(gang, clock.now(), *found, self._source.traces)

        return await self._stream(request, (namespace, name), observe)

    async def _group(self, request: web.Request) -> web.StreamResponse:
        namespace, group = await self._named(request)

        def observe() -> Make:
            return partial(group_listed, namespace, group, self._source.group(namespace, group))

        return await self._stream(request, ("group", namespace, group), observe)

    async def _timeline(self, request: web.Request) -> web.Response:
        namespace, name = await self._named(request)

        def observe() -> Callable[[], str] | None:
            found = self._source.look(namespace, name)
            return None if found is None else partial(drawing, clock.now(), *found)

        return await self._picture(("gang", namespace, name), observe)

    async def _group_timeline(self, request: web.Request) -> web.Response:
        namespace, group = await self._named(request)

        def observe() -> Callable[[], str] | None:
            loop = self._source.loop()
            gangs = self._source.group(namespace, group)
            found = [] if loop is None else [(job, loop.observed(job.metadata.uid)) for job in gangs]
            return partial(group_drawing, clock.now(), group, found) if found else None

        return await self._picture(("group", namespace, group), observe)

    async def _picture(self, key: Hashable, observe: Callable[[], Callable[[], str] | None]) -> web.Response:
        """A timeline as a picture, which all viewers share for some seconds."""
        oldest = time.monotonic() - DRAWN_SECONDS
        self._pictures = {one: it for one, it in self._pictures.items() if it[0] > oldest or not it[1].done()}
        if key not in self._pictures:
            draw = observe()
            if draw is None:
                raise web.HTTPNotFound(text="there is no such gang\n")
            if len(self._pictures) >= MAX_PICTURES:
                raise _unavailable(f"timelines of {MAX_PICTURES} gangs are drawn already")
            drawn = asyncio.ensure_future(self._feeds.make(draw))
            self._pictures[key] = time.monotonic(), drawn
        text = await asyncio.shield(self._pictures[key][1])  # A viewer that leaves must not end it for the others.
        return web.Response(text=text, content_type="image/svg+xml", headers=_OF_A_PICTURE)

    async def _named(self, request: web.Request) -> tuple[str, str]:
        """Namespace and name of the gang that the viewer asks for, and may see."""
        namespace = request.match_info["namespace"]
        refusal = await self._refused(request, namespace)
        if refusal:
            raise web.HTTPForbidden(text=f"{escaped(refusal)}\n")
        return namespace, request.match_info["name"]

    async def _refused(self, request: web.Request, namespace: str) -> str:
        """Return why the viewer may not list the gangs of a namespace; empty if it may, and this controller leads."""
        try:
            refusal = await self._refusal(request.headers.get("Authorization", ""), namespace)
        except ClusterError as error:
            raise _unavailable(f"what you may see can't be found out now: {error}") from None
        if self._source.loop() is None:
            leader = self._source.leader()
            where = f"the page of the leader is {leader}" if leader else "no leader is known now"
            raise _unavailable(f"this controller stands by, and only the leader knows the gangs; {where}")
        return refusal

    async def _stream(self, request: web.Request, key: Hashable, observe: Observe) -> web.StreamResponse:
        """Send the newest document after each change, while this controller leads."""
        if self._streams >= MAX_STREAMS:
            raise _unavailable(f"{MAX_STREAMS} viewers watch already")
        self._streams += 1
        try:
            return await self._send(request, key, observe)
        finally:
            self._streams -= 1

    async def _send(self, request: web.Request, key: Hashable, observe: Observe) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
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
    return web.Response(text=text, content_type=kind, charset="utf-8")


async def _protect(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _unavailable(text: str) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text=f"{text}\n", headers={"Retry-After": str(RETRY_SECONDS)})
