"""The gate of the hub: which sidecars connect, what they may send, and how refusals are counted and logged.

The rule: this process speaks as the leader only while :attr:`Gate.is_open`, which is asked directly before it does.
A standby answers 503 with the leader's address. An unknown token is answered 401, or 503 if the same token may be
accepted in a moment. No token must get into an answer or into the log.

A sidecar sends reports of its own member, its own pod's answers to scans, and what its worker imports. Any other
message closes its connection, must not touch another connection, and is forgotten. What is larger than a real report
must not even be decoded.

All refusals are counted, and so few are logged that a flood does not flood the log.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum
from itertools import chain
from typing import Final

from aiohttp import WSMessage, WSMsgType, web

from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangsidecar import wire
from gangsidecar.wire import LEADER_HEADER

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 5.0
"""After a line about a reason, the next line about the same reason comes this much later at the earliest."""


class ConnectionRefusal(StrEnum):
    """Why the hub refuses or closes a connection, apart from its token: for that see :class:`RefusalReason`."""

    STANDBY = "Standby"
    """This process does not lead. The answer names the leader."""
    TOO_MANY = "TooMany"
    """Too many connections are not authenticated yet."""
    TOO_SLOW = "TooSlow"
    """The client was not authenticated in time."""
    NO_REQUEST = "NoRequest"
    """The client did not send an HTTP request."""
    BROKEN = "Broken"
    """The client violated the WebSocket protocol, or sent a message that is too large."""
    MALFORMED = "Malformed"
    """The sidecar sent what is not a message of a sidecar."""
    FLOODING = "Flooding"
    """The pod's messages took more than its share of the controller's time, again and again."""
    WRONG_IDENTITY = "WrongIdentity"
    """The sidecar sent a message about another pod."""
    SUPERSEDED = "Superseded"
    """The pod has a newer connection."""


class RefusalLog:
    """Counts refusals by reason, and logs some of them. The reasons are the label values of a metric."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(chain(RefusalReason, ConnectionRefusal), 0))
        """Every reason is there from the beginning, since Prometheus sees no increase in a series that is new."""
        self._logged: dict[str, tuple[float, int]] = {}
        """Reason -> when it was logged last, and its count at that time."""

    def add(self, reason: RefusalReason | ConnectionRefusal, peer: str, text: str) -> None:
        """Count a refusal. ``peer`` (an address) and ``text`` (a sentence) are for the log."""
        self.counts[reason] += 1
        now, count = time.monotonic(), self.counts[reason]
        at, before = self._logged.get(reason, (-QUIET_SECONDS, 0))
        if now - at < QUIET_SECONDS:
            return
        self._logged[reason] = now, count
        others = count - before - 1
        more = f" ({others} more since the last such line)" if others else ""
        log.warning("refused, %s: %s: %s%s", reason, peer, text, more)


Authenticate = Callable[[str], Awaitable[MemberIdentity | Refusal]]
"""The member that a token belongs to, or why it belongs to none."""
Leader = Callable[[], str | None]
"""None while this process leads; else the leader's URL, or empty if no leader is known."""


class Gate:
    """Whether this process may speak as the leader, and which sidecars it lets in."""

    def __init__(self, authenticate: Authenticate, leader: Leader, refusals: RefusalLog) -> None:
        self._authenticate = authenticate
        self._leader = leader
        self._refusals = refusals

    @property
    def is_open(self) -> bool:
        """Return whether this process leads now. A process that was frozen may not have noticed yet that it doesn't."""
        return self._leader() is None

    async def check(self, request: web.Request) -> MemberIdentity | web.Response:
        """Find the member whose sidecar asks for a WebSocket; else return the answer that refuses it."""
        if (leader := self._leader()) is not None:
            return self._refuse_as_standby(leader)
        identity = await self._identity(request)
        if isinstance(identity, Refusal):
            self._refusals.add(identity.reason, str(request.remote), identity.text)
            return refused(503 if identity.retryable else 401, f"{identity.reason}: {identity.text}")
        if (leader := self._leader()) is not None:  # It lost its Lease during the authentication.
            return self._refuse_as_standby(leader)
        return identity

    def _refuse_as_standby(self, leader: str) -> web.Response:
        self._refusals.counts[ConnectionRefusal.STANDBY] += 1
        answer = refused(503, f"this controller does not lead; the leader is {leader or 'not known'}")
        if leader:
            answer.headers[LEADER_HEADER] = leader
        return answer

    async def _identity(self, request: web.Request) -> MemberIdentity | Refusal:
        if token := bearer_token(request):
            return await self._authenticate(token)
        return Refusal(RefusalReason.NO_TOKEN, "the header Authorization has no bearer token")


