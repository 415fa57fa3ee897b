"""A WebSocket to the controller: wsproto speaks the protocol, asyncio's streams carry it.

Nothing is compressed, and nothing queues here: sending waits while the other side reads slowly. A message that is over
the limit must not be kept, however it is split into frames.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

    from wsproto.events import Event

GOODBYE = 1.0
"""Seconds for the closing handshake."""
NEXT_ADDRESS = 0.25
"""Seconds that one address of a host has before the next one is dialled beside it (RFC 8305)."""
_CHUNK = 1 << 14
SSLProtocol.max_size = _CHUNK  # asyncio has no setting for the buffer of a connection: 256 KiB, and here is only one.
_REFUSAL = 400
"""Bytes of the body of a refusal that are read: it gives the reason."""


class RefusalError(Exception):
    """The other side answers, but doesn't upgrade."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class NoMessageError(Exception):
    """The other side sent something that isn't a text message within the limit; ``code`` closes the connection."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Closed(NamedTuple):
    """How the other side closed the connection."""

    code: int
    reason: str = ""


async def dial(url: str, headers: Mapping[str, str], trust: ssl.SSLContext | None, name: str, limit: int) -> WebSocket:
    """Open a WebSocket.

    Args:
        url: ``ws://`` or ``wss://``.
        headers: those of the request, beside the protocol's own.
        trust: who may sign the certificate; None: the system's authorities.
        name: the one in the certificate.
        limit: bytes of a message that is received.

    Raises:
        OSError: nothing that we trust answers.
        RefusalError: the answer is a refusal.
        ValueError: the request can't be made, or the answer makes no sense.
    """
    parts = urlsplit(url)
    is_secure, host = parts.scheme == "wss", parts.hostname
    if not host or parts.scheme not in {"ws", "wss"}:
        raise ValueError(f"{url!r:.120} isn't the URL of a WebSocket")
    port = parts.port or (443 if is_secure else 80)
    tls, server = (trust or True, name) if is_secure else (None, None)
    try:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=server, happy_eyeballs_delay=NEXT_ADDRESS
        )
    except OSError as error:
        raise OSError(f"Cannot connect to host {host}:{port}: {error}") from None
    socket = WebSocket(reader, writer, limit)
    target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    request = Request(parts.netloc.rpartition("@")[2], target, extra_headers=_as_bytes(headers))
    try:
        socket.headers = await socket.upgrade(request)
    except RemoteProtocolError as error:
        writer.transport.abort()
        raise ValueError(f"the answer makes no sense: {error}") from None
    except BaseException:
        writer.transport.abort()
        raise
    return socket


class WebSocket:
    """One connection. One task may receive while another one sends; then one closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int) -> None:
        self.headers: Mapping[str, str] = {}
        """Those of the answer, by their names in lower case."""
        self._reader = reader
        self._writer = writer
        self._limit = limit
        self._protocol = WSConnection(ConnectionType.CLIENT)

    async def upgrade(self, request: Request) -> dict[str, str]:
        """Ask for the upgrade; return the headers of the answer. It raises what :func:`dial` raises."""
        try:
            await self._write(request)
        except h11.LocalProtocolError:  # Its text would repeat the token.
            raise ValueError("the token or the URL has a character that HTTP doesn't allow") from None
        refusal: RejectConnection | None = None
        text, is_whole = b"", False
        while not is_whole and len(text) < _REFUSAL and (data := await self._reader.read(_CHUNK)):
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                match event:
                    case AcceptConnection():
                        return _as_text(event.extra_headers)
                    case RejectConnection():
                        refusal, is_whole = event, not event.has_body
                    case RejectData():
                        text, is_whole = text + event.data, event.body_finished
        if refusal is None:
            raise ConnectionResetError("the connection was closed without an answer")
        reason = text[:_REFUSAL].decode(errors="replace").strip()
        raise RefusalError(refusal.status_code, _as_text(refusal.headers), reason)

    async def send(self, text: str) -> None:
        """Send a message, and wait until the other side has taken most of what was sent. OSError: it is closed."""
        try:
            await self._write(Message(text))
        except LocalProtocolError as error:
            raise ConnectionResetError(str(error)) from None

    async def receive(self) -> str | Closed | None:
        """Return the next message, or how the other side closed the connection; None: it has shown that it is there.

        Raises:
            NoMessageError: it sent neither.
            OSError: the connection broke.
        """
        text, size = "", 0
        while True:
            for event in self._protocol.events():
                match event:
                    case TextMessage():
                        text, size = text + event.data, size + len(event.data.encode())
                        if size > self._limit:
                            too_big = f"a message over the limit of {self._limit} bytes"
                            raise NoMessageError(too_big, CloseReason.MESSAGE_TOO_BIG)
                        if event.message_finished:
                            return text
                    case BytesMessage():
                        raise NoMessageError(f"binary data: {event.data!r:.80}", CloseReason.POLICY_VIOLATION)
                    case Ping():
                        await self._write(event.response())
                        if not size:  # Not between two frames of a message.
                            return None
                    case CloseConnection() if self._protocol.state is ConnectionState.OPEN:
                        raise NoMessageError(event.reason or "a malformed frame", event.code)
                    case CloseConnection():
                        await self._write(event.response())
                        return Closed(event.code, event.reason or "")
            data = await self._reader.read(_CHUNK)
            if not data:
                return Closed(CloseReason.ABNORMAL_CLOSURE)
            self._protocol.receive_data(data)

    async def close(self, code: int, reason: str) -> None:
        """Say why, and wait for the end of the closing handshake, for :data:`GOODBYE` at most."""
        with suppress(OSError):  # A TimeoutError is one.
            async with asyncio.timeout(GOODBYE):
                if self._protocol.state is ConnectionState.OPEN:
                    await self._write(CloseConnection(code, reason))
                while self._protocol.state is ConnectionState.LOCAL_CLOSING:
                    data = await self._reader.read(_CHUNK)
                    if not data:
                        break
                    self._protocol.receive_data(data)
                    for _ in self._protocol.events():
                        pass
                self._writer.close()
                await self._writer.wait_closed()
        self._writer.transport.abort()

    async def _write(self, event: Event) -> None:
        self._writer.write(self._protocol.send(event))
        await self._writer.drain()


def _as_bytes(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _as_text(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
