"""Where sidecars arrive: HTTP, over TLS on a cluster. What strangers do here costs little and harms nobody inside.

The rule: whoever isn't known to be a member has ten seconds, from the first packet to the accepted upgrade, and only so
many may be on their way at once. When there are too many, the address that has the most of them gives way. Who has been
admitted is never touched for the others' sake.
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
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gangctl.controller.refusals import Refusals
from gangsidecar.wire import CONNECT_PATH

ADMISSION_SECONDS: Final = 10
"""From the first packet to the accepted upgrade, the TLS handshake included."""
MAX_PENDING: Final = 1024
"""So many connections may be on their way at once: about 60 KB each."""
TLS_BUFFER_BYTES: Final = 8 * 1024
"""What is read at once. asyncio's own 256 KiB for each connection would be a gigabyte for four thousand of them."""
BACKLOG: Final = 4096
"""How many may wait in the kernel: all members dial at once when a controller has restarted."""
ACCEPTED_AT_ONCE: Final = 32
"""How many of those are taken before anybody else gets his turn."""
_SHUTDOWN_SECONDS: Final = 2.0

Handle = Callable[[web.Request, Callable[[], None]], Awaitable[web.StreamResponse]]
"""Answers a request; what it is given besides is to be called when the peer has proved who he is."""


@asynccontextmanager
async def listen(
    host: str, port: int, handle: Handle, refusals: Refusals, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve :data:`~gangsidecar.wire.CONNECT_PATH`; gives the URL for sidecars. At the end all is closed.

    A certificate that is loaded into ``tls`` later is used from then on.

    Raises:
        OSError: it can't listen there.
    """
    pending = PendingConnections(refusals)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handle(request, functools.partial(pending.admit, request.protocol))

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

        # asyncio takes as many connections in one go as the backlog that it is told: the kernel is told another.
        acceptor = await loop.create_server(connection, sock=listener, backlog=ACCEPTED_AT_ONCE)
        listener.listen(BACKLOG)
        try:
            name, number = listener.getsockname()[:2]
            scheme = "ws" if tls is None else "wss"
            yield f"{scheme}://{f'[{name}]' if ':' in name else name}:{number}{CONNECT_PATH}"
        finally:
            acceptor.close()
            pending.close_all()
    finally:
        await runner.cleanup()


class PendingConnections:
    """Who has come and isn't admitted yet."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._waiting: dict[object, _Pending] = {}
        self._from: dict[str, dict[object, _Pending]] = {}
        """The same by address, oldest first."""

    def enter(self, who: object, transport: asyncio.Transport) -> bool:
        """Somebody has come; whether there is room."""
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if len(self._waiting) >= MAX_PENDING:
            worst = max(self._from, key=lambda one: len(self._from[one]))
            self._refusals.add(
                "TooMany", worst, f"more than {MAX_PENDING} connections at once haven't said who they are"
            )
            if len(self._from[worst]) <= len(self._from.get(address, ())) + 1:
                return False
            self._throw_out(next(reversed(self._from[worst])))
        timer = asyncio.get_running_loop().call_later(ADMISSION_SECONDS, self._too_late, who)
        self._waiting[who] = self._from.setdefault(address, {})[who] = _Pending(address, transport, timer)
        return True

    def admit(self, who: object) -> None:
        """He has proved who he is: no limit of this place is for him any more. The same when he has gone."""
        stranger = self._waiting.pop(who, None)
        if stranger is None:
            return
        stranger.timer.cancel()
        others = self._from[stranger.address]
        del others[who]
        if not others:
            del self._from[stranger.address]

    def close_all(self) -> None:
        """Close: nobody may stay."""
        for who in tuple(self._waiting):
            self._throw_out(who)

    def _too_late(self, who: object) -> None:
        seconds = f"{ADMISSION_SECONDS} s"
        self._refusals.add("TooSlow", self._waiting[who].address, f"it didn't say within {seconds} who it is")
        self._throw_out(who)

    def _throw_out(self, who: object) -> None:
        transport = self._waiting[who].transport
        self.admit(who)
        transport.abort()


class _Pending:
    """A connection before its peer has proved who he is."""

    __slots__ = ("address", "timer", "transport")

    def __init__(self, address: str, transport: asyncio.Transport, timer: asyncio.TimerHandle) -> None:
        self.address = address
        self.transport = transport
        self.timer = timer


class _TlsProtocol(SSLProtocol):
    """TLS for one connection, as asyncio does it for ``create_server(ssl=...)``, but with a small buffer and a porter.

    It is derived from, and not told, because asyncio has no way to be told. The class attribute could be set for all
    of the process; but then the API server's long answers would be read in small pieces as well.
    """

    max_size = TLS_BUFFER_BYTES

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inner: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        pending: PendingConnections,
    ) -> None:
        nobody_waits = loop.create_future()
        nobody_waits.cancel()
        super().__init__(loop, inner, tls, nobody_waits, server_side=True, ssl_handshake_timeout=ADMISSION_SECONDS)
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
        """It has ended, whoever ended it."""
        self._pending.admit(self._inner)
        super().connection_lost(exc)


def _socket(host: str, port: int) -> socket.socket:
    """All addresses of IPv6 are those of IPv4 as well, where the machine can do that."""
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - it takes pod-bound tokens alone
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    dual = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((str(address[0]), int(address[1])), family=family, dualstack_ipv6=dual)


def _quiet(refusals: Refusals) -> logging.Logger:
    """The errors of aiohttp, without those that are only what a stranger sent: they are counted."""

    def keep(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, HttpProcessingError):
            refusals.add("NoRequest", "a stranger", f"it sent what is no HTTP request: {error.message!r:.100}")
            return False
        return True

    logger = logging.getLogger(f"{__name__}.http")
    for one in tuple(logger.filters):  # of an earlier listener
        logger.removeFilter(one)
    logger.addFilter(keep)
    return logger
