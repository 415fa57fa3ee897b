"""The hub: one WebSocket for each sidecar. It takes reports and sends directives, and it decides nothing.

The rule: a member's directive follows from the newest *stored* object of its gang (:meth:`Hub.publish`) and from the
member's own report. A process that does not lead sends nothing: the gate is asked before each message. It answers
sidecars with the leader's address, and when its term ends, it aborts every connection (:meth:`Hub.end_term`).
Whatever a connection sends, at worst that one connection is closed, and the log gives the reason.
"""

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cluster import clock
from gangctl.cluster.port import MemberIdentity
from gangctl.controller.connection import CloseFrame, Connection, Connections, DirectiveOf
from gangctl.controller.gate import (
    Authenticate,
    Gate,
    Leader,
    MessageError,
    RefusalLog,
    parse_message,
)
from gangctl.controller.housekeeping import Sockets
from gangctl.controller.intake import Intake
from gangctl.controller.listener import Handle, listen
from gangctl.controller.relaying import NO_LINK_LOST, LostLinks
from gangctl.controller.reports import ImportLists, ReportChange, ReportStore, StaleReason
from gangctl.controller.sidecar_server import SidecarServer
from gangctl.controller.turns import SLICE, in_slices
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy.checks import AskCheck
from gangctl.telemetry import logs
from gangsidecar import wire

log = logging.getLogger(__name__)

