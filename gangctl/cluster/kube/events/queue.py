"""Events that wait, in a bounded queue for each namespace, which a task of its own works off in order.

The rule: what takes long, or fails, holds up its own namespace only. Never does one take the room of all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from gangctl.cluster.errors import Retryable

ROOM: Final = 1000
"""So many may wait or be worked on, of all namespaces."""
ROOM_OF_A_NAMESPACE: Final = 200
"""So many of one namespace may wait."""

T = TypeVar("T")


class NamespaceQueues(Generic[T]):
    """What waits; a namespace of which nothing waits has neither a queue nor a task."""

    def __init__(self, work: Callable[[T], Awaitable[None]]) -> None:
        self.open = 0
        """How many wait or are worked on."""
        self._work = work
        self._waiting: dict[str, deque[T]] = {}
        self._begun: asyncio.Queue[str] = asyncio.Queue()
        """Namespaces that need a task."""
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, namespace: str, item: T) -> None:
        """Have it worked on after all that waits of this namespace.

        Raises:
            Retryable: too many wait.
        """
        waiting = self._waiting.get(namespace, ())
        if self.open >= ROOM or len(waiting) >= ROOM_OF_A_NAMESPACE:
            raise Retryable(f"{self.open} events wait to be sent, {len(waiting)} of them in namespace {namespace}")
        if namespace not in self._waiting:
            self._waiting[namespace] = deque()
            self._begun.put_nowait(namespace)
        self._waiting[namespace].append(item)
        self.open += 1
        self._idle.clear()

    def drop(self) -> int:
        """Forget what waits, and say how much that was; what is being worked on goes on."""
        dropped = sum(map(len, self._waiting.values()))
        for waiting in self._waiting.values():
            waiting.clear()
        self._close(dropped)
        return dropped

    async def idle(self) -> None:
        """Wait until nothing waits nor is worked on."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as workers:
            while True:
                workers.create_task(self._work_off(await self._begun.get()))

    async def _work_off(self, namespace: str) -> None:
        waiting = self._waiting[namespace]
        while waiting:
            await self._work(waiting.popleft())
            self._close(1)
        del self._waiting[namespace]

    def _close(self, count: int) -> None:
        self.open -= count
        if not self.open:
            self._idle.set()
