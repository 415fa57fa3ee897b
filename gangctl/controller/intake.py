"""Take the hub's messages in so that one pod or namespace delays no other: each has a share of the controller's time.

The rule: messages are taken in turns (``turns.py``). What a message cost is paid after it, at the rate of the share;
what has been saved up is at most ``burst``.

    paid(x)  = max(paid(x), now) + cost / rate        for the pod and for its namespace
    pause    = max(0, paid(x) - now - burst / rate)   the longer of the two

So nothing is refused: a connection whose messages cost more is read later, and its sidecar, which sends whole states,
sends only the newest. A report that waits for its turn gives way to the next one: however late the turn comes, what is
taken is new. A member that works must never be paused. What a pod owes must outlive its connection: else it would only
have to connect again. A pod that goes on all the same reads why in the close frame of its connection.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

import aiohttp

from gangctl.controller.connection import CloseFrame, Connection
from gangctl.controller.turns import Turns
from gangsidecar import wire

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopShare:
    """A part of the loop's time."""

    rate: float
    """Seconds per second, in the long run."""
    burst: float
    """Seconds that may be taken at once."""


class Owner(StrEnum):
    """Whose share is used up. Label values of a metric."""

    POD = "Pod"
    NAMESPACE = "Namespace"


SHARES: Final = {Owner.POD: LoopShare(0.05, 0.5), Owner.NAMESPACE: LoopShare(0.5, 2.0)}
"""A report costs about 0.1 ms, the largest possible one about 10 ms. A member sends one a second at most, and a few
with each restart."""
LONGEST_PAUSE: Final = 5.0
"""Seconds: directives are still sent, and the connection must not look dead."""


@dataclass(frozen=True, slots=True)
class Pause:
    """How long a connection is not read, and whose share is used up."""

    seconds: float
    owner: Owner


class Shares:
    """What all pods and namespaces have spent. Times are seconds on a monotonic clock."""

    def __init__(self) -> None:
        self._paid: dict[tuple[Owner, str], float] = {}
        """Until when the share has been spent; left out once that has passed."""

    def spend(self, pod: str, namespace: str, cost: float, now: float) -> None:
        """A message of this pod took ``cost`` seconds."""
        self.spend_of(Owner.POD, pod, cost, now)
        self.spend_of(Owner.NAMESPACE, namespace, cost, now)

    def spend_of(self, owner: Owner, name: str, cost: float, now: float) -> None:
        """``cost`` seconds of this share alone are spent."""
        self._paid[owner, name] = max(self._paid.get((owner, name), now), now) + cost / SHARES[owner].rate

    def pause(self, pod: str, namespace: str, now: float) -> Pause | None:
        """The pause before the next message of this pod is read; None if there is none."""
        pauses = (self._pause(Owner.POD, pod, now), self._pause(Owner.NAMESPACE, namespace, now))
        longest = max(pauses, key=lambda pause: pause.seconds)
        return longest if longest.seconds > 0 else None

    def forget_paid(self, now: float) -> None:
        """Forget those that owe nothing any more."""
        self._paid = {one: until for one, until in self._paid.items() if until > now}

    def _pause(self, owner: Owner, name: str, now: float) -> Pause:
        share = SHARES[owner]
        owed = self._paid.get((owner, name), now) - now - share.burst / share.rate
        return Pause(min(LONGEST_PAUSE, max(0.0, owed)), owner)


FLOOD: Final = 20
"""A pod that was paused before so many messages in a row, for its own share, has to connect again."""
FLOODS: Final = CloseFrame(
    aiohttp.WSCloseCode.POLICY_VIOLATION,
    f"its pod floods the controller: its messages take over {SHARES[Owner.POD].rate:.0%} of the controller's time",
)
CONNECTION_SECONDS: Final = 0.02
"""What a connection costs its pod. Not its namespace, whose members all connect at once after a leader's end."""
CONTROL_SECONDS: Final = 0.0002
"""What a ping, a pong, or a report that isn't taken costs: most of it is spent before it can be measured."""
READ_BYTES: Final = 32 * 1024
"""To read so many takes as long again."""
VIOLATION_SECONDS: Final = 0.1
"""What a message costs that closes its connection: as much as a new connection, and more."""
TOLD_SECONDS: Final = 1.0
"""Shorter pauses are not logged."""
QUIET_SECONDS: Final = 5.0
"""After a line about a share, the next one about the same kind comes this much later at the earliest."""


