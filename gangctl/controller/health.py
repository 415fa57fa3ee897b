"""Probes for the kubelet, ``/healthz`` and ``/readyz``, over plain HTTP; this port answers nothing else.

The rule: ``/healthz`` fails only if this process does not do its work in time. It must not fail because of others (the
API server is away, the CRD is missing), since a restart would not help. A standby is ready like a leader. Clients that
are slow or many must not keep the kubelet's probes from being answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final

from aiohttp import web

from gangctl.controller.short_connections import serve_short

BEAT_SECONDS: Final = 1.0
LATE_SECONDS: Final = 15.0
"""After this long without a heartbeat the event loop is stuck."""
MAX_CONNECTIONS: Final = 32

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
        """Serve until the end; gives the port. ``host``: empty = all addresses.

        Raises:
            OSError: it can't listen there.
        """
        routes = {"/healthz": self._healthz, "/readyz": self._readyz}
        return serve_short("health", routes, host, port, limit=MAX_CONNECTIONS)

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