PING_SECONDS: Final = 5.0
PING_AGAIN: Final = 0.8
"""The part of it after which a report is answered by a ping at once: leases count from that report."""
LATE_SECONDS: Final = 60.0
"""So late, a relay that was frozen has noticed which of its sidecars have gone. So long, a node's clock that was set
back may delay a connection."""
SILENT_SECONDS: Final = 20.0
"""A supervisor reports every 5 s: after this long without a report it does not count as connected."""


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
        self.gate = Gate(authenticate, leader, self.refusals)
        self._directives = directives
        self._wake = wake
        self._wake_later = wake_later
        self.reports = ReportStore()
        self._imports = ImportLists()
        self.connections = Connections()
        self.intake = Intake()
        self.sockets = Sockets()
        self.server = SidecarServer(self.gate, self.refusals, self.intake, self.sockets, self)
        self._orders: dict[str, tuple[int, float]] = {}
        """UID of a pod whose connection has ended -> the number of that, and when."""
        self._relay_lost: dict[str, LostLinks] = {}
        """By UID of the gang: the links with any of its members that have ended."""
        self._jobs: dict[str, tuple[GangJob, DirectiveOf]] = {}
        """By UID of the gang: the newest stored object, and the directives that follow from it."""

    @asynccontextmanager
    async def serve(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, routes: Mapping[str, Handle] | None = None
    ) -> AsyncIterator[str]:
        """Listen, as leader or as standby; gives the URL for sidecars. At the end every connection is closed.

        ``routes``: what answers instead of the hub, by path.
        """
        async with listen(host, port, routes or {wire.CONNECT_PATH: self.server.handle}, self.refusals, tls) as url:
            try:
                yield url
            finally:
                for connection in self.connections.all():
                    connection.outlet.close_soon(CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "the controller ends"))

    def end_term(self) -> None:
        """Abort every connection and forget everything: this process does not lead any more.

        Nothing that is still in a buffer is sent. The next term begins without reports.
        """
        for connection in self.connections.all():
            connection.outlet.abort()
        self.connections.clear()
        self._jobs.clear()
        self._relay_lost.clear()
        self._orders.clear()
        self.reports = ReportStore()
        self._imports = ImportLists()

    async def keep_alive(self) -> None:
        """Ping every sidecar, and notice silent supervisors, until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            self.intake.tidy()
            since = time.monotonic() - LATE_SECONDS
            self._orders = {pod: one for pod, one in self._orders.items() if one[1] > since}
            if self.gate.is_open:
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
            directives = self._directives(job, before)
            self._jobs[uid] = job, directives
            if directives is not before:
                in_slices(self.connections.of(uid), self._direct)

    def withhold(self, gang: str) -> None:
        """The stored object can't be read: no directive follows from it. Connections and reports stay."""
        self._jobs.pop(gang, None)

    def ask(self, gang: str, action: AskScan | AskCheck) -> None:
        """Send a scan or a check to a pod. If the pod is not connected, a later plan asks again."""
        connection = self.connections.get(action.pod)
        if connection is None or connection.identity.gang != gang or not self.gate.is_open:
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
        self._relay_lost.pop(gang, None)
        for connection in self.connections.of(gang):
            connection.outlet.close_soon(CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "the gang is gone"))

    def opened(self, connection: Connection) -> None:
        """Make it the connection of its pod; an older one is closed, which may be this one."""
        if not self.gate.is_open:
            connection.outlet.abort()
            return
        identity = connection.identity
        known = self.connections.get(identity.pod)
        newest = self._orders.get(identity.pod, (0, 0.0))[0] if known is None else known.order
        if newest > connection.order:
            self.server.supersede(connection)
            return
        self.connections.add(connection)
        if known is not None:
            self.server.supersede(known)
            self._disconnect(identity)

    def ended(self, connection: Connection) -> None:
        """The connection has ended."""
        if self.connections.remove(connection):
            self._orders[connection.identity.pod] = connection.order, time.monotonic()
            self._disconnect(connection.identity)

    def relay_lost(self, connections: Iterable[Connection]) -> None:
        """A link has ended, with these connections: that says nothing about the members."""
        gangs = set[str]()
        for connection in connections:
            if self.connections.get(connection.identity.pod) is connection:
                gangs.add(connection.identity.gang)
            self.ended(connection)
        for gang in gangs:
            self._relay_lost[gang] = self._relay_lost.get(gang, NO_LINK_LOST).with_another(clock.now())
            self._wake(gang)

    def relayed_since(self, gang: str) -> float:
        """Since when the gang's silence is its members' own: not since before a relay with any of them was lost."""
        return self._relay_lost.get(gang, NO_LINK_LOST).counts_since

    def take(self, connection: Connection, frame: aiohttp.WSMessage) -> CloseFrame | None:
        """Take one message; returns why the connection is to be closed, if the message must not be sent."""
        if not self.is_current(connection):
            return None
        try:
            message = parse_message(frame, connection.identity, was_asked=connection.was_asked)
        except MessageError as error:
            refusal = CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, str(error))
            return self.server.refuse(connection, error.reason, refusal)
        self.accept(connection, message)
        return None

    def is_current(self, connection: Connection) -> bool:
        """Return whether it counts. If it was aborted or superseded, its buffer is not for the leader of now."""
        if self.connections.get(connection.identity.pod) is connection:
            return True
        self.stale[StaleReason.SUPERSEDED] += 1
        return False

    def accept(self, connection: Connection, message: wire.Message) -> None:
        """Take a message that is its sender's to send, while this process leads."""
        if not self.gate.is_open:
            self.stale[StaleReason.SUPERSEDED] += 1
            return
        sender = connection.identity
        match message:
            case wire.Report():
                self._take_report(connection, message)
            case wire.Scanned():
                if self.reports.add_scanned(sender.gang, message, clock.now()) is not ReportChange.NONE:
                    self._wake(sender.gang)
            case wire.Imports():
                others = tuple(self.connections.of(sender.gang))
                is_due = self._imports.add(sender, message, {one.identity.pod for one in others}, time.monotonic())
                if is_due and len(others) <= SLICE:  # A long list for many at once would fill the memory.
                    for one in others:
                        self._give_imports(one)

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
        if self.gate.is_open and (at_once or now - connection.pinged_at >= PING_AGAIN * PING_SECONDS):
            connection.ping(self.reports.report(who.gang, who.pod) if connection.has_reported else None, now)

    def _direct(self, connection: Connection) -> None:
        """Send the directive that follows from the stored object and the member's newest report."""
        if not self.gate.is_open:  # It was frozen and has not noticed yet: another process directs them by now.
            return
        who = connection.identity
        stored, report = self._jobs.get(who.gang), self.reports.report(who.gang, who.pod)
        if stored is None or report is None:
            return
        try:
            connection.send_directive(report, stored[1])
        except wire.WireError as error:
            log.error("%s: its directive can't be sent: %s", who.member, error)  # noqa: TRY400 - no traceback needed

    def _give_imports(self, connection: Connection) -> None:
        """Send what the workers of its role import to a supervisor that has run none yet, if that is known."""
        who = connection.identity
        report, stored = self.reports.report(who.gang, who.pod), self._jobs.get(who.gang)
        if report is None or report.ran or not (connection.has_reported and self.gate.is_open):
            return
        if (packed := self._imports.of(who)) is not None:
            trains = stored is not None and stored[0].status.phase is GangPhase.RUNNING
            connection.send_imports(report.session, packed, beside=trains)

    def _disconnect(self, who: MemberIdentity) -> None:
        if self.reports.disconnect(who.gang, who.pod):
            self._wake(who.gang)

    def set_log_context(self, connection: Connection) -> None:
        """What this connection's task logs carries its gang and the attempt that the gang is in by now."""
        if (stored := self._jobs.get(connection.identity.gang)) is not None:
            logs.set_gang(stored[0])