class Intake:
    """The messages of all connections."""

    def __init__(self) -> None:
        self.pauses: Counter[str] = Counter(dict.fromkeys(Owner, 0))
        """How many messages were read later, by whose share was used up."""
        self._turns = Turns()
        self._shares = Shares()
        self._logged: dict[Owner, float] = {}

    def opened(self, connection: Connection) -> None:
        """A sidecar has connected."""
        self._shares.spend_of(Owner.POD, connection.identity.pod, CONNECTION_SECONDS, time.monotonic())

    def control(self, connection: Connection) -> bool:
        """Take a ping or a pong; return whether its pod floods. No pause: old aiohttp buffers them without end."""
        who, now = connection.identity, time.monotonic()
        self._shares.spend(who.pod, who.namespace, CONTROL_SECONDS, now)
        found = self._shares.pause(who.pod, who.namespace, now)
        if found is None or found.owner is not Owner.POD:
            return False
        self._shares.spend(who.pod, who.namespace, VIOLATION_SECONDS, now)
        return True

    async def pause(self, connection: Connection) -> bool:
        """Wait until this connection may be read again, unless its pod floods; return whether it does."""
        seconds = self.owed(connection)
        if seconds:
            await asyncio.sleep(seconds)
        return seconds is None

    def owed(self, connection: Connection) -> float | None:
        """Seconds until the next message of this connection may be taken; None: its pod floods."""
        who = connection.identity
        found = self._shares.pause(who.pod, who.namespace, time.monotonic())
        if found is None:
            connection.pauses = 0
            return 0.0
        self.pauses[found.owner] += 1
        connection.pauses += found.owner is Owner.POD
        if connection.pauses >= FLOOD:
            return None
        self._log(connection, found)
        return found.seconds

    def turn(self, connection: Connection, work: Callable[[], None]) -> asyncio.Future[None]:
        """Do this work in the turn of the connection's namespace."""
        return self._turns.take(connection.identity.namespace, work)

    def pass_over(self, connection: Connection, text: str) -> None:
        """Charge a report that isn't taken, since there is a newer one."""
        who, cost = connection.identity, CONTROL_SECONDS * (1 + len(text) / READ_BYTES)
        self._shares.spend(who.pod, who.namespace, cost, time.monotonic())

    def charge(self, connection: Connection, work: Callable[[], CloseFrame | None]) -> CloseFrame | None:
        """Take a message, whose turn it is, and charge it: ``work`` returns why to close the connection, if at all."""
        who, began = connection.identity, time.thread_time()
        frame = work()
        cost = time.thread_time() - began + (0.0 if frame is None else VIOLATION_SECONDS)
        self._shares.spend(who.pod, who.namespace, cost, time.monotonic())
        return frame

    def tidy(self) -> None:
        """Forget those that owe nothing; to be called from time to time."""
        self._shares.forget_paid(time.monotonic())

    def _log(self, connection: Connection, pause: Pause) -> None:
        who, now = connection.identity, time.monotonic()
        if pause.seconds < TOLD_SECONDS or now - self._logged.get(pause.owner, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._logged[pause.owner] = now
        log.warning(
            "%s (pod %s, namespace %s): it is read %.1f s later, because the messages of its %s take more than %.0f %% "
            "of the controller's time",
            *(who.member, who.pod, who.namespace or "none", pause.seconds),
            *(pause.owner.lower(), SHARES[pause.owner].rate * 100),
        )


class Inbox:
    """What one connection has sent and what waits for its turn: one message, or the newest of several reports."""

    def __init__(
        self, intake: Intake, connection: Connection, take: Callable[[aiohttp.WSMessage], CloseFrame | None]
    ) -> None:
        """``take``: takes a message; returns why the connection is to be closed, if it is."""
        self._intake = intake
        self._connection = connection
        self._take = take
        self._waiting: aiohttp.WSMessage | None = None
        self._turn: asyncio.Future[None] | None = None
        self._is_refused = False

    async def put(self, frame: aiohttp.WSMessage) -> bool:
        """Have a message taken in its turn, once what came before it is taken and paid; return whether its pod floods.

        Raises what raised the work of a message before it.
        """
        if self._waiting is not None and _is_report(self._waiting) and _is_report(frame):
            self._intake.pass_over(self._connection, self._waiting.data)
            self._waiting = frame
            return await self._intake.pause(self._connection)
        await self.emptied()
        floods = await self._intake.pause(self._connection)
        if not (floods or self._is_refused):
            self._waiting = frame
            self._turn = self._intake.turn(self._connection, self._look)
        return floods

    async def emptied(self) -> None:
        """Wait until all has been taken. Raises what that raised."""
        if self._turn is not None:
            await self._turn

    def close(self) -> None:
        """Take nothing more."""
        if self._turn is not None:
            self._turn.cancel()

    def _look(self) -> None:
        frame, self._waiting = self._waiting, None
        assert frame is not None
        refusal = self._intake.charge(self._connection, partial(self._take, frame))
        if refusal is not None:
            self._is_refused = True
            self._connection.outlet.close_soon(refusal)


def _is_report(frame: aiohttp.WSMessage) -> bool:
    """Return whether the next report makes up for it. What is too large for one is refused in its turn."""
    text = frame.data if frame.type is aiohttp.WSMsgType.TEXT else ""
    return text.startswith(wire.REPORT_BEGINS) and len(text) <= wire.MAX_REPORT_BYTES
