"""The connections of sidecars: the messages that wait to be sent, the last directive, and which connection is a pod's.

The rule: of each kind of message only the newest waits, so a slow receiver costs the memory of one message and delays
no other connection. What waits must not be sent once this process leads no more: then the connection ends. A pod has
one connection, its newest; what ends late must not remove the connection that has taken its place.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol

from gangctl.cluster.port import MemberIdentity
from gangctl.controller.gate import Gate
from gangctl.controller.reports import imports_text
from gangsidecar import wire

CLOSE_SECONDS: Final = 1.0
"""The time for the closing handshake; after that the connection is aborted."""
QUERY_AGAIN_SECONDS: Final = 1.0
"""The same scan or check is not sent again before: plans ask for it until they have an answer."""
ABORTED: Final = 1006
"""The close code that is never sent: the connection ended without a close frame."""
SIGN_OF_LIFE: Final = ""
"""The kind of message that is a ping of WebSocket itself: the sidecar's program takes it, its supervisor never does."""
_MAX_CLOSE_REASON: Final = 120
"""Bytes. A close frame has room for 123."""
_TEXT: Final = 0x80 | aiohttp.WSMsgType.TEXT
_PING: Final = 0x80 | aiohttp.WSMsgType.PING
_SHORT: Final = 125
"""Bytes, at most, whose number stands in the second byte of a frame."""

DirectiveOf = Callable[[wire.Report], wire.Directive | None]
"""The directive for the supervisor that sent a report, as follows from a stored object; None if there is none."""


@dataclass(frozen=True, slots=True)
class CloseFrame:
    """Why this side closes a connection."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Sent:
    """A computed directive, and the inputs that it depends on."""

    directive_of: DirectiveOf
    session: str
    attempt: int
    phase: wire.Phase
    directive: wire.Directive | None

    def is_for(self, directive_of: DirectiveOf, report: wire.Report) -> bool:
        """Return whether the inputs are the same."""
        inputs = (self.session, self.attempt, self.phase)
        return self.directive_of is directive_of and inputs == (report.session, report.attempt, report.phase)


async def until_first(*parts: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run the parts of a connection until one has ended, and end the others; returns each one's result or error."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    return results


class Outlet(Protocol):
    """Carries messages to a sidecar: over its socket, or over the link of its relay."""

    def put(self, kind: str, text: str) -> None:
        """Send the message soon. It replaces a message of its kind that still waits."""

    def close_soon(self, frame: CloseFrame) -> None:
        """Close the sidecar's connection soon; the first frame counts."""

    def withdraw(self) -> None:
        """Forget what waits to be sent."""

    def abort(self) -> None:
        """End the connection at once: nothing more is sent, not even what is in a buffer."""


class SocketOutlet:
    """The sidecar's own WebSocket. What it takes is written at once; a task waits only where it takes no more."""

    def __init__(
        self, socket: web.WebSocketResponse, protocol: BaseProtocol, writer: AbstractStreamWriter, gate: Gate
    ) -> None:
        """``protocol`` and ``writer``: those of its request."""
        self.socket = socket
        self._gate = gate
        self._protocol = protocol
        self._writer = writer
        self._closing: asyncio.Future[CloseFrame] = asyncio.get_running_loop().create_future()
        self._waiting: dict[str, str] = {}
        """Kind of message -> the newest one."""
        self._wakeup = asyncio.Event()

    def put(self, kind: str, text: str) -> None:
        """Send the message soon; see :class:`Outlet`."""
        self._waiting[kind] = text
        self._write()

    def withdraw(self) -> None:
        """Forget what waits to be sent."""
        self._waiting.clear()

    def close_soon(self, frame: CloseFrame) -> None:
        """Ask for the connection to be closed; the first frame counts."""
        if not self._closing.done():
            self._closing.set_result(frame)

    async def closing(self) -> CloseFrame:
        """Wait until the connection is to be closed, and return why."""
        return await asyncio.shield(self._closing)

    async def run_sender(self) -> None:
        """Send what waits as often as a slow receiver takes more, until the connection breaks."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await self._writer.drain()
            self._write()

    def _write(self) -> None:
        """Send what waits, while the receiver takes it."""
        transport = self._protocol.transport
        while self._waiting and transport is not None and not transport.is_closing():
            if self._protocol.writing_paused:  # Until it takes more, newer messages can still replace these.
                self._wakeup.set()
                return
            if not self._gate.is_open:  # It was frozen since the message was made, or the receiver was slow.
                self.abort()
                return
            # In the order of their kinds' first message: the ping that prolongs a lease comes before its Run.
            kind = next(iter(self._waiting))
            transport.write(framed(kind, self._waiting.pop(kind)))

    def abort(self) -> None:
        """End the connection at once; see :class:`Outlet`."""
        self.withdraw()
        self._abort_transport()
        self.close_soon(CloseFrame(ABORTED, "aborted"))

    async def close(self, frame: CloseFrame) -> None:
        """Do the closing handshake, but don't wait long for the answer."""
        if frame.code == ABORTED:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                reason = frame.reason.encode()[:_MAX_CLOSE_REASON]
                await self.socket.close(code=frame.code, message=reason, drain=False)
        except (TimeoutError, ConnectionError):
            self._abort_transport()

    def _abort_transport(self) -> None:
        if self._protocol.transport is not None:
            self._protocol.transport.abort()


