"""The server that sidecars connect to: HTTP, over TLS on a cluster. Unauthenticated clients cost little here.

The rule: a client has ten seconds from its first packet to the accepted upgrade, and the number of connections that are
not authenticated yet is bounded. Above the bound, the address with the most of them loses one. Unauthenticated clients
must not affect a connection that is admitted.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gangctl.controller.refusals import ConnectionRefusal, RefusalLog
from gangsidecar.wire import CONNECT_PATH

ADMISSION_SECONDS: Final = 10
"""From the first packet to the accepted upgrade, the TLS handshake included."""
MAX_PENDING: Final = 1024
"""The largest number of connections that are not authenticated yet: about 60 KB each."""
TLS_BUFFER_BYTES: Final = 8 * 1024
"""The read buffer of a connection. asyncio's own 256 KiB would be a gigabyte for four thousand connections."""
BACKLOG: Final = 4096
"""Connections that may wait in the kernel: all members dial at once after a controller has restarted."""
ACCEPTED_AT_ONCE: Final = 32
"""How many of those the event loop accepts in one go, before it does anything else."""
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
    pending = PendingConnections(refusals)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handle(request, functools.partial(pending.remove, request.protocol))

    application = web.Application()
    application.router.add_get(CONNECT_PATH, answer)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_quiet(refusals),
        shutdown_timeout=_SHUTDOWN_SECONDS,
        keepalive_timeout=ADMISSION_SECONDS,
    )
    await runner.setup()
    try:
        loop = asyncio.get_running_loop()
        server = runner.server
        assert server is not None
        listener = _socket(host, port)

        def connection() -> asyncio.BaseProtocol:
            protocol = server()
            return protocol if tls is None else _TlsProtocol(loop, protocol, tls, pending)

        # asyncio accepts as many connections in one go as its backlog, so the kernel gets a backlog of its own.
        acceptor = await loop.create_server(connection, sock=listener, backlog=ACCEPTED_AT_ONCE)
        listener.listen(BACKLOG)
        try:
            name, number = listener.getsockname()[:2]
            scheme = "ws" if tls is None else "wss"
            yield f"{scheme}://{f'[{name}]' if ':' in name else name}:{number}{CONNECT_PATH}"
        finally:
            acceptor.close()
            pending.abort_all()
    finally:
        await runner.cleanup()


class PendingConnections:
    """The connections whose clients are not authenticated yet. A connection is known by its protocol object."""

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals
        self._pending: dict[object, _Pending] = {}
        self._by_address: dict[str, dict[object, _Pending]] = {}
        """The same by address, oldest first."""

    def enter(self, connection: object, transport: asyncio.Transport) -> bool:
        """Add a new connection, and return whether there was room for it."""
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if len(self._pending) >= MAX_PENDING:
            worst = max(self._by_address, key=lambda one: len(self._by_address[one]))
            text = f"more than {MAX_PENDING} connections at once are not authenticated"
            self._refusals.add(ConnectionRefusal.TOO_MANY, worst, text)
            if len(self._by_address[worst]) <= len(self._by_address.get(address, ())) + 1:
                return False
            self._abort(next(reversed(self._by_address[worst])))
        timer = asyncio.get_running_loop().call_later(ADMISSION_SECONDS, self._time_out, connection)
        entry = _Pending(address, transport, timer)
        self._pending[connection] = self._by_address.setdefault(address, {})[connection] = entry
        return True

    def remove(self, connection: object) -> None:
        """The client is authenticated, or the connection has ended: no limit applies to it any more."""
        entry = self._pending.pop(connection, None)
        if entry is None:
            return
        entry.timer.cancel()
        others = self._by_address[entry.address]
        del others[connection]
        if not others:
            del self._by_address[entry.address]

    def abort_all(self) -> None:
        """Abort every pending connection."""
        for connection in tuple(self._pending):
            self._abort(connection)

    def _time_out(self, connection: object) -> None:
        text = f"it was not authenticated within {ADMISSION_SECONDS} s"
        self._refusals.add(ConnectionRefusal.TOO_SLOW, self._pending[connection].address, text)
        self._abort(connection)

    def _abort(self, connection: object) -> None:
        transport = self._pending[connection].transport
        self.remove(connection)
        transport.abort()


@dataclass(frozen=True, slots=True)
class _Pending:
    address: str
    transport: asyncio.Transport
    timer: asyncio.TimerHandle


class _TlsProtocol(SSLProtocol):
    """TLS for one connection, as in ``create_server(ssl=...)``, but with a small buffer and a bound on new connections.

    It is a subclass because asyncio has no setting for the buffer. Setting the class attribute for the whole process
    would also make the client of the API server read long answers in small pieces.
    """

    max_size = TLS_BUFFER_BYTES

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inner: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        pending: PendingConnections,
    ) -> None:
        not_awaited = loop.create_future()
        not_awaited.cancel()
        super().__init__(loop, inner, tls, not_awaited, server_side=True, ssl_handshake_timeout=ADMISSION_SECONDS)
        self._inner = inner
        self._pending = pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, if there is room."""
        assert isinstance(transport, asyncio.Transport)
        if self._pending.enter(self._inner, transport):
            super().connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection, which has ended."""
        self._pending.remove(self._inner)
        super().connection_lost(exc)


def _socket(host: str, port: int) -> socket.socket:
    """A listener. All addresses of IPv6 include those of IPv4 where the machine supports that."""
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - only pod-bound tokens are accepted
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    dual = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((str(address[0]), int(address[1])), family=family, dualstack_ipv6=dual)


def _quiet(refusals: RefusalLog) -> logging.Logger:
    """A logger for aiohttp without errors that are only a client's bad request: those are counted."""

    def keep(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, HttpProcessingError):
            refusals.add(ConnectionRefusal.NO_REQUEST, "a client", f"it sent no HTTP request: {error.message!r:.100}")
            return False
        return True

    logger = logging.getLogger(f"{__name__}.http")
    for one in tuple(logger.filters):  # Of an earlier listener.
        logger.removeFilter(one)
    logger.addFilter(keep)
    return logger
