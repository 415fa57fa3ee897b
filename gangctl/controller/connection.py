"""One sidecar's connection: what waits to be sent to it, and when its supervisor last spoke.

Only the newest directive waits, so a slow receiver costs one message of memory and nobody else's time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.cluster.port import MemberIdentity
from gangsidecar import wire

GOODBYE_SECONDS: Final = 1.0
"""For the closing handshake; who doesn't take part is cut off."""
SCAN_AGAIN_SECONDS: Final = 1.0
"""The same scan is not asked sooner again: plans ask for as long as they have no answer."""
CUT_OFF: Final = 1006
"""The code that is never sent: the connection has ended without a word."""
_MAX_CLOSE_REASON: Final = 120
"""Bytes: a close frame takes 123."""


@dataclass(frozen=True, slots=True)
class CloseFrame:
    """Why a connection is ended from this side."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class SentDirective:
    """What a directive was computed from, and what came out."""

    job: GangJob
    session: str
    attempt: int
    phase: wire.Phase
    directive: wire.Directive | None

    def is_for(self, job: GangJob, report: wire.Report) -> bool:
        """Whether the same would come out again."""
        return self.job is job and (self.session, self.attempt, self.phase) == (
            report.session,
            report.attempt,
            report.phase,
        )


class Connection:
    """An authenticated sidecar."""

    def __init__(
        self,
        identity: MemberIdentity,
        socket: web.WebSocketResponse,
        transport: asyncio.BaseTransport | None,
        now: float,
    ) -> None:
        """``now``, as all times here: seconds on the monotonic clock; ``transport``: None if it is broken already."""
        self.identity = identity
        self.socket = socket
        self._transport = transport
        self.last_report_at = now
        self.has_reported = False
        """Its supervisor has sent a report on this connection."""
        self.sent: SentDirective | None = None
        self._ending: asyncio.Future[CloseFrame] = asyncio.get_running_loop().create_future()
        self._waiting: dict[str, str] = {}
        """Kind of message -> the newest one."""
        self._something = asyncio.Event()
        self._asked: tuple[wire.Scan, float] | None = None

    def send(self, message: wire.Directive | wire.Ping) -> None:
        """Send the message soon; it takes the place of one of its kind that is still waiting.

        Raises:
            WireError: it is too large.
        """
        self._waiting[type(message).__name__] = wire.encode(message)
        self._something.set()

    def send_scan(self, scan: wire.Scan, now: float) -> None:
        """Send the scan soon, unless it was sent a moment ago.

        Raises:
            WireError: it is too large.
        """
        if self._asked is not None and self._asked[0] == scan and now < self._asked[1] + SCAN_AGAIN_SECONDS:
            return
        self._asked = scan, now
        self._waiting["Scan"] = wire.encode(scan)
        self._something.set()

    def end(self, frame: CloseFrame) -> None:
        """End it soon; the first reason stays."""
        if not self._ending.done():
            self._ending.set_result(frame)

    async def ended(self) -> CloseFrame:
        """Wait until somebody calls :meth:`end`."""
        return await asyncio.shield(self._ending)

    async def run_sender(self) -> None:
        """Send what waits until the connection breaks.

        Raises:
            ConnectionError: it has broken.
        """
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                # One at a time: while a slow receiver takes this one, the others are still replaced by newer ones.
                _, text = self._waiting.popitem()
                await self.socket.send_str(text)

    def cut(self) -> None:
        """Cut it off: nothing goes out any more, not even what waits in a buffer."""
        self._waiting.clear()
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
        self.end(CloseFrame(CUT_OFF, "cut off"))

    async def close(self, frame: CloseFrame) -> None:
        """Say goodbye, but don't wait long for an answer."""
        if frame.code == CUT_OFF:
            return
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                reason = frame.reason.encode()[:_MAX_CLOSE_REASON]
                await self.socket.close(code=frame.code, message=reason, drain=False)
        except (TimeoutError, ConnectionError):
            if isinstance(self._transport, asyncio.WriteTransport):
                self._transport.abort()
