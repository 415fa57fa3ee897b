"""The live endpoint of the local controller: the page, and a snapshot of a gang at ``/v1/gangs/NAME``.

The rule: only the user who runs the controller has access. The random token is in a file that only this user can read.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from gangctl.api.gangjob import GangJob
from gangctl.api.snapshot import Endpoint
from gangctl.cluster import clock
from gangctl.controller.page.routes import Page
from gangctl.core.facts.world import Observed
from gangctl.core.record.snapshot import snapshot

PATH: Final = "/v1/gangs/"
_SHUTDOWN_SECONDS: Final = 0.5

Look = Callable[[str], tuple[GangJob, Observed] | None]
"""Finds a gang by its name, with what the controller observes of it now."""


@asynccontextmanager
async def serve(host: str, look: Look, page: Page) -> AsyncIterator[Endpoint]:
    """Serve on a free port of ``host`` until the end.

    Raises:
        OSError: it can't listen there.
    """
    token = secrets.token_urlsafe(32)
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def authorized(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized(text="the request needs the token from the state directory\n")
        return await handler(request)

    async def answer(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = look(name)
        if found is None:
            raise web.HTTPNotFound(text=f"this controller knows no gang {name!r:.80}\n")
        text = snapshot(clock.now(), *found).model_dump_json(by_alias=True, exclude_none=True)
        return web.Response(text=text, content_type="application/json")

    application = web.Application(middlewares=[authorized])
    application.router.add_get(PATH + "{name}", answer)
    page.add_to(application)
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        handler_cancellation=True,  # A viewer that has left makes room at once.
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        name, port = runner.addresses[0][:2]
        yield Endpoint(url=f"http://{name}:{port}{PATH}", token=token)
    finally:
        await runner.cleanup()
