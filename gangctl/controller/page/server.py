"""The page of a controller on a cluster, on a port of its own.

The rule: a client sees the page only if it may ``get`` the non-resource URL ``/ui``; the API server decides that
(request_authorizer.py), for each request, and TLS keeps the client's token secret. Which gangs it sees is another
question (gang_authorizer.py). A client that isn't admitted costs little (pending.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from gangctl.controller.metrics import Security
from gangctl.controller.page.routes import Page
from gangctl.controller.pending import ADMISSION_SECONDS, PendingConnections, http_logger, listen_bounded, listener
from gangctl.controller.refusals import RefusalLog

RIGHT: Final = "/ui"
"""The non-resource URL that a user must be allowed to get."""
MAX_PENDING: Final = 64
_SHUTDOWN_SECONDS: Final = 0.5


@asynccontextmanager
async def serve_page(page: Page, security: Security, host: str, port: int) -> AsyncIterator[int]:
    """Serve the page until the end; gives the port. ``host``: empty = all addresses.

    Raises:
        OSError: it can't listen there.
    """
    refusals = RefusalLog()
    unknown = PendingConnections(refusals, lambda: MAX_PENDING)

    @web.middleware
    async def authorized(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = await security.refusal(request.headers.get("Authorization", ""))
        if refusal is not None:
            challenge = {"WWW-Authenticate": "Bearer"} if refusal.status == HTTPStatus.UNAUTHORIZED else None
            return web.Response(status=refusal.status, text=f"{refusal.text}\n", headers=challenge)
        unknown.remove(request.protocol)
        return await handler(request)

    application = web.Application(middlewares=[authorized])
    page.add_to(application)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=http_logger("page", refusals),
        shutdown_timeout=_SHUTDOWN_SECONDS,
        keepalive_timeout=ADMISSION_SECONDS,
        handler_cancellation=True,  # A viewer that has left makes room at once.
    )
    await runner.setup()
    try:
        socket = listener(host, port)
        async with listen_bounded(runner, socket, unknown, security.tls):
            yield socket.getsockname()[1]
    finally:
        await runner.cleanup()
