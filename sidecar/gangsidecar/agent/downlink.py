"""The supervisor's socket: lines of wire messages both ways. The newest connection is the supervisor's."""

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
"""Seconds without a word of a supervisor after which somebody should know."""
UNTAKEN = 2 * wire.MAX_BYTES
"""Bytes that a supervisor which doesn't read may leave here before its connection is ended."""


def open_to_all(socket: str) -> None:
    """Let anybody connect: the user's container may run under another uid than the sidecar.

    Who comes near the socket at all is a matter of its directory: a pod's own volume, or a folder private to its user.

    Raises:
        OSError: its mode can't be changed.
    """
    Path(socket).chmod(0o666)


class Downlink:
    """Accepts supervisors on a unix socket and gives what they say to the relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._silence: asyncio.TimerHandle | None = None

    async def open(self, path: str) -> None:
        """Listen on ``path``; a socket that a former sidecar has left there is replaced.

        Raises:
            OSError: it can't be listened on.
        """
        self._server = await asyncio.start_unix_server(self._serve, path, limit=wire.MAX_BYTES)
        open_to_all(path)
        self._expect_word("no supervisor has connected")

    async def close(self) -> None:
        """Stop listening and end the connection."""
        if self._silence is not None:
            self._silence.cancel()
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            writer = self._writer
            writer.transport.abort()  # What is still unsent is void: the next sidecar begins with whole states.
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:
            log("warning", "a newer supervisor takes the place of the connected one")
            self._writer.transport.abort()
        self._writer = writer

        def hand(line: str) -> bool:
            return _hand(writer, line)

        self._expect_word("the supervisor has connected, but sent no report")
        self._relay.supervisor_came(hand)
        reason = await self._listen(reader, writer)
        self._relay.supervisor_left(hand)
        writer.close()
        if self._writer is writer:
            self._writer = None
            if not self._relay.closing:
                log("warning", "the supervisor's connection ended", reason=reason)
                self._expect_word("the supervisor has not come back")

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Relay what comes until the connection ends; why it did."""
        try:
            while line := await reader.readuntil(b"\n"):
                if writer.is_closing():
                    break
                text = line[:-1].decode()
                message = wire.decode(text)
                self._relay.supervisor_said(text, message)
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

    def _expect_word(self, otherwise: str) -> None:
        if self._silence is not None:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(SILENCE, log, "warning", f"{otherwise} for {SILENCE:.0f} s")


def _hand(writer: asyncio.StreamWriter, line: str) -> bool:
    if writer.is_closing():
        return False
    if writer.transport.get_write_buffer_size() > UNTAKEN:
        log("warning", "the supervisor takes nothing any more: its connection is ended", unread_bytes=UNTAKEN)
        writer.transport.abort()
        return False
    writer.write(line.encode() + b"\n")
    return not writer.is_closing()
