"""Serve the WebSockets of sidecars, for the hub or for a relay: admit, take what they send in its turn, send, close.

The rule: whatever a connection sends, at worst that one connection is closed, and the log gives the reason. What a pod
sends is paid from its share (``intake.py``).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import aiohttp
from aiohttp import web

from gangctl.controller.connection import CloseFrame, Connection, SocketOutlet, until_first
from gangctl.controller.gate import CONTROL, ENDED, ConnectionRefusal, Gate, RefusalLog
from gangctl.controller.housekeeping import Sockets
from gangctl.controller.intake import FLOODS, Inbox, Intake
from gangsidecar import wire

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 20.0
"""A peer that does not answer WebSocket pings is gone, whatever TCP reports."""


class Sessions(Protocol):
    """What becomes of the connections."""

    def opened(self, connection: Connection) -> None:
        """A sidecar has connected."""

    def take(self, connection: Connection, frame: aiohttp.WSMessage) -> CloseFrame | None:
        """Take one message; returns why the connection is to be closed, if the message must not be sent."""

    def ended(self, connection: Connection) -> None:
        """The connection has ended."""

    def set_log_context(self, connection: Connection) -> None:
        """From here on, this task's log entries are about the connection's gang."""


class SidecarServer:
    """The WebSockets of all sidecars that connect to this process."""

    def __init__(self, gate: Gate, refusals: RefusalLog, intake: Intake, sockets: Sockets, sessions: Sessions) -> None:
        self._gate = gate
        self._sockets = sockets
        self._refusals = refusals
        self._intake = intake
        self._sessions = sessions

    async def handle(self, request: web.Request, admit: Callable[[], None]) -> web.StreamResponse:
        """Answer a sidecar's request for a WebSocket, and serve it until it ends; call ``admit`` once it is opened."""
        identity = await self._gate.check(request)
        if isinstance(identity, web.Response):
            return identity
        socket = web.WebSocketResponse(
            max_msg_size=wire.MAX_BYTES + 1,  # aiohttp refuses a message of exactly its limit.
            heartbeat=HEARTBEAT_SECONDS,
            compress=False,
            autoping=False,
        )
        socket.headers[wire.REVISION_HEADER] = str(wire.REVISION)
        writer = await socket.prepare(request)
        assert writer is not None
        admit()
        revision = wire.revision_of(request.headers.get(wire.REVISION_HEADER, ""))
        outlet = SocketOutlet(socket, request.protocol, writer, self._gate)
        order = wire.order_of(request.headers.get(wire.ORDER_HEADER, ""))
        connection = Connection(identity, outlet, order, revision)
        if not self._gate.is_open:
            outlet.abort()
            return socket
        self._intake.opened(connection)
        self._sessions.opened(connection)
        self._sockets.open += 1
        try:
            frame = await self._serve(connection, outlet)
        finally:
            self._sockets.open -= 1
            self._sockets.ended += 1
            self._sessions.ended(connection)
        await outlet.close(frame)
        return socket

    async def _serve(self, connection: Connection, outlet: SocketOutlet) -> CloseFrame:
        """Send and receive until the connection is to be closed, and return why."""
        parts = outlet.closing(), self._receive(connection, outlet.socket), outlet.run_sender()
        for result in await until_first(*parts):
            if isinstance(result, CloseFrame):
                return result
            if isinstance(result, Exception) and not isinstance(result, OSError | aiohttp.ClientError):
                self._sessions.set_log_context(connection)
                log.error("%s: its connection crashed, which is a bug", connection.identity.member, exc_info=result)
        return CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "")

    async def _receive(self, connection: Connection, socket: web.WebSocketResponse) -> CloseFrame:
        """Take messages until the connection ends or sends a message that it must not send."""
        sender = connection.identity
        inbox = Inbox(self._intake, connection, partial(self._sessions.take, connection))
        await self._intake.pause(connection)  # It may owe for what it sent on a connection before.
        try:
            while (frame := await socket.receive()).type not in ENDED:
                if self._intake.control(connection) if frame.type in CONTROL else await inbox.put(frame):
                    return self.refuse(connection, ConnectionRefusal.FLOODING, FLOODS)
            await inbox.emptied()
        finally:
            inbox.close()
        if frame.type is aiohttp.WSMsgType.ERROR:
            code = socket.close_code or aiohttp.WSCloseCode.ABNORMAL_CLOSURE
            return self.refuse(connection, ConnectionRefusal.BROKEN, CloseFrame(code, str(frame.data)))
        self._sessions.set_log_context(connection)
        log.info("%s (pod %s): its sidecar closed it, code %s", sender.member, sender.pod, socket.close_code)
        return CloseFrame(aiohttp.WSCloseCode.OK, "")

    def supersede(self, connection: Connection) -> None:
        """Close it: its pod has a newer one."""
        self._refusals.counts[ConnectionRefusal.SUPERSEDED] += 1
        newer = CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, "the pod has a newer connection")
        connection.outlet.close_soon(newer)

    def refuse(self, connection: Connection, reason: ConnectionRefusal, frame: CloseFrame) -> CloseFrame:
        """Count and log why a connection is closed, which is returned."""
        who = connection.identity
        self._refusals.counts[reason] += 1
        self._sessions.set_log_context(connection)
        log.warning("%s (pod %s): its connection is closed: %s", who.member, who.pod, frame.reason)
        return frame
