"""An HTTP server for clients that send one request and go: the kubelet's probes, Prometheus.

The rule: a connection carries one request and lasts ten seconds at most, and the number of connections is bounded
(pending.py). A client that sends slowly, reads slowly or never ends must not keep others from being answered.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gangctl.controller.pending import PendingConnections, http_logger, listen_bounded, listener
from gangctl.controller.refusals import RefusalLog

_SHUTDOWN_SECONDS: Final = 0.5

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve_short(
    name: str, routes: Mapping[str, Answer], host: str, port: int, *, limit: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer GET requests until the end; gives the port.

    Args:
        name: of the server, for the log.
        routes: path and what answers it.
        host: empty = all addresses.
        port: 0 = a free one.
        limit: the largest number of connections.
        tls: None = plain HTTP.

    Raises:
        OSError: it can't listen there.
    """
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, answer)
    application.on_response_prepare.append(_close)
    refusals = RefusalLog()
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=http_logger(name, refusals),
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        socket = listener(host, port)
        async with listen_bounded(runner, socket, PendingConnections(refusals, lambda: limit), tls):
            yield socket.getsockname()[1]
    finally:
        await runner.cleanup()


async def _close(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Connection"] = "close"  # aiohttp has decided on the header before this.
    response.force_close()
