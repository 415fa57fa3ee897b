"""The server that sidecars connect to: HTTP, over TLS on a cluster. Unauthenticated clients cost little here.

The rule: a client has ten seconds from its first packet to the accepted upgrade, and the number of connections that are
not authenticated yet is bounded (pending.py). Unauthenticated clients must not affect a connection that is admitted.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gangctl.controller import pending
from gangctl.controller.pending import PendingConnections, http_logger, listen_bounded, listener
from gangctl.controller.refusals import RefusalLog
from gangsidecar.wire import CONNECT_PATH

MAX_PENDING: Final = 1024
"""The largest number of connections that are not authenticated yet: about 60 KB each."""
_SHUTDOWN_SECONDS: Final = 2.0

Handle = Callable[[web.Request, Callable[[], None]], Awaitable[web.StreamResponse]]
"""Answers a request, and calls its second argument once the client is authenticated."""


@asynccontextmanager
async def listen(
    host: str, port: int, handle: Handle, refusals: RefusalLog, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve :data:`~gangsidecar.wire.CONNECT_PATH`; gives the URL for sidecars. At the end it closes everything.

    A certificate that is loaded into ``tls`` later is used for new connections.

    Raises:
        OSError: it can't listen there.
    """
    unknown = PendingConnections(refusals, lambda: MAX_PENDING)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handle(request, functools.partial(unknown.remove, request.protocol))

    application = web.Application()
    application.router.add_get(CONNECT_PATH, answer)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=http_logger("hub", refusals),
        shutdown_timeout=_SHUTDOWN_SECONDS,
        keepalive_timeout=pending.ADMISSION_SECONDS,
    )
    await runner.setup()
    try:
        socket = listener(host, port)
        async with listen_bounded(runner, socket, unknown, tls):
            name, number = socket.getsockname()[:2]
            scheme = "ws" if tls is None else "wss"
            yield f"{scheme}://{f'[{name}]' if ':' in name else name}:{number}{CONNECT_PATH}"
    finally:
        await runner.cleanup()
