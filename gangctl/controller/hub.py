"""The hub: one WebSocket for each sidecar. It takes reports and sends directives, and it decides nothing.

The rule: a member's directive follows from the newest *stored* object of its gang (:meth:`Hub.publish`) and from the
member's own report. A process that does not lead sends nothing: the gate is asked before each message. It answers
sidecars with the leader's address, and when its term ends, it aborts every connection (:meth:`Hub.end_term`).
Whatever a connection sends, at worst that one connection is closed, and the log gives the reason.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import aiohttp
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cluster import clock
from gangctl.cluster.port import MemberIdentity
from gangctl.controller.connection import CloseFrame, Connection, Connections, DirectiveOf
from gangctl.controller.gate import (
    CLOSED,
    CONTROL,
    Authenticate,
    ConnectionRefusal,
    Gate,
    Leader,
    MessageError,
    RefusalLog,
    parse_message,
)
from gangctl.controller.intake import FLOODS, Intake
from gangctl.controller.listener import listen
from gangctl.controller.reports import ImportLists, ReportChange, ReportStore, StaleReason
from gangctl.controller.turns import in_slices
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy.checks import AskCheck
from gangctl.telemetry import logs
from gangsidecar import wire

log = logging.getLogger(__name__)

PING_SECONDS: Final = 5.0
PING_AGAIN: Final = 0.8
"""The part of it after which a report is answered by a ping at once: leases count from that report."""
SILENT_SECONDS: Final = 20.0
"""A supervisor reports every 5 s: after this long without a report it does not count as connected."""
HEARTBEAT_SECONDS: Final = 20.0
"""A peer that does not answer WebSocket pings is gone, whatever TCP reports."""


class Hub:
    """All connections of one controller."""

    def __init__(
        self,
        authenticate: Authenticate,
        directives: Callable[[GangJob, DirectiveOf | None], DirectiveOf],
        wake: Callable[[str], None],
        wake_later: Callable[[str], None],
        leader: Leader = lambda: None,
    ) -> None:
        """Give the hub what it needs of others.

        Args:
            authenticate: finds the member that a token belongs to.
            directives: called once for each stored object, with what it returned for the one before it; computes them.
            wake: called with a gang's UID when one of its members has news.
            wake_later: the same, for news that come all the time.
            leader: None while this process leads; else the leader's URL, or empty if no leader is known.
        """
        self.refusals = RefusalLog()
        self.stale: Counter[str] = Counter(dict.fromkeys(StaleReason, 0))
        """How many messages came too late to change anything, by reason."""
        self._gate = Gate(authenticate, leader, self.refusals)
        self._directives = directives
        self._wake = wake
        self._wake_later = wake_later
        self.reports = ReportStore()
        self._imports = ImportLists()
        self.connections = Connections()
        self.intake = Intake()
        self._jobs: dict[str, tuple[GangJob, DirectiveOf]] = {}
        """By UID of the gang: the newest stored object, and the directives that follow from it."""

    @asynccontextmanager
    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Listen, as leader or as standby; gives the URL for sidecars. At the end every connection is closed."""
        async with listen(host, port, self.handle, self.refusals, tls) as url:
            try:
                yield url
            finally:
                for connection in self.connections.all():
                    connection.close_soon(CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "the controller ends"))

    def end_term(self) -> None:
        """Abort every connection and forget everything: this process does not lead any more.

        Nothing that is still in a buffer is sent. The next term begins without reports.
        """
        for connection in self.connections.all():
            connection.abort()
        self.connections.clear()
        self._jobs.clear()
        self.reports = ReportStore()
        self._imports = ImportLists()

    async def keep_alive(self) -> None:
        """Ping every sidecar, and notice silent supervisors, until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            self.intake.tidy()
            if self._gate.is_open:
                in_slices(self.connections.all(), self._check)

    def _check(self, connection: Connection) -> None:
        """Ping the sidecar, and notice whether its supervisor is silent."""
        self._ping(connection)
        if time.monotonic() - connection.last_report_at > SILENT_SECONDS:
            self._disconnect(connection.identity)

    def publish(self, job: GangJob) -> None:
        """This object is stored: from now on directives follow from it."""
        uid = job.metadata.uid
        stored, before = self._jobs.get(uid, (None, None))
        if stored is not job:
            self._jobs[uid] = job, self._directives(job, before)
            in_slices(self.connections.of(uid), self._direct)

    def withhold(self, gang: str) -> None:
        """The stored object can't be read: no directive follows from it. Connections and reports stay."""
        self._jobs.pop(gang, None)

    def ask(self, gang: str, action: AskScan | AskCheck) -> None:
        """Send a scan or a check to a pod. If the pod is not connected, a later plan asks again."""
        connection = self.connections.get(action.pod)
        if connection is None or connection.identity.gang != gang or not self._gate.is_open:
            return
        try:
            connection.send_query(action.scan if isinstance(action, AskScan) else action.check, time.monotonic())
        except wire.WireError as error:
            log.error("gang %s: a query can't be sent: %s", gang, error)  # noqa: TRY400 - no traceback needed

    def forget(self, gang: str) -> None:
        """The gang is gone: forget it, and close its connections."""
        self._jobs.pop(gang, None)
        self.reports.forget(gang)
        self._imports.forget(gang)
        for connection in self.connections.of(gang):
            connection.close_soon(CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "the gang is gone"))

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
        await socket.prepare(request)
        admit()
        revision = wire.revision_of(request.headers.get(wire.REVISION_HEADER, ""))
        connection = Connection(identity, socket, request.transport, time.monotonic(), revision, self._gate)
        if not self._gate.is_open:
            connection.abort()
            return socket
        self._register(connection)
        try:
            frame = await self._serve(connection)
        finally:
            if self.connections.remove(connection):
                self._disconnect(identity)
        await connection.close(frame)
        return socket

    def _register(self, connection: Connection) -> None:
        """Make it the connection of its pod; an older one is closed."""
        identity = connection.identity
        older = self.connections.add(connection)
        if older is not None:
            self.refusals.counts[ConnectionRefusal.SUPERSEDED] += 1
            older.close_soon(CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, "the pod has a newer connection"))
            self._disconnect(identity)

    async def _serve(self, connection: Connection) -> CloseFrame:
        """Send and receive until the connection is to be closed, and return why."""
        parts = (connection.closing(), self._receive(connection), connection.run_sender())
        tasks: tuple[asyncio.Future[CloseFrame | None], ...] = tuple(map(asyncio.ensure_future, parts))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, CloseFrame):
                return result
            if isinstance(result, Exception) and not isinstance(result, OSError | aiohttp.ClientError):
                self._set_log_context(connection)
                log.error("%s: its connection crashed, which is a bug", connection.identity.member, exc_info=result)
        return CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "")

    async def _receive(self, connection: Connection) -> CloseFrame:
        """Take messages until the connection ends or sends a message that it must not send."""
        sender, socket = connection.identity, connection.socket
        await self.intake.pause(connection)  # It may owe for what it sent on a connection before.
        while (frame := await socket.receive()).type not in CLOSED:
            if frame.type is aiohttp.WSMsgType.ERROR:
                code = socket.close_code or aiohttp.WSCloseCode.ABNORMAL_CLOSURE
                return self._refuse(connection, ConnectionRefusal.BROKEN, CloseFrame(code, str(frame.data)))
            control = frame.type in CONTROL
            refusal = None if control else await self.intake.take(connection, partial(self._take, connection, frame))
            if refusal is not None:
                return refusal
            if self.intake.control(connection) if control else await self.intake.pause(connection):
                return self._refuse(connection, ConnectionRefusal.FLOODING, FLOODS)
        self._set_log_context(connection)
        log.info("%s (pod %s): its sidecar closed it, code %s", sender.member, sender.pod, socket.close_code)
        return CloseFrame(aiohttp.WSCloseCode.OK, "")

    def _take(self, connection: Connection, frame: aiohttp.WSMessage) -> CloseFrame | None:
        """Take one message; returns why the connection is to be closed, if the message must not be sent."""
        sender = connection.identity
        if self.connections.get(sender.pod) is not connection:
            # The connection was aborted or superseded: what was still in a buffer is not for the leader of now.
            self.stale[StaleReason.SUPERSEDED] += 1
            return None
        try:
            message = parse_message(frame, sender, was_asked=connection.was_asked)
        except MessageError as error:
            return self._refuse(connection, error.reason, CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, str(error)))
        match message:
            case wire.Report():
                self._take_report(connection, message)
            case wire.Scanned():
                if self.reports.add_scanned(sender.gang, message, clock.now()) is not ReportChange.NONE:
                    self._wake(sender.gang)
            case wire.Imports():
                connected = {one.identity.pod for one in self.connections.of(sender.gang)}
                if self._imports.add(sender, message, connected):
                    in_slices(self.connections.of(sender.gang), self._give_imports)
        return None

    def _take_report(self, connection: Connection, report: wire.Report) -> None:
        is_first, connection.has_reported = not connection.has_reported, True
        connection.last_report_at = time.monotonic()
        change = self.reports.add(report, clock.now())
        if change is ReportChange.STALE:
            self.stale[StaleReason.OVERTAKEN] += 1
            return
        stored = self._jobs.get(report.gang)
        if stored is not None and report.attempt < stored[0].status.attempt:
            self.stale[StaleReason.OLDER_ATTEMPT] += 1
        self._ping(connection, at_once=is_first)
        self._direct(connection)
        self._give_imports(connection)
        if change is ReportChange.STATE:
            self._wake(report.gang)
        elif change is ReportChange.STEP:
            self._wake_later(report.gang)

    def _ping(self, connection: Connection, *, at_once: bool = False) -> None:
        now, who = time.monotonic(), connection.identity
        if self._gate.is_open and (at_once or now - connection.pinged_at >= PING_AGAIN * PING_SECONDS):
            connection.ping(self.reports.report(who.gang, who.pod) if connection.has_reported else None, now)

    def _direct(self, connection: Connection) -> None:
        """Send the directive that follows from the stored object and the member's newest report."""
        if not self._gate.is_open:  # It was frozen and has not noticed yet: another process directs them by now.
            return
        who = connection.identity
        stored, report = self._jobs.get(who.gang), self.reports.report(who.gang, who.pod)
        if stored is None or report is None:
            return
        try:
            connection.send_directive(stored[0], report, stored[1])
        except wire.WireError as error:
            log.error("%s: its directive can't be sent: %s", who.member, error)  # noqa: TRY400 - no traceback needed

    def _give_imports(self, connection: Connection) -> None:
        """Send what the workers of its role import to a supervisor that has run none yet, if that is known."""
        who = connection.identity
        report, stored = self.reports.report(who.gang, who.pod), self._jobs.get(who.gang)
        if report is None or report.ran or not (connection.has_reported and self._gate.is_open):
            return
        if (packed := self._imports.of(who)) is not None:
            trains = stored is not None and stored[0].status.phase is GangPhase.RUNNING
            connection.send_imports(report.session, packed, beside=trains)

    def _disconnect(self, who: MemberIdentity) -> None:
        if self.reports.disconnect(who.gang, who.pod):
            self._wake(who.gang)

    def _set_log_context(self, connection: Connection) -> None:
        """Return what this connection's task logs carries its gang and the attempt that the gang is in by now."""
        if (stored := self._jobs.get(connection.identity.gang)) is not None:
            logs.set_gang(stored[0])

    def _refuse(self, connection: Connection, reason: ConnectionRefusal, frame: CloseFrame) -> CloseFrame:
        who = connection.identity
        self.refusals.counts[reason] += 1
        self._set_log_context(connection)
        log.warning("%s (pod %s): its connection is closed: %s", who.member, who.pod, frame.reason)
        return frame
