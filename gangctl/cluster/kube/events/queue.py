"""A bounded queue of events for each namespace, each worked off in order by a task of its own.

The rule: a slow or failing request delays events of its own namespace only. One namespace must never use the capacity
of all the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from gangctl.cluster.errors import Retryable

CAPACITY: Final = 1000
"""Maximum number of items that wait or are worked on, in all namespaces together."""
NAMESPACE_CAPACITY: Final = 200
"""Maximum number of items that wait in one namespace."""

T = TypeVar("T")


class NamespaceQueues(Generic[T]):
    """The queues. A namespace without waiting items has neither a queue nor a task."""

    def __init__(self, work: Callable[[T], Awaitable[None]]) -> None:
        """``work`` handles one item. It must not raise."""
        self.pending = 0
        """Number of items that wait or are worked on."""
        self._work = work
        self._waiting: dict[str, deque[T]] = {}
        self._started: asyncio.Queue[str] = asyncio.Queue()
        """Namespaces that need a task."""
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, namespace: str, item: T) -> None:
        """Append an item to the queue of its namespace.

        Raises:
            Retryable: too many items wait.
        """
        waiting = self._waiting.get(namespace, ())
        if self.pending >= CAPACITY or len(waiting) >= NAMESPACE_CAPACITY:
            raise Retryable(f"{self.pending} events wait to be sent, {len(waiting)} of them in namespace {namespace}")
        if namespace not in self._waiting:
            self._waiting[namespace] = deque()
            self._started.put_nowait(namespace)
        self._waiting[namespace].append(item)
        self.pending += 1
        self._idle.clear()

    def clear(self) -> int:
        """Drop the waiting items and return their number. An item that is being worked on is finished."""
        dropped = sum(map(len, self._waiting.values()))
        for waiting in self._waiting.values():
            waiting.clear()
        self._done(dropped)
        return dropped

    async def join(self) -> None:
        """Wait until no item waits or is worked on."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as workers:
            while True:
                workers.create_task(self._work_off(await self._started.get()))

    async def _work_off(self, namespace: str) -> None:
        waiting = self._waiting[namespace]
        while waiting:
            await self._work(waiting.popleft())
            self._done(1)
        del self._waiting[namespace]

    def _done(self, count: int) -> None:
        self.pending -= count
        if not self.pending:
            self._idle.set()
