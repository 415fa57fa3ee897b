"""A relay: the sidecars that connect to this replica, whether it leads or not, and its link to the replica that leads.

The rule is in ``relaying.py``: nothing is decided here. A sidecar's token is checked and its share counted as the hub
does. While no leader answers, sidecars keep their connections by WebSocket pings, which no supervisor ever gets. A
relay that knows a leader and can't reach it for longer than a takeover must not keep them: they dial other relays.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

import aiohttp
from prometheus_client.core import GaugeMetricFamily

from gangctl.cluster.kube.election import LeaderAt
from gangctl.controller.connection import SIGN_OF_LIFE, CloseFrame, Connection, until_first
from gangctl.controller.gate import ENDED, Authenticate, Gate, MessageError, parse_message
from gangctl.controller.hub import Hub
from gangctl.controller.links import LINK_PATH, RELAY_HEADER, SIGN_SECONDS, SILENT_SECONDS, Links
from gangctl.controller.relaying import LINK_BYTES, Close, Desk, Say, decode_batch, encode_batch
from gangctl.controller.sidecar_server import SidecarServer
from gangctl.controller.turns import in_slices
from gangctl.telemetry.metrics.process import Counts
from gangsidecar import wire

log = logging.getLogger(__name__)

DIAL_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.25
"""So often the Lease is looked at: for another leader, and for one to link with."""
MOST_PAUSE_SECONDS: Final = 2.0
"""Between two tries with one leader; another one is dialled at once."""
HELD_SECONDS: Final = 5.0
"""A leader counts as reached once its link has held so long."""
KEEP_SECONDS: Final = 5.0
"""Between two signs of life for sidecars while there is no link: they wait 15 s."""
AWAY: Final = CloseFrame(aiohttp.WSCloseCode.TRY_AGAIN_LATER, "this replica can't reach the leader; another one may")
ENDS: Final = CloseFrame(aiohttp.WSCloseCode.GOING_AWAY, "this replica ends")


@dataclass(frozen=True)
class Dialing:
    """How the leader is dialled."""

    identity: str
    """Of this replica."""
    server_name: str
    """The name in the certificate."""
    token: Callable[[], str]
    """Of the replicas' own account. OSError, ValueError: it can't be read."""
    trust: Callable[[], ssl.SSLContext]


class Relay:
    """The sidecars' connections to this replica."""

    def __init__(
        self,
        hub: Hub,
        authenticate: Authenticate,
        find: Callable[[], LeaderAt | None],
        hurry: Callable[[], None],
        dialing: Dialing,
        patience: float,
    ) -> None:
        """Make a relay without a link.

        Args:
            hub: of this replica; refusals and shares are counted there.
            authenticate: finds the member that a token belongs to.
            find: the leader, which may be this replica.
            hurry: called for a look at the Lease sooner than usual.
            dialing: how the leader is dialled.
            patience: seconds for which a leader that is known may be out of reach.
        """
        self._refusals = hub.refusals
        self._find = find
        self._hurry = hurry
        self._dialing = dialing
        self._patience = patience
        self._desk = Desk()
        self._numbers = count(1)
        self._connections: dict[int, Connection] = {}
        self._session_of: dict[Connection, int] = {}
        self._by_pod: dict[str, Connection] = {}
        self._news = asyncio.Event()
        self._unreached: tuple[str, float] | None = None
        """The term of the leader that is known and not reached, and since when."""
        self._linked_at = 0.0
        self._said = ""
        self.up = self.down = 0
        """Bytes to leaders and from them so far."""
        gate = Gate(authenticate, lambda: None if self.can_serve else "", hub.refusals)
        self._intake = hub.intake
        self.server = SidecarServer(gate, hub.refusals, hub.intake, hub.sockets, self)

    @property
    def can_serve(self) -> bool:
        """Return whether sidecars are better here than elsewhere."""
        is_patient = self._unreached is None or time.monotonic() < self._unreached[1] + self._patience
        return is_patient or bool(self._desk.term)

    def __len__(self) -> int:
        """Return how many sidecars are connected here."""
        return len(self._connections)

    @property
    def is_linked(self) -> bool:
        """Return whether a leader answers."""
        return bool(self._desk.term)

    # The sidecars' side.

    def opened(self, connection: Connection) -> None:
        """Make it the connection of its pod, as the hub does: it costs as much as one, however many it opens."""
        known = self._by_pod.get(connection.identity.pod)
        if known is not None and known.order > connection.order:
            self.server.supersede(connection)
            return
        if known is not None:
            self.ended(known)
            self.server.supersede(known)
        session = next(self._numbers)
        self._connections[session] = self._by_pod[connection.identity.pod] = connection
        self._session_of[connection] = session
        self._desk.open(session, connection.identity, connection.revision, connection.order)
        self._news.set()

    def take(self, connection: Connection, frame: aiohttp.WSMessage) -> CloseFrame | None:
        """Take one message for the leader; returns why the connection is to be closed, if it must not be sent."""
        try:
            message = parse_message(frame, connection.identity, was_asked=connection.was_asked)
        except MessageError as error:
            refusal = CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, str(error))
            return self.server.refuse(connection, error.reason, refusal)
        session = self._session_of.get(connection)
        if session is not None and self._desk.take(session, message, frame.data, time.monotonic()):
            self._news.set()
        return None

    def ended(self, connection: Connection) -> None:
        """The connection has ended."""
        session = self._session_of.pop(connection, None)
        if session is not None:
            del self._connections[session], self._by_pod[connection.identity.pod]
            self._desk.close(session)
            self._news.set()

    def set_log_context(self, _connection: Connection) -> None:
        """A relay knows no gang's status: its log has the member and the pod alone."""

    # The leader's side.

    async def run(self) -> None:
        """Keep a link to the leader, and the sidecars' connections, until cancelled."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep())
            try:
                while True:
                    await self._try(session)
                    await self._pause()
            finally:
                self._close_all(ENDS)

    async def _try(self, session: aiohttp.ClientSession) -> None:
        leader = self._find()
        if leader is None:
            self._unreached = None
            return
        try:
            why = await self._follow(session, leader)
        except (aiohttp.ClientError, OSError, ValueError, wire.WireError) as error:
            why = _said(error)
        finally:
            self.unlink()
        if why != self._said:
            log.warning("there is no link to the leader at %s: %s", leader.url, why)
        self._said = why
        now = time.monotonic()
        if self._unreached is None or self._unreached[0] != leader.term:
            self._unreached = leader.term, now
        elif not self.can_serve:
            self._close_all(AWAY)

    async def _pause(self) -> None:
        term, since = self._unreached or ("", time.monotonic())
        until = time.monotonic() + pause_after(time.monotonic() - since)
        while True:
            self._hurry()
            await asyncio.sleep(random.uniform(LOOK_SECONDS / 5, LOOK_SECONDS))  # noqa: S311 - jitter
            leader = self._find()
            if leader is None or leader.term != term or time.monotonic() >= until:
                return

    async def _follow(self, session: aiohttp.ClientSession, leader: LeaderAt) -> str:
        """Link with this leader until that ends, and return why.

        Raises:
            OSError, aiohttp.ClientError, wire.WireError: why there is no link, or none any more.
        """
        socket = await self._dial(session, leader)
        parts = self._receive(socket, leader), self._send(socket, leader), self._until_deposed(leader)
        try:
            results = await until_first(*parts)
        finally:
            await self._hang_up(socket)
        ended = next(one for one in results if not isinstance(one, asyncio.CancelledError))
        if isinstance(ended, BaseException):
            raise ended
        return str(ended)

    async def _dial(self, session: aiohttp.ClientSession, leader: LeaderAt) -> aiohttp.ClientWebSocketResponse:
        headers = {"Authorization": f"Bearer {self._dialing.token()}", RELAY_HEADER: self._dialing.identity}
        url = leader.url.removesuffix(wire.CONNECT_PATH) + LINK_PATH
        async with asyncio.timeout(DIAL_SECONDS):
            return await session.ws_connect(
                url,
                headers=headers,
                ssl=self._dialing.trust() if url.startswith("wss://") else False,
                server_hostname=self._dialing.server_name,
                max_msg_size=LINK_BYTES,
            )

    async def _hang_up(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        with suppress(TimeoutError, OSError, aiohttp.ClientError):
            async with asyncio.timeout(SIGN_SECONDS):
                await socket.close()

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse, leader: LeaderAt) -> str:
        while True:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    frame = await socket.receive()
            except TimeoutError:
                return f"the leader is silent for {SILENT_SECONDS:.0f} s"
            if frame.type in ENDED:
                return f"the leader closed it, code {socket.close_code}"
            self.down += len(frame.data)
            if (why := self.hear(leader, str(frame.data))) is not None:
                return why

    def hear(self, leader: LeaderAt, text: str) -> str | None:
        """Take a batch that came on the link to this leader; returns why the link has to end."""
        term, entries = decode_batch(text)
        if term != leader.term:
            return f"it names the term {term}, and the Lease has {leader.term}"
        now = time.monotonic()
        if not self._desk.term:
            self._linked(leader, now)
        if now >= self._linked_at + HELD_SECONDS:
            self._unreached = None
        for one in self._desk.heard(entries):
            self._hand_on(self._connections[one.session], one)
        return None

    def _linked(self, leader: LeaderAt, now: float) -> None:
        log.info("linked to the leader at %s, with %d sidecars", leader.url, len(self))
        self._linked_at, self._said = now, ""
        self._desk.link(leader.term)
        self._news.set()

    def _hand_on(self, connection: Connection, entry: Say | Close) -> None:
        match entry:
            case Say(_, kind, _, text):
                connection.put(kind, text)
            case Close(_, code, reason):
                connection.outlet.close_soon(CloseFrame(code, reason))

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, leader: LeaderAt) -> str:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_SECONDS):
                    await self._news.wait()
            self._news.clear()
            text, more = self.batch(leader)
            await socket.send_str(text)
            self.up += len(text)
            if more:
                self._news.set()

    def batch(self, leader: LeaderAt) -> tuple[str, bool]:
        """Return what goes to this leader next, and whether there may be more."""
        text = encode_batch(leader.term, self._desk.news(time.monotonic()))
        return text, self._desk.has_news

    async def _until_deposed(self, leader: LeaderAt) -> str:
        while self._find() == leader:  # noqa: ASYNC110 - the Lease expires by a clock, which sets no event
            await asyncio.sleep(LOOK_SECONDS)
        return "the Lease names another leader, or none"

    def unlink(self) -> None:
        """What the leader said and no sidecar has got must not reach it later."""
        if self._desk.term:
            self._desk.unlink()
            for connection in self._connections.values():
                connection.outlet.withdraw()
            self._give_signs()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            self._intake.tidy()
            if not self._desk.term:
                self._give_signs()

    def _give_signs(self) -> None:
        if self.can_serve:
            in_slices(iter(tuple(self._connections.values())), lambda one: one.put(SIGN_OF_LIFE, ""))

    def _close_all(self, frame: CloseFrame) -> None:
        for connection in tuple(self._connections.values()):
            connection.outlet.close_soon(frame)


def pause_after(unreached_seconds: float) -> float:
    """Return how many seconds to leave a leader alone that could not be reached for so long."""
    return min(MOST_PAUSE_SECONDS, unreached_seconds / 4)


def counted(relay: Relay | None, links: Links | None) -> tuple[Counts, Counts]:
    """The metrics of a replica's relay, and of the links to it while it leads; None: replicas don't relay."""
    connected = {
        "sidecar": 0 if relay is None else len(relay),
        "leader": relay is not None and relay.is_linked,
        "relay": 0 if links is None else len(links),
    }
    passed = {"up": 0 if relay is None else relay.up, "down": 0 if relay is None else relay.down}
    return (
        Counts(
            "gangctl_relay_connections",
            "Connections of a relay: sidecars, its link to the leader, links to it.",
            "peer",
            connected,
            GaugeMetricFamily,
        ),
        Counts(
            "gangctl_relay_bytes",
            "Bytes to and from leaders.",
            "direction",
            passed,
        ),
    )


def _said(error: Exception) -> str:
    """What went wrong, in the same words each time that it does."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return str(inner) or type(inner).__name__
