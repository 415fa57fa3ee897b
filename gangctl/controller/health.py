"""Health for the kubelet, in plain text over plain HTTP: ``/healthz`` (restart it if not), ``/readyz`` (use it if so).

Beside them is ``/metrics``, for Prometheus.

Alive means that this process still does things in time; what others do (an API server that is away, a CRD that isn't
there) never makes it less alive, since a restart wouldn't help. A standby is ready like a leader.
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
"""Without a heartbeat for so long, this process does nothing in time any more."""
_SHUTDOWN_SECONDS: Final = 0.5

Problems = Callable[[], Iterable[str]]
"""Why this controller is of no use now, a sentence each; none = it is."""


class Health:
    """Answers of one process."""

    def __init__(self, problems: Problems, exposition: Exposition) -> None:
        self._problems = problems
        self._exposition = exposition
        self._beaten = time.monotonic()

    async def beat(self) -> None:
        """Show that the loop runs, until cancelled."""
        while True:
            self._beaten = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[int]:
        """Answer until the end; gives the port. ``host``: empty = all addresses.

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
        late = time.monotonic() - self._beaten
        if late > LATE_SECONDS:
            return web.Response(status=503, text=f"nothing has been done for {late:.0f} s\n")
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        problems = tuple(self._problems())
        if problems:
            return web.Response(status=503, text="".join(f"{one}\n" for one in problems))
        return web.Response(text="ok\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        text = await self._exposition.text(request.headers.get("Accept", ""))
        return web.Response(body=text.body, headers={"Content-Type": text.content_type})
