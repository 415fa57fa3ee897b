"""Probes for the kubelet (``/healthz``, ``/readyz``) and metrics for Prometheus (``/metrics``), over plain HTTP.

The rule: ``/healthz`` fails only if this process does not do its work in time. It must not fail because of others (the
API server is away, the CRD is missing), since a restart would not help. A standby is ready like a leader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gangctl.telemetry.metrics.exposition import Exposition

BEAT_SECONDS: Final = 1.0
LATE_SECONDS: Final = 15.0
"""After this long without a heartbeat the event loop is stuck."""
_SHUTDOWN_SECONDS: Final = 0.5

Problems = Callable[[], Iterable[str]]
"""Why this controller is not ready, a sentence each; empty = it is ready."""


class Health:
    """The HTTP endpoints of one process."""

    def __init__(self, problems: Problems, exposition: Exposition) -> None:
        self._problems = problems
        self._exposition = exposition
        self._beat_at = time.monotonic()

    async def beat(self) -> None:
        """Note that the event loop runs, until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve until the end; gives the port. ``host``: empty = all addresses.

        Raises:
            OSError: it can't listen there.
        """
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, host or None, port).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

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

    async def _metrics(self, request: web.Request) -> web.Response:
        text = await self._exposition.text(request.headers.get("Accept", ""))
        return web.Response(body=text.body, headers={"Content-Type": text.content_type})
