"""Links: the leader's end. Each relay has one, and the sidecars behind it are connections of the hub like any other.

The rule: a link is taken only from a replica, by a token of the replicas' own account, and only while this process
leads; it names its term. What the sidecars of all relays send is taken in turns of their namespaces, of each session
and kind only the newest. A link that ends or is silent ends its sessions, and that silence is the relay's
(:meth:`Hub.relay_lost`). A relay has one link, its newest.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import aiohttp
from aiohttp import web

from gangctl.cluster.port import Refusal
from gangctl.controller.connection import CloseFrame, Connection, until_first
from gangctl.controller.gate import ENDED, ConnectionRefusal, MessageError, bearer_token, parse_text, refused
from gangctl.controller.hub import Hub
from gangctl.controller.intake import FLOODS
from gangctl.controller.relaying import (
    FROM_SIDECARS,
    LINK_BYTES,
    Beat,
    Close,
    Entry,
    Gone,
    Open,
    Roster,
    Say,
    decode_batch,
    encode_batch,
)
from gangctl.controller.turns import SLICE, Turns
from gangsidecar import wire

log = logging.getLogger(__name__)

LINK_PATH: Final = "/v1/relay"
RELAY_HEADER: Final = "Gang-Relay"
"""Which replica the relay is."""
SIGN_SECONDS: Final = 1.0
"""Each side of a link sends something so often."""
SILENT_SECONDS: Final = 5.0
"""A link on which nothing comes for so long has ended: sooner than its members would count as silent."""

MAX_SESSIONS: Final = 1 << 16
"""Of one link: each has a socket at the relay."""

AuthenticateReplica = Callable[[str], Awaitable[Refusal | None]]
"""None if the token is one of the replicas' own account."""


class Links:
    """All links of the leader."""

    def __init__(self, hub: Hub, authenticate: AuthenticateReplica, term: Callable[[], str]) -> None:
        """``term``: that of this process, while it leads."""
        self._hub = hub
        self._authenticate = authenticate
        self._term = term
        self._turns = Turns()
        self._links: dict[str, _Link] = {}
        self._asking: set[str] = set()
        """Addresses of which a token is checked. Each has one, or one client could fill the queue of reviews."""

    def __len__(self) -> int:
        """Return how many relays are linked."""
        return len(self._links)

    def end_term(self) -> None:
        """Abort every link: this process does not lead any more."""
        for link in self._links.values():
            link.abort()

    async def handle(self, request: web.Request, admit: Callable[[], None]) -> web.StreamResponse:
        """Serve the link of a relay until it ends."""
        name = request.headers.get(RELAY_HEADER, "")
        address = str(request.remote)
        if address in self._asking:
            text = "another link of this address is being authenticated"
            self._hub.refusals.add(ConnectionRefusal.TOO_MANY, address, text)
            return refused(503, text)
        self._asking.add(address)
        try:
            refusal = await self._authenticate(bearer_token(request))
        finally:
            self._asking.discard(address)
        if refusal is not None:
            self._hub.refusals.add(refusal.reason, f"a relay at {address}", refusal.text)
            return refused(503 if refusal.retryable else 401, f"{refusal.reason}: {refusal.text}")
        if not self._hub.gate.is_open:
            return refused(503, "this controller does not lead")
        socket = web.WebSocketResponse(max_msg_size=LINK_BYTES, compress=False)
        await socket.prepare(request)
        admit()
        link = _Link(self._hub, self._turns, socket, request.transport, self._term())
        older, self._links[name] = self._links.get(name), link
        if older is not None:
            older.abort()
            older.end()
        log.info("the relay %s is linked", name)
        try:
            why = await link.serve()
            log.warning("the link of the relay %s has ended: %s", name, why)
        except wire.WireError as error:
            self._hub.refusals.add(ConnectionRefusal.MALFORMED, f"the relay {name}", str(error))
        finally:
            link.end()
            if self._links.get(name) is link:
                del self._links[name]
        return socket


