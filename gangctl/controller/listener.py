"""Listen for clients that aren't known yet, so that they cost little, however many there are and whatever they do.

The rule: a connection has ten seconds from its first packet until it is admitted or has ended, the TLS handshake
included, and the number of such connections is bounded. Above the bound, the address with the most of them loses one.
Unauthenticated clients must not affect a connection that is admitted.
"""

import asyncio
import functools
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gangctl.controller.gate import ConnectionRefusal, RefusalLog
from gangsidecar.wire import CONNECT_PATH

MAX_PENDING: Final = 1024
"""The largest number of sidecars' connections that are not authenticated yet: about 60 KB each."""
ADMISSION_SECONDS: Final = 10
"""From the first packet to the admission, or to the end of the connection."""
TLS_BUFFER_BYTES: Final = 8 * 1024
"""The read buffer of a connection. asyncio's own 256 KiB would be a gigabyte for four thousand connections."""
BACKLOG: Final = 4096
"""Connections that may wait in the kernel: all members dial at once after a controller has restarted."""
ACCEPTED_AT_ONCE: Final = 8
"""How many of those the event loop accepts in one go, before it does anything else. A handshake takes milliseconds:
what is begun must be finished first, or, with a thousand begun at once, none would be finished in time."""
Handle = Callable[[web.Request, Callable[[], None]], Awaitable[web.StreamResponse]]
"""Answers a request, and calls its second argument once the client is authenticated."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ESTABLISHED: Final = 1
"""The first byte of TCP_INFO: neither side has closed."""


class PendingConnections:
    """The connections whose clients are not admitted yet. A connection is known by its protocol object."""

    def __init__(self, refusals: RefusalLog, limit: int) -> None:
        """``limit``: the largest number of such connections."""
        self.refusals = refusals
        self._limit = limit
        self._pending: dict[object, _Pending] = {}
        self._by_address: dict[str, dict[object, _Pending]] = {}
        """The same by address, oldest first."""

    def enter(self, connection: object, transport: asyncio.Transport) -> bool:
        """Add a new connection, and return whether there was room for it."""
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if _has_hung_up(transport):
            text = "it hung up before its turn came: more clients dial than can be served"
            self.refusals.add(ConnectionRefusal.TOO_SLOW, address, text)
            return False
        if len(self._pending) >= self._limit:
            worst = max(self._by_address, key=lambda one: len(self._by_address[one]))
            text = f"more than {self._limit} connections at once are not admitted yet"
            self.refusals.add(ConnectionRefusal.TOO_MANY, worst, text)
            if len(self._by_address[worst]) <= len(self._by_address.get(address, ())) + 1:
                return False
            self._abort(next(reversed(self._by_address[worst])))
        timer = asyncio.get_running_loop().call_later(ADMISSION_SECONDS, self._time_out, connection)
        entry = _Pending(address, transport, timer)
        self._pending[connection] = self._by_address.setdefault(address, {})[connection] = entry
        return True

    def remove(self, connection: object) -> None:
        """The client is admitted, or the connection has ended: no limit applies to it any more."""
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
        text = f"it was not admitted within {ADMISSION_SECONDS} s"
        self.refusals.add(ConnectionRefusal.TOO_SLOW, self._pending[connection].address, text)
        self._abort(connection)

    def _abort(self, connection: object) -> None:
        transport = self._pending[connection].transport
        self.remove(connection)
        transport.abort()


@asynccontextmanager
async def listen(
    host: str, port: int, routes: Mapping[str, Handle], refusals: RefusalLog, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve these paths for clients that connect for long; gives the URL for sidecars. At the end it closes all."""
    pending = PendingConnections(refusals, MAX_PENDING)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await routes[request.path](request, functools.partial(pending.remove, request.protocol))

    application = web.Application()
    for path in routes:
        application.router.add_get(path, answer)
    async with serve_app("hub", application, host, port, pending, tls, shutdown_seconds=2.0) as (name, number):
        scheme = "ws" if tls is None else "wss"
        yield f"{scheme}://{f'[{name}]' if ':' in name else name}:{number}{CONNECT_PATH}"


