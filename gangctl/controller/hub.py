"""The hub: one WebSocket for each sidecar. It takes reports and sends directives, and it decides nothing.

What a member is told is computed from the newest *acknowledged* object of its gang (:meth:`Hub.publish`) and from what
it sent itself. Whatever a connection sends, at worst that connection is closed, with a reason in the log.

A process that doesn't lead sends sidecars to the one that does. One that stops leading says nothing more to anybody:
:meth:`Hub.close_all`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.cluster import clock
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller.connection import CloseFrame, Connection, SentDirective
from gangctl.controller.refusals import Refusals
from gangctl.controller.reports import ReportChange, ReportStore
from gangctl.controller.server import listen
from gangctl.core.facts.world import Heard
from gangctl.core.lifecycle.plan import AskScan
from gangctl.telemetry import logs
from gangsidecar import wire

log = logging.getLogger(__name__)

PING_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 20.0
"""A supervisor reports every 5 s: one that is not heard for this long doesn't count as connected."""
HEARTBEAT_SECONDS: Final = 20.0
"""A peer that doesn't answer WebSocket pings is gone, whatever TCP thinks."""
_ENDED: Final = frozenset({aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED})

Identify = Callable[[str], Awaitable[MemberIdentity | Refusal]]
"""Whose token is it, or why it is nobody's."""
Tell = Callable[[GangJob, wire.Report], wire.Directive | None]
"""What a supervisor is told, from the stored object and its own report."""


