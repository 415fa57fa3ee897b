"""The supervisor's socket: wire messages both ways, one a line. The newest connection is the supervisor's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.common.log import log

if TYPE_CHECKING:
    from gangsidecar.agent.relay import Relay

SILENCE = 30.0
"""Seconds without a report of a supervisor after which the log says so."""
UNREAD_BYTES = 2 * wire.MAX_BYTES
"""Unread bytes after which the connection of a supervisor that doesn't read is closed."""


def open_to_all(socket: str) -> None:
    """Let every uid connect: the user's container may have another one than the sidecar.

    Its directory protects the socket: it is the pod's own volume, or a folder private to its user.

    Raises:
        OSError: its mode can't be changed.
    """
    Path(socket).chmod(0o666)


class Downlink:
    """Accepts supervisors on a unix socket and passes their messages to the relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._silence: asyncio.TimerHandle | None = None

    async def open(self, path: str) -> None:
        """Listen on ``path``; a socket that an earlier sidecar left there is replaced.

        Raises:
            OSError: it can't be listened on.
        """
        self._server = await asyncio.start_unix_server(self._serve, path, limit=wire.MAX_BYTES)
        open_to_all(path)
        self._expect_report("no supervisor has connected")

    async def close(self) -> None:
        """Stop listening and end the connection."""
        if self._silence is not None:
            self._silence.cancel()
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            writer = self._writer
            writer.transport.abort()  # What is unsent is void: the next sidecar starts with whole states.
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:
            log("warning", "a newer supervisor replaces the connected one")
            self._writer.transport.abort()
        self._writer = writer

        def send(line: str) -> bool:
            return _send(writer, line)

        self._expect_report("the supervisor has connected, but sent no report")
        self._relay.supervisor_connected(send)
        reason = await self._listen(reader, writer)
        self._relay.supervisor_disconnected(send)
        writer.close()
        if self._writer is writer:
            self._writer = None
            if not self._relay.closing:
                log("warning", "the supervisor's connection ended", reason=reason)
                self._expect_report("the supervisor has not come back")

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Relay what arrives until the connection ends; returns why it ended."""
        try:
            while line := await reader.readuntil(b"\n"):
                if writer.is_closing():
                    break
                text = line[:-1].decode()
                message = wire.decode(text)
                self._relay.from_supervisor(text, message)
                if isinstance(message, wire.Report) and self._silence is not None:
                    self._silence.cancel()
                    self._silence = None
        except asyncio.IncompleteReadError as error:
            return "closed in the middle of a line" if error.partial else "closed"
        except asyncio.LimitOverrunError:
            return f"a line over the limit of {wire.MAX_BYTES} bytes"
        except (wire.WireError, UnicodeDecodeError, OSError) as error:
            return str(error)
        return "replaced"

    def _expect_report(self, otherwise: str) -> None:
        if self._silence is not None:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(SILENCE, log, "warning", f"{otherwise} for {SILENCE:.0f} s")


def _send(writer: asyncio.StreamWriter, line: str) -> bool:
    if writer.is_closing():
        return False
    if writer.transport.get_write_buffer_size() > UNREAD_BYTES:
        log("warning", "the supervisor reads nothing any more; its connection is closed", unread_bytes=UNREAD_BYTES)
        writer.transport.abort()
        return False
    writer.write(line.encode() + b"\n")
    return not writer.is_closing()
