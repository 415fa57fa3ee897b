"""The HTTP endpoints of a controller on a cluster, each on a port of its own: probes, metrics and the page.

The rule of the probes: ``/healthz`` fails only if this process does not do its work in time. It must not fail because
of others (the API server is away, the CRD is missing), since a restart would not help. A standby is ready like a
leader. Clients that are slow or many must not keep the kubelet's probes from being answered.

The rule of metrics and page: the API server decides for each request whether its user may ``get`` the non-resource URL
(``RequestAuthorizer``), and TLS keeps the client's token secret. Which gangs a viewer sees is another question
(``GangAuthorizer``). Without ``--metrics-secure``, each client that reaches the port gets metrics, over plain HTTP.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from gangctl.cluster.kube.authorizers import HttpRefusal
from gangctl.controller.gate import RefusalLog
from gangctl.controller.listener import PendingConnections, serve_app, serve_short
from gangctl.controller.page.routes import Page
from gangctl.telemetry.metrics.exposition import Exposition

METRICS: Final = "/metrics"
PAGE_URLS: Final = "/ui"
"""The non-resource URLs that a user must be allowed to get."""
MAX_PROBES: Final = 32
MAX_SCRAPES: Final = 64
MAX_VIEWERS: Final = 64
"""The largest numbers of connections; of viewers, of those that aren't admitted yet."""
BEAT_SECONDS: Final = 1.0
LATE_SECONDS: Final = 15.0
"""After this long without a heartbeat the event loop is stuck."""

Problems = Callable[[], Iterable[str]]
"""Why this controller is not ready, a sentence each; empty = it is ready."""


class Health:
    """The probes of one process."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._beat_at = time.monotonic()

    async def beat(self) -> None:
        """Note that the event loop runs, until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    def serve(self, host: str, port: int) -> AbstractAsyncContextManager[int]:
        """Serve until the end; gives the port. ``host``: empty = all addresses."""
        routes = {"/healthz": self._healthz, "/readyz": self._readyz}
        return serve_short("health", routes, host, port, limit=MAX_PROBES)

    async def _healthz(self, _request: web.Request) -> web.Response:
        late = time.monotonic() - self._beat_at
        if late > LATE_SECONDS:
            return web.Response(status=503, text=f"the event loop has been stuck for {late:.0f} s\n")
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        problems = tuple(self._problems())
        if problems:
            return web.Response(status=503, text="".join(f"{one}\n" for one in problems))
        return web.Response(text="ok\n")


@dataclass(frozen=True, slots=True)
class Security:
    """How an endpoint is protected."""

    tls: ssl.SSLContext
    """With the certificate; a certificate that is loaded later is used for new connections."""
    refusal: Callable[[str], Awaitable[HttpRefusal | None]]
    """Why a request with this Authorization header is refused; None = it is allowed."""

    async def refusal_of(self, request: web.Request) -> web.Response | None:
        """Return the answer that refuses a request; None if it is allowed."""
        refusal = await self.refusal(request.headers.get("Authorization", ""))
        if refusal is None:
            return None
        challenge = {"WWW-Authenticate": "Bearer"} if refusal.status == HTTPStatus.UNAUTHORIZED else None
        return web.Response(status=refusal.status, text=f"{refusal.text}\n", headers=challenge)


class MetricsServer:
    """Serves the metrics of one process."""

    def __init__(self, exposition: Exposition, security: Security | None) -> None:
        """``security``: None = plain HTTP, without authentication."""
        self._exposition = exposition
        self._security = security

    def serve(self, host: str, port: int) -> AbstractAsyncContextManager[int]:
        """Serve until the end; gives the port. ``host``: empty = all addresses."""
        tls = None if self._security is None else self._security.tls
        return serve_short("metrics", {METRICS: self._metrics}, host, port, limit=MAX_SCRAPES, tls=tls)

    async def _metrics(self, request: web.Request) -> web.Response:
        refusal = None if self._security is None else await self._security.refusal_of(request)
        if refusal is not None:
            return refusal
        text = await self._exposition.text(request.headers.get("Accept", ""))
        return web.Response(body=text.body, headers={"Content-Type": text.content_type})


@asynccontextmanager
async def serve_page(page: Page, security: Security, host: str, port: int) -> AsyncIterator[int]:
    """Serve the page until the end; gives the port. ``host``: empty = all addresses."""
    pending = PendingConnections(RefusalLog(), MAX_VIEWERS)

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = await security.refusal_of(request)
        if refusal is not None:
            return refusal
        pending.remove(request.protocol)
        return await handler(request)

    application = web.Application(middlewares=[authorize])
    page.add_to(application)
    # A viewer that has left makes room at once.
    async with serve_app("page", application, host, port, pending, security.tls, cancels_handlers=True) as (_, number):
        yield number