def framed(kind: str, text: str) -> bytes:
    """The frame of a message as a server sends it (RFC 6455, section 5.2): whole, neither masked nor compressed."""
    payload = text.encode()
    size, first = len(payload), _PING if kind == SIGN_OF_LIFE else _TEXT
    if size <= _SHORT:
        return struct.pack("!BB", first, size) + payload
    if size < 1 << 16:
        return struct.pack("!BBH", first, _SHORT + 1, size) + payload
    return struct.pack("!BBQ", first, _SHORT + 2, size) + payload


class Connection:
    """The connection of an authenticated sidecar. Times are seconds on the monotonic clock.

    A message that is too large raises WireError where it is to be sent.
    """

    def __init__(self, identity: MemberIdentity, outlet: Outlet, order: int, revision: int) -> None:
        """``order``: grows with each connection of a pod; ``revision``: of the wire, as the sidecar has it."""
        self.identity = identity
        self.outlet = outlet
        self.order = order
        self.revision = revision
        self.last_report_at = self.pinged_at = time.monotonic()
        self.has_reported = False
        """Whether its supervisor has sent a report on this connection."""
        self.was_asked = False
        """Whether a scan was sent on it: answers are larger than reports."""
        self.pauses = 0
        """Before how many of its messages in a row it was not read for a while."""
        self._directive: _Sent | None = None
        self._queries: dict[type, tuple[wire.Scan | wire.Check, float]] = {}
        """Kind -> the last scan or check, and when it was sent."""
        self._imports: tuple[str, bytes] | None = None
        """The session that got a list of imports last, and the list."""

    def put(self, kind: str, text: str) -> None:
        """Send a message of this kind soon, in place of one that still waits."""
        self.was_asked = self.was_asked or kind == wire.Scan.__name__
        self.outlet.put(kind, text)

    def send(self, message: wire.Directive | wire.Ping | wire.Scan | wire.Check) -> None:
        """Send the message soon. It replaces a message of its kind that still waits."""
        self.put(type(message).__name__, wire.encode(wire.in_revision(message, self.revision)))

    def ping(self, heard: wire.Report | None, now: float) -> None:
        """Tell the supervisor which of its reports was heard last; None if no report came on this connection."""
        self.pinged_at = now
        self.send(wire.Ping(heard_ms=0 if heard is None else heard.sent_ms))

    def send_directive(self, report: wire.Report, directive_of: DirectiveOf) -> None:
        """Send the directive that follows from ``report``, unless this session has it already."""
        before = self._directive
        if not self.has_reported or (before is not None and before.is_for(directive_of, report)):
            return
        directive = directive_of(report)
        has_it = before is not None and before.session == report.session and before.directive == directive
        self._directive = _Sent(directive_of, report.session, report.attempt, report.phase, directive)
        if directive is not None and not has_it:
            self.send(directive)

    def send_query(self, query: wire.Scan | wire.Check, now: float) -> None:
        """Send the scan or check soon, unless it was sent less than :data:`QUERY_AGAIN_SECONDS` ago."""
        before, at = self._queries.get(type(query), (None, 0.0))
        if before == query and now < at + QUERY_AGAIN_SECONDS:
            return
        self._queries[type(query)] = query, now
        self.send(query)

    def send_imports(self, session: str, packed: bytes, *, beside: bool) -> None:
        """Send this list of imports soon, unless this session has it already. ``beside``: the gang trains."""
        if self._imports != (session, packed):
            self._imports = session, packed
            self.put(wire.Imports.__name__, imports_text(packed, self.revision, beside=beside))


class Connections:
    """All of them."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Connection] = {}
        self._by_gang: dict[str, dict[str, Connection]] = {}
        """UID of the gang -> UID of the pod -> its connection."""

    def __len__(self) -> int:
        """Return how many pods are connected."""
        return len(self._by_pod)

    def get(self, pod: str) -> Connection | None:
        """The connection of a pod (UID)."""
        return self._by_pod.get(pod)

    def add(self, connection: Connection) -> Connection | None:
        """Make it the connection of its pod, and return its former connection."""
        who = connection.identity
        before = self._by_pod.get(who.pod)
        if before is not None:
            self.remove(before)
        self._by_pod[who.pod] = self._by_gang.setdefault(who.gang, {})[who.pod] = connection
        return before

    def remove(self, connection: Connection) -> bool:
        """It has ended; return whether it was still the connection of its pod."""
        who = connection.identity
        if self._by_pod.get(who.pod) is not connection:
            return False
        del self._by_pod[who.pod], self._by_gang[who.gang][who.pod]
        if not self._by_gang[who.gang]:
            del self._by_gang[who.gang]
        return True

    def all(self) -> Iterator[Connection]:
        """Those of now. One that ends before its turn is left out."""
        return self._present(tuple(self._by_pod))

    def of(self, gang: str) -> Iterator[Connection]:
        """Those of a gang (UID). One that ends before its turn is left out."""
        return self._present(tuple(self._by_gang.get(gang, ())))

    def clear(self) -> None:
        """Forget all."""
        self._by_pod.clear()
        self._by_gang.clear()

    def _present(self, pods: tuple[str, ...]) -> Iterator[Connection]:
        return (self._by_pod[pod] for pod in pods if pod in self._by_pod)