class _Link:
    """One of them."""

    def __init__(
        self,
        hub: Hub,
        turns: Turns,
        socket: web.WebSocketResponse,
        transport: asyncio.BaseTransport | None,
        term: str,
    ) -> None:
        self._hub = hub
        self._turns = turns
        self._socket = socket
        self._transport = transport
        self._term = term
        self._sessions: dict[int, Connection] = {}
        self._has_ended = False
        """What is left of a batch must not be taken then: the next term would begin with it."""
        self._roster = Roster()
        self._waiting: dict[tuple[int, str], Entry] = {}
        """Session and kind -> what waits to be sent."""
        self._wakeup = asyncio.Event()
        self._wakeup.set()  # The first batch tells the relay the term.

    async def serve(self) -> str:
        """Send and receive until the link ends, and return why.

        Raises:
            wire.WireError: the relay sent what no relay sends.
        """
        try:
            results = await until_first(self._receive(), self._send())
        finally:
            self.abort()
        for result in results:
            if isinstance(result, wire.WireError):
                raise result
            if isinstance(result, Exception) and not isinstance(result, OSError | aiohttp.ClientError):
                log.error("a link crashed, which is a bug", exc_info=result)
        return next((str(one) for one in results if isinstance(one, str | Exception)), "aborted")

    def end(self) -> None:
        """Its sessions end."""
        self._has_ended = True
        sessions, self._sessions = self._sessions, {}
        self._hub.relay_lost(sessions.values())

    def abort(self) -> None:
        """End it at once: nothing more is sent or taken, not even what is in a buffer."""
        self._has_ended = True
        self._waiting.clear()
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()

    def put(self, entry: Say | Close) -> None:
        """Send it soon; it replaces one of its kind that still waits."""
        self._waiting[entry.session, entry.kind if isinstance(entry, Say) else Close.__name__] = entry
        self._wakeup.set()

    def withdraw(self, session: int) -> None:
        """Forget what waits to be sent to the sidecar of this session."""
        self._waiting = {key: entry for key, entry in self._waiting.items() if key[0] != session}

    async def _send(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_SECONDS):
                    await self._wakeup.wait()
            text = self.batch()
            if not self._waiting:
                self._wakeup.clear()
            if not self._hub.gate.is_open:
                self.abort()
                return
            await self._socket.send_str(text)

    def batch(self) -> str:
        """Return what goes to the relay next. Until then, newer messages replace those that wait."""
        return encode_batch(self._term, self._leaving())

    def _leaving(self) -> Iterator[Entry]:
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))

    async def _receive(self) -> str:
        while True:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    frame = await self._socket.receive()
            except TimeoutError:
                return f"nothing came for {SILENT_SECONDS:.0f} s"
            if frame.type in ENDED:
                return f"closed, code {self._socket.close_code}"
            if frame.type is aiohttp.WSMsgType.TEXT:
                term, entries = decode_batch(frame.data)
                if term != self._term:
                    return f"the relay follows the term {term}"
                for at, entry in enumerate(entries):
                    self._take(entry)
                    if at % SLICE == SLICE - 1:
                        await asyncio.sleep(0)  # A relay with all its sessions must not keep the loop from all else.

    def _take(self, entry: Entry) -> None:
        if self._has_ended:
            return
        connection = self._sessions.get(entry.session)
        match entry:
            case Open(session, identity, revision, order):
                if connection is not None or len(self._sessions) >= MAX_SESSIONS:
                    raise wire.WireError(f"it opens the session {session}, beside {len(self._sessions)}")
                outlet = _Outlet(self, session)
                opened = Connection(identity, outlet, order, revision)
                self._sessions[session] = opened
                self._hub.opened(opened)
            case Gone(session) if connection is not None:
                if self._hub.intake.owed(connection) == 0:  # What it said last may have come with this batch.
                    self._look(session, connection)
                del self._sessions[session]
                self._roster.forget(session)
                self._hub.ended(connection)
            case Say(kind=kind) if kind not in FROM_SIDECARS:
                pass
            case Say() | Beat() if connection is not None:
                if self._roster.put(entry):
                    self._look_later(entry.session, connection)

    def _look_later(self, session: int, connection: Connection) -> None:
        """Take what waits of this session in a turn of its namespace; later, if the session owes for what it said."""
        look = partial(self._look, session, connection)
        turn = partial(self._turns.put, connection.identity.namespace, look)
        seconds = self._hub.intake.owed(connection)
        if seconds is None:
            connection.outlet.close_soon(self._hub.server.refuse(connection, ConnectionRefusal.FLOODING, FLOODS))
        elif seconds:
            asyncio.get_running_loop().call_later(seconds, turn)
        else:
            turn()

    def _look(self, session: int, connection: Connection) -> None:
        if self._sessions.get(session) is connection and self._hub.is_current(connection):
            frame = self._hub.intake.charge(connection, partial(self._said, session, connection))
            if frame is not None:
                connection.outlet.close_soon(frame)

    def _said(self, session: int, connection: Connection) -> CloseFrame | None:
        parse = partial(parse_text, sender=connection.identity, was_asked=connection.was_asked)
        try:
            for message in self._roster.take(session, parse):
                self._hub.accept(connection, message)
        except MessageError as error:
            frame = CloseFrame(aiohttp.WSCloseCode.POLICY_VIOLATION, str(error))
            return self._hub.server.refuse(connection, error.reason, frame)
        return None


class _Outlet:
    """The way to a sidecar behind a relay."""

    def __init__(self, link: _Link, session: int) -> None:
        self._link = link
        self._session = session

    def put(self, kind: str, text: str) -> None:
        """Send the message soon; see :class:`Outlet`."""
        self._link.put(Say(self._session, kind, 0, text))

    def close_soon(self, frame: CloseFrame) -> None:
        """Let the relay close the sidecar's connection."""
        self._link.put(Close(self._session, frame.code, frame.reason))

    def withdraw(self) -> None:
        """Forget what waits to be sent to this sidecar."""
        self._link.withdraw(self._session)

    def abort(self) -> None:
        """End the whole link: what is in its buffer is for all."""
        self._link.abort()
