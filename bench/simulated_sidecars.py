"""Simulated sidecars for bench/size.py: real TLS, real tokens, real frames, and no pods.

Each is one member as the controller sees it: it dials with the jitter of the real sidecar, reports every five seconds,
and answers Hold with Ready and Run with Running at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Final

import aiohttp

from gangsidecar import wire
from gangsidecar.agent.uplink import FIRST_WAIT, LAST_WAIT
from tests.controller.replicas import ANY

KEEP_ALIVE_SECONDS: Final = 5.0
DIAL_SECONDS: Final = 10.0
SSLProtocol.max_size = 8 * 1024  # asyncio's own 256 KiB would be 2.5 GB for 10,000 connections in this process.


@dataclass
class Fleet:
    """All members of a run, and what they have seen. Times are seconds on the monotonic clock."""

    urls: Sequence[str]
    """Of the replicas, one of which leads."""
    session: aiohttp.ClientSession
    members: list[Member] = field(default_factory=list)
    is_stepping: bool = False
    """Whether each report tells a new step."""

    @property
    def connected(self) -> int:
        """How many have heard a controller on their newest connection."""
        return sum(one.is_heard for one in self.members)


@dataclass
class Member:
    """One of them."""

    fleet: Fleet
    token: str
    report: wire.Report
    is_heard: bool = False
    held: dict[int, float] = field(default_factory=dict)
    """Attempt -> when its Hold arrived."""
    ran: dict[int, float] = field(default_factory=dict)
    """Attempt -> when its Run arrived."""
    _socket: aiohttp.ClientWebSocketResponse | None = None

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        limit = FIRST_WAIT
        for url in cycle(self.fleet.urls):
            try:
                headers = {"Authorization": f"Bearer {self.token}", wire.REVISION_HEADER: str(wire.REVISION)}
                async with asyncio.timeout(DIAL_SECONDS):
                    socket = await self.fleet.session.ws_connect(url, headers=headers, ssl=ANY)
                self._socket = socket
                async with asyncio.TaskGroup() as tasks:
                    keeping = tasks.create_task(self._keep_alive())
                    await self._receive(socket)
                    limit = FIRST_WAIT
                    keeping.cancel()
            except* (aiohttp.ClientError, OSError, TimeoutError):
                pass
            self.is_heard, self._socket = False, None
            await asyncio.sleep(random.uniform(0, limit))
            limit = min(LAST_WAIT, 2 * limit)

    async def say(self, **changes: object) -> None:
        """Report, with these changes."""
        self.report = replace(self.report, seq=self.report.seq + 1, **changes)  # type: ignore[arg-type]
        if self._socket is not None:
            await self._socket.send_str(wire.encode(self.report))

    async def _keep_alive(self) -> None:
        await self.say()
        await asyncio.sleep(random.uniform(0, KEEP_ALIVE_SECONDS))
        while True:
            report = self.report
            if self.fleet.is_stepping and report.phase is wire.Phase.RUNNING:
                step = 1 if report.progress is None else report.progress.step + 1
                await self.say(progress=wire.Progress(report.attempt, step, 0, "Step", 1, 0))
            else:
                await self.say()
            await asyncio.sleep(KEEP_ALIVE_SECONDS)

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for frame in socket:
            if frame.type is not aiohttp.WSMsgType.TEXT:
                continue
            now, message = time.monotonic(), wire.decode(frame.data)
            self.is_heard = True
            if not isinstance(message, wire.Directive):
                continue
            if message.verb is wire.Verb.HOLD and message.attempt > self.report.attempt:
                self.held[message.attempt] = now
                await self.say(attempt=message.attempt, phase=wire.Phase.READY, ports=(29400,), ends=(), progress=None)
            elif message.verb is wire.Verb.RUN and message.attempt not in self.ran:
                self.ran[message.attempt] = now
                await self.say(attempt=message.attempt, phase=wire.Phase.RUNNING, progress=None)