@asynccontextmanager
async def serve_short(
    name: str, routes: Mapping[str, Handler], host: str, port: int, *, limit: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer GET requests of clients that send one and go, such as the kubelet and Prometheus; gives the port.

    A connection carries one request. A client that sends slowly, reads slowly or never ends must not keep others from
    being answered.

    Args:
        name: of the server, for the log.
        routes: path and what answers it.
        host: empty = all addresses.
        port: 0 = a free one.
        limit: the largest number of connections.
        tls: None = plain HTTP.
    """
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, answer)
    application.on_response_prepare.append(_close)
    async with serve_app(name, application, host, port, PendingConnections(RefusalLog(), limit), tls) as (_, number):
        yield number


@asynccontextmanager
async def serve_app(
    name: str,
    application: web.Application,
    host: str,
    port: int,
    pending: PendingConnections,
    tls: ssl.SSLContext | None,
    *,
    shutdown_seconds: float = 0.5,
    cancels_handlers: bool = False,
) -> AsyncIterator[tuple[str, int]]:
    """Serve an application until the end; gives address and port.

    Args:
        name: of the server, for the log.
        application: what answers requests.
        host: empty = all addresses.
        port: 0 = a free one.
        pending: bounds the connections that aren't admitted.
        tls: None = plain HTTP. A certificate that is loaded into it later is used for new connections.
        shutdown_seconds: the time for requests that are under way at the end.
        cancels_handlers: whether a handler ends when its client has left.

    Raises:
        OSError: it can't listen there.
    """
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_http_logger(name, pending.refusals),
        shutdown_timeout=shutdown_seconds,
        keepalive_timeout=ADMISSION_SECONDS,
        handler_cancellation=cancels_handlers,
    )
    await runner.setup()
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None

    def connection() -> asyncio.BaseProtocol:
        protocol = server()
        return _Bounded(protocol, pending) if tls is None else _BoundedTls(loop, protocol, tls, pending)

    try:
        listener = _listening(host, port)
        # asyncio accepts as many connections in one go as its backlog, so the kernel gets a backlog of its own.
        acceptor = await loop.create_server(connection, sock=listener, backlog=ACCEPTED_AT_ONCE)
        listener.listen(BACKLOG)
        try:
            yield listener.getsockname()[:2]
        finally:
            # What is accepted has its turn first, or asyncio loses it (github.com/python/cpython#109564).
            loop.remove_reader(listener)
            try:
                await asyncio.sleep(0)
            finally:
                acceptor.close()
                pending.abort_all()
    finally:
        await runner.cleanup()


async def _close(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Connection"] = "close"  # aiohttp has decided on the header before this.
    response.force_close()


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens. ``host``: empty = all addresses, of IPv4 too where the machine supports both."""
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - each server knows its clients
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    dual = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((str(address[0]), int(address[1])), family=family, dualstack_ipv6=dual)


def _http_logger(name: str, refusals: RefusalLog) -> logging.Logger:
    """A logger for aiohttp without errors that are only a client's: those are counted."""

    def keep(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, HttpProcessingError):
            # The error's message may quote the request, and with it a part of a token.
            refusals.add(ConnectionRefusal.NO_REQUEST, "a client", f"it sent no HTTP request: {type(error).__name__}")
            return False
        if isinstance(error, ConnectionResetError):
            refusals.add(ConnectionRefusal.TOO_SLOW, "a client", "it hung up before it was answered")
            return False
        return True

    logger = logging.getLogger(f"{__name__}.{name}")
    for one in tuple(logger.filters):  # Of an earlier listener.
        logger.removeFilter(one)
    logger.addFilter(keep)
    return logger


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Return whether the client has gone while its connection waited in the kernel.

    A handshake with it would be work for nothing, which makes the next ones wait until they hang up too.
    """
    found = transport.get_extra_info("socket")
    return found is not None and found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED


@dataclass(frozen=True, slots=True)
class _Pending:
    address: str
    transport: asyncio.Transport
    timer: asyncio.TimerHandle


class _Bounded(asyncio.Protocol):
    """Plain HTTP for one connection, with the bound."""

    def __init__(self, inner: asyncio.BaseProtocol, pending: PendingConnections) -> None:
        assert isinstance(inner, asyncio.Protocol)
        self._inner = inner
        self._pending = pending
        self._entered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        assert isinstance(transport, asyncio.Transport)
        self._entered = self._pending.enter(self._inner, transport)
        if self._entered:
            self._inner.connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, which has ended."""
        self._pending.remove(self._inner)
        if self._entered:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self._entered:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received() if self._entered else None

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()


class _BoundedTls(SSLProtocol):
    """TLS for one connection, as in ``create_server(ssl=...)``, but with a small buffer and the bound.

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
