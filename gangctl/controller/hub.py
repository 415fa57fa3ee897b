"""The hub: one WebSocket for each sidecar. It takes reports and sends directives, and it decides nothing.

What a member is told is computed from the newest *acknowledged* object of its gang (:meth:`Hub.publish`) and from what
it said itself. Whatever a connection sends, at worst that connection is closed, with a reason in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.cluster.port import Identity
from gangctl.controller import clock
from gangctl.controller.connection import Connection, Ending, Said
from gangctl.controller.hearing import Hearing, News
from gangctl.core.plan import AskScan
from gangctl.core.world import Heard
from gangsidecar import wire

log = logging.getLogger(__name__)

PATH: Final = "/v1/connect"
PING_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 20.0
"""A supervisor reports every 5 s: one that is not heard for this long doesn't count as connected."""
HEARTBEAT_SECONDS: Final = 20.0
"""A peer that doesn't answer WebSocket pings is gone, whatever TCP thinks."""
_SHUTDOWN_SECONDS: Final = 2.0
_ENDED: Final = frozenset({aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED})

Tell = Callable[[GangJob, wire.Report], wire.Directive | None]
"""What a supervisor is told, from the stored object and its own report."""


class Hub:
    """All connections of one controller."""

    def __init__(
        self, identify: Callable[[str], Awaitable[Identity | None]], tell: Tell, wake: Callable[[str], None]
    ) -> None:
        """``identify``: whose token is it; ``wake``: called with a gang's UID when one of its members has news."""
        self.refused: Counter[str] = Counter()
        """How many connections were refused or closed from this side, by reason."""
        self._identify = identify
        self._directive = tell
        self._wake = wake
        self._hearing = Hearing()
        self._connections: dict[str, Connection] = {}
        """By UID of the pod."""
        self._jobs: dict[str, GangJob] = {}
        """What is durable, by UID of the gang."""

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[str]:
        """Listen; gives the URL for sidecars. At the end every connection is closed.

        Raises:
            OSError: it can't listen there.
        """
        application = web.Application()
        application.router.add_get(PATH, self._connect)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, backlog=4096)
            await site.start()
            name, number = runner.addresses[0][:2]
            yield f"ws://{f'[{name}]' if ':' in name else name}:{number}{PATH}"
        finally:
            for connection in self._connections.values():
                connection.end(Ending(aiohttp.WSCloseCode.GOING_AWAY, "the controller ends"))
            await runner.cleanup()

    async def keep_alive(self) -> None:
        """Ping every sidecar, and notice who has fallen silent, until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            now = time.monotonic()
            for connection in tuple(self._connections.values()):
                connection.tell(wire.Ping())
                if now - connection.spoke_at > SILENT_SECONDS:
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
        if connection is None or connection.identity.gang != gang:
            return
        try:
            connection.ask(action.scan, time.monotonic())
        except wire.WireError as error:
            log.error("gang %s: the scan can't be sent: %s", gang, error)  # noqa: TRY400 - the sentence says it all

    def heard(self, gang: str) -> tuple[Heard, ...]:
        """The newest report of each pod."""
        return self._hearing.heard(gang)

    def scanned(self, gang: str) -> wire.Scanned | None:
        """The newest answer to a scan."""
        return self._hearing.scanned(gang)

    def prune(self, gang: str, needed: AbstractSet[str]) -> None:
        """Forget what pods said that are not ``needed`` (UIDs) any more, nor connected."""
        self._hearing.prune(gang, needed)

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._jobs.pop(gang, None)
        self._hearing.forget(gang)
        for connection in self._connections.values():
            if connection.identity.gang == gang:
                connection.end(Ending(aiohttp.WSCloseCode.GOING_AWAY, "the gang is gone"))

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        identity = await self._identify(token.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            self.refused["Unauthorized"] += 1
            log.warning("a connection from %s was refused: its token is nobody's", request.remote)
            return web.Response(status=401, text="the token is nobody's, or its pod is gone")
        socket = web.WebSocketResponse(
            max_msg_size=wire.MAX_BYTES + 1,  # aiohttp's limit is one that a message must stay below
            heartbeat=HEARTBEAT_SECONDS,
            compress=False,
        )
        await socket.prepare(request)
        connection = Connection(identity, socket, time.monotonic())
        older = self._connections.get(identity.pod)
        self._connections[identity.pod] = connection
        if older is not None:
            self.refused["Superseded"] += 1
            older.end(Ending(aiohttp.WSCloseCode.POLICY_VIOLATION, "a newer connection of this pod took its place"))
            self._lose(identity)
        try:
            ending = await self._serve(connection)
        finally:
            if self._connections.get(identity.pod) is connection:
                del self._connections[identity.pod]
                self._lose(identity)
        await connection.close(ending, request.transport)
        return socket

    async def _serve(self, connection: Connection) -> Ending:
        """Until the connection ends; why it did."""
        parts = (connection.ended(), self._listen(connection), connection.speak())
        tasks: tuple[asyncio.Future[Ending | None], ...] = tuple(map(asyncio.ensure_future, parts))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Ending):
                return result
        return Ending(aiohttp.WSCloseCode.GOING_AWAY, "")

    async def _listen(self, connection: Connection) -> Ending:
        """Take what comes, until the connection ends or sends what it must not."""
        who, socket = connection.identity, connection.socket
        while (frame := await socket.receive()).type not in _ENDED:
            if frame.type is aiohttp.WSMsgType.ERROR:
                code = socket.close_code or aiohttp.WSCloseCode.ABNORMAL_CLOSURE
                return self._refuse(connection, "Broken", Ending(code, str(frame.data)))
            wrong = self._take(connection, frame)
            if wrong:
                reason = "WrongIdentity" if wrong.startswith("identity") else "Malformed"
                return self._refuse(connection, reason, Ending(aiohttp.WSCloseCode.POLICY_VIOLATION, wrong))
        log.info("%s (pod %s): its sidecar closed the connection, code %s", who.member, who.pod, socket.close_code)
        return Ending(aiohttp.WSCloseCode.OK, "")

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
                if self._hearing.take_scanned(connection.identity.gang, message) is News.NEW:
                    self._wake(connection.identity.gang)
                return ""
            case _:
                return f"a {type(message).__name__} doesn't come from a sidecar"

    def _take_report(self, connection: Connection, report: wire.Report) -> str:
        claimed = Identity(report.gang, report.member, report.incarnation, report.pod)
        if claimed != connection.identity:
            return f"identity: a report of {claimed.member!r:.20}.{claimed.incarnation} in pod {claimed.pod!r:.40}"
        connection.spoke_at = time.monotonic()
        connection.has_spoken = True
        news = self._hearing.take(report, clock.now())
        if news is not News.OLD:
            self._tell(connection)
        if news is News.NEW:
            self._wake(report.gang)
        return ""

    def _tell(self, connection: Connection) -> None:
        """Send the directive that follows from what is durable and what was heard, if it is another one now."""
        who, said = connection.identity, connection.said
        job, report = self._jobs.get(who.gang), self._hearing.report(who.gang, who.pod)
        if job is None or report is None or not connection.has_spoken or (said and said.is_for(job, report)):
            return
        directive = self._directive(job, report)
        is_known = said is not None and said.session == report.session and said.directive == directive
        connection.said = Said(job, report.session, report.attempt, report.phase, directive)
        if directive is None or is_known:
            return
        try:
            connection.tell(directive)
        except wire.WireError as error:
            log.error("%s: its directive can't be sent: %s", who.member, error)  # noqa: TRY400 - the sentence says it

    def _lose(self, who: Identity) -> None:
        if self._hearing.fall_silent(who.gang, who.pod):
            self._wake(who.gang)

    def _refuse(self, connection: Connection, reason: str, ending: Ending) -> Ending:
        who = connection.identity
        self.refused[reason] += 1
        log.warning("%s (pod %s): its connection is closed: %s", who.member, who.pod, ending.reason)
        return ending
