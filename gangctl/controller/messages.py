"""The messages that a sidecar may send: a report of its own member, and its own pod's answer to a scan. Pure.

The rule: any other message closes the connection that it came on. It must not touch any other connection, and nothing
of it is kept. A report is as large as a real one can be: what is larger must not even be decoded.
"""

from __future__ import annotations

from typing import Final

from aiohttp import WSMessage, WSMsgType

from gangctl.cluster.port import MemberIdentity
from gangctl.controller.refusals import ConnectionRefusal
from gangsidecar import wire


class MessageError(Exception):
    """A message that a sidecar must not send."""

    def __init__(self, reason: ConnectionRefusal, text: str) -> None:
        """``text``: what was wrong, for the log and for the sidecar."""
        super().__init__(text)
        self.reason = reason


CLOSED: Final = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED})
CONTROL: Final = frozenset({WSMsgType.PING, WSMsgType.PONG})
"""Frames of WebSocket itself: the answers to the controller's own pings. A sidecar sends no pings."""


def received(frame: WSMessage, sender: MemberIdentity, *, was_asked: bool) -> wire.Report | wire.Scanned:
    """The message in a frame that came from ``sender``. ``was_asked``: it may be the answer to a scan.

    Raises:
        MessageError: it is malformed, or it is about another pod.
    """
    if frame.type is not WSMsgType.TEXT:
        raise MessageError(ConnectionRefusal.MALFORMED, f"a {frame.type.name} frame instead of text")
    limit = wire.MAX_BYTES if was_asked else wire.MAX_REPORT_BYTES
    if len(frame.data) > limit:
        raise MessageError(ConnectionRefusal.MALFORMED, f"a report of {len(frame.data)} bytes, over {limit}")
    try:
        message = wire.decode(frame.data)
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
                text = f"an answer to a scan from another pod: {message.pod!r:.40}"
                raise MessageError(ConnectionRefusal.WRONG_IDENTITY, text)
            return message
        case _:
            kind = type(message).__name__
            raise MessageError(ConnectionRefusal.MALFORMED, f"a {kind} doesn't come from a sidecar")
