"""Refused and closed connections: all are counted, and so few are logged that a flood does not flood the log."""

from __future__ import annotations

import logging
import time
from collections import Counter
from enum import StrEnum
from itertools import chain
from typing import Final

from gangctl.cluster.port import RefusalReason

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