def bearer_token(request: web.Request) -> str:
    """Return the token in the header Authorization; empty if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def refused(status: int, text: str) -> web.Response:
    """Return an answer without an upgrade, after which the client has to connect again."""
    answer = web.Response(status=status, text=text)
    answer.force_close()
    return answer


class MessageError(Exception):
    """A message that a sidecar must not send."""

    def __init__(self, reason: ConnectionRefusal, text: str) -> None:
        """``text``: what was wrong, for the log and for the sidecar."""
        super().__init__(text)
        self.reason = reason


ENDED: Final = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})
CONTROL: Final = frozenset({WSMsgType.PING, WSMsgType.PONG})
"""Frames of WebSocket itself: the answers to the controller's own pings. A sidecar sends no pings."""


def parse_message(
    frame: WSMessage, sender: MemberIdentity, *, was_asked: bool
) -> wire.Report | wire.Scanned | wire.Imports:
    """Read the message in a frame that came from ``sender``. ``was_asked``: it may be the answer to a scan.

    Raises:
        MessageError: it is malformed, or it is about another pod.
    """
    if frame.type is not WSMsgType.TEXT:
        raise MessageError(ConnectionRefusal.MALFORMED, f"a {frame.type.name} frame instead of text")
    return parse_text(frame.data, sender, was_asked=was_asked)


def parse_text(text: str, sender: MemberIdentity, *, was_asked: bool) -> wire.Report | wire.Scanned | wire.Imports:
    """Read a text that came from ``sender``; see :func:`parse_message`."""
    limit = wire.MAX_BYTES if was_asked else wire.MAX_REPORT_BYTES
    if len(text) > limit:
        raise MessageError(ConnectionRefusal.MALFORMED, f"a report of {len(text)} bytes, over {limit}")
    try:
        message = wire.decode(text)
    except wire.WireError as error:
        raise MessageError(ConnectionRefusal.MALFORMED, str(error)) from None
    match message:
        case wire.Report():
            claimed = MemberIdentity(message.gang, message.member, message.incarnation, message.pod)
            if claimed != sender:
                other = f"{claimed.member!r:.20}, incarnation {claimed.incarnation}, pod {claimed.pod!r:.40}"
                raise MessageError(ConnectionRefusal.WRONG_IDENTITY, f"a report of another member: {other}")
            return message
        case wire.Scanned():
            if message.pod != sender.pod:
                why = f"an answer to a scan from another pod: {message.pod!r:.40}"
                raise MessageError(ConnectionRefusal.WRONG_IDENTITY, why)
            return message
        case wire.Imports():
            if (message.gang, message.pod) != (sender.gang, sender.pod):
                why = f"a list of imports of another pod: {message.pod!r:.40}"
                raise MessageError(ConnectionRefusal.WRONG_IDENTITY, why)
            if (size := len(text.encode())) > wire.MAX_IMPORTS_BYTES:  # It is encoded anew, in ASCII.
                raise MessageError(ConnectionRefusal.MALFORMED, f"a list of imports of {size} bytes")
            return message
        case _:
            kind = type(message).__name__
            raise MessageError(ConnectionRefusal.MALFORMED, f"a {kind} doesn't come from a sidecar")
