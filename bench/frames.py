"""The few parts of HTTP and WebSocket that a simulated sidecar needs, without a copy or a task for each frame. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from gangsidecar import wire

TEXT: Final = 1
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10
_SHORT: Final = 125
_TWO_BYTES: Final = 126


def upgrade(path: str, host: str, token: str) -> bytes:
    """The request that opens a WebSocket."""
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {token}",
        f"{wire.REVISION_HEADER}: {wire.REVISION}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def frame(kind: int, payload: bytes) -> bytes:
    """A frame from a client: masked, as it must be, with zeros."""
    size = len(payload)
    if size <= _SHORT:
        return struct.pack("!BBI", 0x80 | kind, 0x80 | size, 0) + payload
    return struct.pack("!BBHI", 0x80 | kind, 0x80 | _TWO_BYTES, size, 0) + payload


class Frames:
    """What has arrived from a server, as frames."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, some: bytes) -> None:
        """These bytes have arrived."""
        self._bytes += some

    def taken(self) -> Iterator[tuple[int, bytes]]:
        """Kind and payload of each frame that is complete, which are forgotten."""
        while len(self._bytes) > 1:
            size, at = self._bytes[1] & 0x7F, 2
            if size > _SHORT:
                at = 4 if size == _TWO_BYTES else 10
                if len(self._bytes) < at:
                    return
                size = int.from_bytes(self._bytes[2:at], "big")
            if len(self._bytes) < at + size:
                return
            kind, payload = self._bytes[0] & 0x0F, self._bytes[at : at + size]
            self._bytes = self._bytes[at + size :]
            yield kind, payload
