"""Simulated sidecars for bench/size.py: real TLS, real tokens, real frames, and no pods.

Each is one member as the controller sees it: it dials with the jitter of the real sidecar, reports every five seconds,
answers Hold with Ready and Run with Running at once, and gives up a controller that is silent. Ten thousand of them
must take less than a core, or they would delay what they measure: so no asyncio streams, no library for WebSockets, and
a report is encoded anew only when it says something new.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from typing import Final
from urllib.parse import urlsplit

from bench.frames import CLOSE, PING, PONG, TEXT, Frames, frame, upgrade
from gangsidecar import wire
from gangsidecar.agent.uplink import DIAL, FIRST_WAIT, LAST_WAIT, SILENCE
from tests.controller.replicas import ANY

KEEP_ALIVE_SECONDS: Final = 5.0
DIALS_AT_ONCE: Final = 256
TICK_SECONDS: Final = 0.02
"""So often some members report."""
READ_BYTES: Final = 16 * 1024


class _LostError(Exception):
    """The connection has ended, or there is none; the text is a reason without details, to be counted."""


@dataclass
class Fleet:
    """All members of a run, and what they have seen. Times are seconds on the monotonic clock."""

    urls: Sequence[str]
    """Of the replicas, one of which leads."""
    members: list[Member] = field(default_factory=list)
    is_stepping: bool = False
    """Whether each report tells a new step."""
    dials: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DIALS_AT_ONCE))
    """One process can't dial ten thousand times in one instant without standing still itself."""
    lost: Counter[str] = field(default_factory=Counter)
    """Why connections ended or were not made."""

    spread: bool = False
    """Whether members choose any replica, as a Service does for them, and not the leader first."""

    def first(self) -> int:
        """The number of the URL that a member dials first."""
        return random.randrange(len(self.urls)) if self.spread else 0

    @property
    def connected(self) -> int:
        """How many have heard a controller on their newest connection."""
        return sum(one.is_heard for one in self.members)

    async def keep_alive(self) -> None:
        """Let every member report every five seconds, evenly spread, until cancelled."""
        ticks = round(KEEP_ALIVE_SECONDS / TICK_SECONDS)
        due = time.monotonic()
        for at in cycle(range(ticks)):
            for member in self.members[at::ticks]:
                member.keep_alive()
            due = max(due + TICK_SECONDS, time.monotonic() - KEEP_ALIVE_SECONDS)
            await asyncio.sleep(due - time.monotonic())


