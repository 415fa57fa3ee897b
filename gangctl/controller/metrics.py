"""Metrics for Prometheus, at ``/metrics`` on a port of their own.

The rule: a client gets metrics only if it may ``get`` the non-resource URL ``/metrics``; the API server decides that
(request_authorizer.py). TLS keeps the client's token secret. Without ``--metrics-secure``, each client that reaches the
port gets them, over plain HTTP.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web

from gangctl.cluster.kube.auth.request_authorizer import HttpRefusal
from gangctl.controller.short_connections import serve_short
from gangctl.telemetry.metrics.exposition import Exposition

PATH: Final = "/metrics"
MAX_CONNECTIONS: Final = 64
"""Each holds one scrape."""


@dataclass(frozen=True, slots=True)
class Security:
    """How scrapes are protected."""

    tls: ssl.SSLContext
    """With the certificate; a certificate that is loaded later is used for new connections."""
    refusal: Callable[[str], Awaitable[HttpRefusal | None]]
    """Why a request with this Authorization header is refused; None = it is allowed."""


class MetricsServer:
    """Serves the metrics of one process."""

    def __init__(self, exposition: Exposition, security: Security | None) -> None:
        """``security``: None = plain HTTP, without authentication."""
        self._exposition = exposition
        self._security = security

    def serve(self, host: str, port: int) -> AbstractAsyncContextManager[int]:
        """Serve until the end; gives the port. ``host``: empty = all addresses.

        Raises:
            OSError: it can't listen there.
        """
        tls = None if self._security is None else self._security.tls
        return serve_short("metrics", {PATH: self._metrics}, host, port, limit=MAX_CONNECTIONS, tls=tls)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._security is not None:
            refusal = await self._security.refusal(request.headers.get("Authorization", ""))
            if refusal is not None:
                challenge = {"WWW-Authenticate": "Bearer"} if refusal.status == HTTPStatus.UNAUTHORIZED else None
                return web.Response(status=refusal.status, text=f"{refusal.text}\n", headers=challenge)
        text = await self._exposition.text(request.headers.get("Accept", ""))
        return web.Response(body=text.body, headers={"Content-Type": text.content_type})