class Hub:
    """All connections of one controller."""

    def __init__(
        self,
        identify: Identify,
        tell: Tell,
        wake: Callable[[str], None],
        wake_later: Callable[[str], None],
        leader: Callable[[], str | None] = lambda: None,
    ) -> None:
        """What it needs of others.

        Args:
            identify: whose token is it.
            tell: what a supervisor is told.
            wake: called with a gang's UID when one of its members has news.
            wake_later: the same, for news that come all the time.
            leader: None while this process leads; else the URL of who does, empty if nobody is known to.
        """
        self._refusals = Refusals()
        self.stale: Counter[str] = Counter()
        """How many messages came too late to change anything: OlderAttempt, Overtaken or Superseded."""
        self._identify = identify
        self._directive = tell
        self._wake = wake
        self._wake_later = wake_later
        self._leader = leader
        self._reports = ReportStore()
        self._connections: dict[str, Connection] = {}
        """By UID of the pod."""
        self._jobs: dict[str, GangJob] = {}
        """What is durable, by UID of the gang."""

    @property
    def refused(self) -> Counter[str]:
        """How many connections were refused or closed from this side, by reason."""
        return self._refusals.counts

    @property
    def connected(self) -> int:
        """How many pods are connected."""
        return len(self._connections)

    @asynccontextmanager
    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Listen; gives the URL for sidecars. At the end every connection is closed.

        Whether this process leads doesn't matter: a standby answers as well.

        Raises:
            OSError: it can't listen there.
        """
        async with listen(host, port, self.handle, self._refusals, tls) as url:
            try:
                yield url
            finally:
                for connection in self._connections.values():
                    connection.end(CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "the controller ends"))

    def close_all(self) -> None:
        """This process leads no more: cut every connection off, at once and without a word, and forget everything.

        Nothing that is still in a buffer goes out. The next term begins with what is heard then.
        """
        for connection in self._connections.values():
            connection.cut()
        self._connections.clear()
        self._jobs.clear()
        self._reports = ReportStore()

    async def keep_alive(self) -> None:
        """Ping every sidecar, and notice who has fallen silent, until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            now = time.monotonic()
            if self._leader() is not None:
                continue
            for connection in tuple(self._connections.values()):
                connection.send(wire.Ping())
                if now - connection.last_report_at > SILENT_SECONDS:
                    self._lose(connection.identity)

    def publish(self, job: GangJob) -> None:
        """This object is durable: from now on members are told what follows from it."""
        uid = job.metadata.uid
        if self._jobs.get(uid) is job:
            return
        self._jobs[uid] = job
        for connection in self._connections.values():
            if connection.identity.gang == uid:
                self._tell(connection)

    def ask(self, gang: str, action: AskScan) -> None:
        """Send a scan to a pod; if it isn't connected, a later plan asks again."""
        connection = self._connections.get(action.pod)
        if connection is None or connection.identity.gang != gang or self._leader() is not None:
            return
        try:
            connection.send_scan(action.scan, time.monotonic())
        except wire.WireError as error:
            log.error("gang %s: the scan can't be sent: %s", gang, error)  # noqa: TRY400 - the sentence says it all

    def heard(self, gang: str) -> tuple[Heard, ...]:
        """The newest report of each pod."""
        return self._reports.heard(gang)

    def scanned(self, gang: str) -> wire.Scanned | None:
        """The newest answer to a scan."""
        return self._reports.scanned(gang)

    def prune(self, gang: str, needed: AbstractSet[str]) -> None:
        """Forget what pods sent that are not ``needed`` (UIDs) any more, nor connected."""
        self._reports.prune(gang, needed)

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._jobs.pop(gang, None)
        self._reports.forget(gang)
        for connection in self._connections.values():
            if connection.identity.gang == gang:
                connection.end(CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "the gang is gone"))

    async def handle(self, request: web.Request, admit: Callable[[], None]) -> web.StreamResponse:
        """Answer a sidecar's upgrade, and serve it until its connection ends; ``admit``: called once it is known."""
        refusal = self._standby()
        if refusal is not None:
            return refusal
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            identity = await self._identify(token.strip())
        else:
            identity = Refusal(RefusalReason.NO_TOKEN, "the header Authorization has no bearer token")
        if isinstance(identity, Refusal):
            self._refusals.add(identity.reason, str(request.remote), identity.text)
            return _refused(503 if identity.again else 401, f"{identity.reason}: {identity.text}")
        socket = web.WebSocketResponse(
            max_msg_size=wire.MAX_BYTES + 1,  # aiohttp's limit is one that a message must stay below
            heartbeat=HEARTBEAT_SECONDS,
            compress=False,
        )
        refusal = self._standby()  # it may have lost its Lease while it asked whose token this is
        if refusal is not None:
            return refusal
        socket.headers[wire.REVISION_HEADER] = str(wire.REVISION)
        await socket.prepare(request)
        admit()
        connection = Connection(identity, socket, request.transport, time.monotonic())
        if self._leader() is not None:
            connection.cut()
            return socket
        older = self._connections.get(identity.pod)
        self._connections[identity.pod] = connection
        if older is not None:
            self.refused["Superseded"] += 1
            older.end(CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, "a newer connection of this pod took its place"))
            self._lose(identity)
        try:
            frame = await self._serve(connection)
        finally:
            if self._connections.get(identity.pod) is connection:
                del self._connections[identity.pod]
                self._lose(identity)
        await connection.close(frame)
        return socket

    def _standby(self) -> web.Response | None:
        """What a process that doesn't lead answers."""
        leader = self._leader()
        if leader is None:
            return None
        self.refused["Standby"] += 1
        answer = _refused(503, f"this controller doesn't lead; {leader or 'nobody is known to'} does")
        if leader:
            answer.headers[wire.LEADER_HEADER] = leader
        return answer

    async def _serve(self, connection: Connection) -> CloseFrame:
        """Until the connection ends; why it did."""
        parts = (connection.ended(), self._listen(connection), connection.run_sender())
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
                self._log_about(connection.identity)
                log.error("%s: its connection has crashed, which is a bug", connection.identity.member, exc_info=result)
        return CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "")

    async def _listen(self, connection: Connection) -> CloseFrame:
        """Take what comes, until the connection ends or sends what it must not."""
        who, socket = connection.identity, connection.socket
        while (frame := await socket.receive()).type not in _ENDED:
            if frame.type is aiohttp.WSMsgType.ERROR:
                code = socket.close_code or aiohttp.WSCloseCode.ABNORMAL_CLOSURE
                return self._refuse(connection, "Broken", CloseFrame(code, str(frame.data)))
            if self._connections.get(who.pod) is not connection:
                self.stale["Superseded"] += 1
                continue  # Cut off, or superseded: what was still in a buffer says nothing to whoever leads by now.
            wrong = self._take(connection, frame)
            if wrong:
                reason = "WrongIdentity" if wrong.startswith("identity") else "Malformed"
                return self._refuse(connection, reason, CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, wrong))
        self._log_about(who)
        log.info("%s (pod %s): its sidecar closed the connection, code %s", who.member, who.pod, socket.close_code)
        return CloseFrame(aiohttp.WSCloseCode.OK, "")

    def _take(self, connection: Connection, frame: aiohttp.WSMessage) -> str:
        """Take one message; what is wrong with it, if something is."""
        if frame.type is not aiohttp.WSMsgType.TEXT:
            return f"a {frame.type.name} frame instead of text"
        try:
            message = wire.decode(frame.data)
        except wire.WireError as error:
            return str(error)
        match message:
            case wire.Report():
                return self._take_report(connection, message)
            case wire.Scanned():
                if message.pod != connection.identity.pod:
                    return f"identity: a scan of pod {message.pod!r:.40}"
                if self._reports.add_scanned(connection.identity.gang, message) is ReportChange.STATE:
                    self._wake(connection.identity.gang)
                return ""
            case _:
                return f"a {type(message).__name__} doesn't come from a sidecar"

    def _take_report(self, connection: Connection, report: wire.Report) -> str:
        claimed = MemberIdentity(report.gang, report.member, report.incarnation, report.pod)
        if claimed != connection.identity:
            return f"identity: a report of {claimed.member!r:.20}.{claimed.incarnation} in pod {claimed.pod!r:.40}"
        connection.last_report_at = time.monotonic()
        connection.has_reported = True
        news = self._reports.add(report, clock.now())
        job = self._jobs.get(report.gang)
        if news is ReportChange.STALE:
            self.stale["Overtaken"] += 1
        elif job is not None and report.attempt < job.status.attempt:
            self.stale["OlderAttempt"] += 1
        if news is not ReportChange.STALE:
            self._tell(connection)
        if news is ReportChange.STATE:
            self._wake(report.gang)
        elif news is ReportChange.STEP:
            self._wake_later(report.gang)
        return ""

    def _tell(self, connection: Connection) -> None:
        """Send the directive that follows from what is durable and what was heard, if it is another one now."""
        if self._leader() is not None:  # it was frozen, and doesn't know yet: somebody else tells them by now
            return
        who, sent = connection.identity, connection.sent
        job, report = self._jobs.get(who.gang), self._reports.report(who.gang, who.pod)
        if job is None or report is None or not connection.has_reported or (sent and sent.is_for(job, report)):
            return
        directive = self._directive(job, report)
        is_known = sent is not None and sent.session == report.session and sent.directive == directive
        connection.sent = SentDirective(job, report.session, report.attempt, report.phase, directive)
        if directive is None or is_known:
            return
        try:
            connection.send(directive)
        except wire.WireError as error:
            log.error("%s: its directive can't be sent: %s", who.member, error)  # noqa: TRY400 - the sentence says it

    def _lose(self, who: MemberIdentity) -> None:
        if self._reports.disconnect(who.gang, who.pod):
            self._wake(who.gang)

    def _log_about(self, who: MemberIdentity) -> None:
        """What this connection's task logs is about its gang, in the attempt that it is in by now."""
        job = self._jobs.get(who.gang)
        if job is not None:
            logs.set_gang(job)

    def _refuse(self, connection: Connection, reason: str, frame: CloseFrame) -> CloseFrame:
        who = connection.identity
        self.refused[reason] += 1
        self._log_about(who)
        log.warning("%s (pod %s): its connection is closed: %s", who.member, who.pod, frame.reason)
        return frame


def _refused(status: int, text: str) -> web.Response:
    """Why there is no upgrade; whoever wants to try again comes anew."""
    answer = web.Response(status=status, text=text)
    answer.force_close()
    return answer
