"""A proxy in front of the real API server, for faults that a real one does not have on demand.

Controllers under test reach the API server through it. It passes on the token of their service account, and by default
it changes nothing. A :class:`Fault` may answer instead of the API server, or act before a request or its answer is
passed on. The proxy itself may cut every watch, or give no answer at all.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

_HOP_BY_HOP: Final = frozenset(
    {"connection", "content-length", "content-encoding", "host", "keep-alive", "transfer-encoding", "accept-encoding"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: str
    body: bytes

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a stream."""
        return "watch=" in self.query

    @property
    def status_write(self) -> dict[str, Any] | None:
        """The status that it stores, if it writes the status of a GangJob."""
        if self.method not in {"PUT", "PATCH"} or not self.path.endswith("/status") or "/gangjobs/" not in self.path:
            return None
        document = json.loads(self.body)
        if isinstance(document, list):
            return next((step["value"] for step in document if step.get("path") == "/status"), None)
        status = document.get("status")
        return status if isinstance(status, dict) else None


Before = Callable[[Call], Awaitable[web.Response | None]]
"""Called before a request is passed on; what it returns is the answer, instead of the API server's."""
After = Callable[[Call, int], Awaitable[None]]
"""Called with the API server's status code before the answer is passed on. Not called for watches."""


async def _pass(_call: Call) -> web.Response | None:
    return None


async def _give(_call: Call, _code: int) -> None:
    return None


@dataclass
class Fault:
    """What the proxy does to requests while the fault is active."""

    before: Before = _pass
    after: After = _give


@dataclass
class ApiProxy:
    """The proxy; a kubeconfig has ``url`` as its server."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """Every request since the last :meth:`forget`."""
    away: bool = False
    """While this is true, each request ends without an answer, watches too."""
    _streams: set[web.StreamResponse] = field(default_factory=set)

    def forget(self) -> None:
        """Forget the requests so far."""
        self.calls.clear()

    def cut_watches(self) -> int:
        """Break every watch as a lost network does; the number of watches."""
        streams = list(self._streams)
        for stream in streams:
            _abort(stream)
        return len(streams)

    def leave(self) -> None:
        """Stop answering."""
        self.away = True
        self.cut_watches()

    def come_back(self) -> None:
        """Answer again."""
        self.away = False


def _abort(stream: web.StreamResponse) -> None:
    request = stream._req  # noqa: SLF001 - aiohttp gives no other way to the transport of a response
    transport = request.transport if request is not None else None
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def refusal(code: int, reason: str, message: str) -> web.Response:
    """An error as the API server returns it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return web.json_response({**status, "code": code}, status=code)


@asynccontextmanager
async def proxy(server: str, ca_file: str, host: str = "127.0.0.1") -> AsyncIterator[ApiProxy]:
    """Listen on a free port of ``host``, in front of ``server``."""
    context = ssl.create_default_context(cafile=ca_file)
    found = ApiProxy("")
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(server, connector=connector, auto_decompress=False) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            call = Call(request.method, request.path, request.query_string, await request.read())
            found.calls.append(call)
            if found.away:
                assert request.transport is not None
                request.transport.abort()
                return web.Response(status=503)
            for fault in tuple(found.faults):
                answer = await fault.before(call)
                if answer is not None:
                    return answer
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
            headers["Accept-Encoding"] = "identity"  # else the API server compresses long lists
            timeout = aiohttp.ClientTimeout(total=None)
            async with session.request(
                call.method, request.rel_url, data=call.body or None, headers=headers, timeout=timeout
            ) as upstream:
                if call.is_watch:
                    return await _relay(request, upstream)
                body = await upstream.read()
            for fault in tuple(found.faults):
                await fault.after(call, upstream.status)
            kept = {name: value for name, value in upstream.headers.items() if name.lower() not in _HOP_BY_HOP}
            return web.Response(status=upstream.status, headers=kept, body=body)

        async def _relay(request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
            stream = web.StreamResponse(status=upstream.status, headers={"Content-Type": "application/json"})
            await stream.prepare(request)
            found._streams.add(stream)  # noqa: SLF001 - its own
            try:
                with suppress(aiohttp.ClientConnectionResetError):  # the client has ended, or the watch was cut
                    async for chunk in upstream.content.iter_any():
                        await stream.write(chunk)
            finally:
                found._streams.discard(stream)  # noqa: SLF001 - its own
            return stream

        application = web.Application(client_max_size=16 * 2**20)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, 0).start()
            name, port = runner.addresses[0][:2]
            found.url = f"http://{name}:{port}"
            yield found
        finally:
            found.cut_watches()
            await runner.cleanup()