@dataclass
class Member:
    """One of them."""

    fleet: Fleet
    token: str
    report: wire.Report
    is_heard: bool = False
    url: str = ""
    """Of the replica that it is connected to; empty = none."""
    held: dict[int, float] = field(default_factory=dict)
    """Attempt -> when its Hold arrived."""
    ran: dict[int, float] = field(default_factory=dict)
    """Attempt -> when its Run arrived."""
    _connection: _Connection | None = None
    _heard_at: float = 0.0
    _seq: int = 0
    _since: int = field(default_factory=lambda: time.monotonic_ns() // 1_000_000)
    """When its report changed last, in milliseconds."""
    _encoded: tuple[wire.Report, str] | None = None

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        limit = FIRST_WAIT
        for at in count(self.fleet.first()):
            url = self.fleet.urls[at % len(self.fleet.urls)]  # More may come.
            connection = _Connection(self)
            try:
                async with self.fleet.dials, asyncio.timeout(DIAL):
                    await connection.dial(url, self.token)
                self._connection, self._heard_at, limit = connection, time.monotonic(), FIRST_WAIT
                self.url = url
                self.say()
                connection.receive()
                self.fleet.lost[await connection.ended] += 1
            except _LostError as error:
                self.fleet.lost[str(error)] += 1
            except OSError as error:  # A TimeoutError is one.
                self.fleet.lost[type(error).__name__] += 1
            finally:
                self.is_heard, self._connection, self.url = False, None, ""
                connection.close()
            await asyncio.sleep(random.uniform(0, limit))
            limit = min(LAST_WAIT, 2 * limit)

    def say(self, **changes: object) -> None:
        """Report, with these changes."""
        if changes:
            self._since = time.monotonic_ns() // 1_000_000
            self.report = replace(self.report, **changes)  # type: ignore[arg-type]
        if self._encoded is None or self._encoded[0] is not self.report:
            self._encoded = self.report, wire.encode(self.report)
        self._seq += 1
        now = time.monotonic_ns() // 1_000_000
        if self._connection is not None:
            clocks = f'"seq":{self._seq},"sent_ms":{now},"phase_age_ms":{now - self._since}'
            text = self._encoded[1].replace('"seq":0', clocks, 1)
            self._connection.send(TEXT, text.encode())

    def keep_alive(self) -> None:
        """Report that nothing is new but, maybe, the step; give up a silent controller."""
        if self._connection is None:
            return
        if time.monotonic() - self._heard_at > SILENCE:
            self._connection.end("silent")
        elif self.fleet.is_stepping and self.report.phase is wire.Phase.RUNNING:
            step = 1 if self.report.progress is None else self.report.progress.step + 1
            self.say(progress=wire.Progress(self.report.attempt, step, 0, "Step", 1, 0))
        else:
            self.say()

    def is_served(self) -> None:
        """The replica is there, as a relay while no leader answers."""
        self._heard_at = time.monotonic()

    def take(self, text: bytes) -> None:
        """Take a message of the controller."""
        self.is_heard, self._heard_at = True, time.monotonic()
        if b'"type":"Directive"' not in text[:40]:
            return
        message = wire.decode(text)
        if message.verb is wire.Verb.HOLD and message.attempt > self.report.attempt:
            self.held[message.attempt] = self._heard_at
            self.say(attempt=message.attempt, phase=wire.Phase.READY, ports=(29400,), ends=(), progress=None)
        elif message.verb is wire.Verb.RUN and message.attempt not in self.ran:
            self.ran[message.attempt] = self._heard_at
            self.say(attempt=message.attempt, phase=wire.Phase.RUNNING, progress=None)


class _Connection:
    """One WebSocket."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._socket: socket.socket = socket.socket()
        self.ended: asyncio.Future[str] = self._loop.create_future()

    async def dial(self, url: str, token: str) -> None:
        """Open it.

        Raises:
            _LostError: it was not accepted.
            OSError: there is no connection.
        """
        parts = urlsplit(url)
        self._socket.settimeout(0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.sock_connect(self._socket, (parts.hostname, parts.port))
        self._socket.getpeername()  # An OSError if its peer has reset it: wrapping it would fail and leave it open.
        secure = ANY.wrap_socket(self._socket, do_handshake_on_connect=False, server_hostname="localhost")
        self._socket = secure
        while True:
            try:
                secure.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._readable()
        secure.send(upgrade(parts.path, parts.netloc, token))
        answer = b""
        while b"\r\n\r\n" not in answer:
            try:
                some = secure.recv(READ_BYTES)
            except ssl.SSLWantReadError:
                await self._readable()
                continue
            if not some:
                raise _LostError("closed before an answer")
            answer += some
        head, _, rest = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise _LostError(f"answered {head[9:12].decode()}")
        self._frames.add(rest)
        self._loop.add_reader(secure, self.receive)

    async def _readable(self) -> None:
        found: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._socket, _set, found)
        try:
            await found
        finally:
            self._loop.remove_reader(self._socket)

    def send(self, kind: int, payload: bytes) -> None:
        """Send one frame; a receiver that takes no more loses the connection."""
        try:
            self._socket.send(frame(kind, payload))
        except OSError as error:  # An SSLError is one.
            self.end(type(error).__name__)

    def receive(self) -> None:
        """Take what has arrived."""
        try:
            while not self.ended.done():
                for kind, payload in self._frames.taken():
                    self._take(kind, payload)
                some = self._socket.recv(READ_BYTES)
                if not some:
                    self.end("closed")
                self._frames.add(some)
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            self.end(type(error).__name__)

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == TEXT:
            self._member.take(payload)
        elif kind == PING:
            self.send(PONG, payload)
            self._member.is_served()
        elif kind == CLOSE:
            self.end(f"closed by the controller, {int.from_bytes(payload[:2], 'big')} {payload[2:].decode()}")

    def end(self, why: str) -> None:
        """Let it end."""
        self._loop.remove_reader(self._socket)
        if not self.ended.done():
            self.ended.set_result(why)

    def close(self) -> None:
        """End it."""
        self.end("")
        self._socket.close()


def _set(found: asyncio.Future[None]) -> None:
    if not found.done():
        found.set_result(None)
