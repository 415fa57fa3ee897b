"""The answers of the API server to reviews of tokens and of access, each cached for a bounded time.

The rule: an answer is asked for once while it is cached, and only a few reviews run at once. A client that shows new
tokens all the time must not flood the API server: if too many reviews wait, the next ones are refused at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from gangctl.cluster.errors import Retryable

T = TypeVar("T")

MAX_WAITING: Final = 500
"""Maximum number of reviews that wait or run."""
MAX_CACHED: Final = 10_000

Ask = Callable[[], Awaitable[tuple[T, float]]]
"""Asks the API server; gives the answer, and the time in seconds for which it is cached.

Raises:
    ClusterError: there is no answer.
"""


class Reviews(Generic[T]):
    """Answers by a key that doesn't reveal the token, such as its hash."""

    def __init__(self, concurrency: int) -> None:
        """``concurrency``: how many reviews run at once."""
        self._slots = asyncio.Semaphore(concurrency)
        self._waiting = 0
        self._cache: OrderedDict[bytes, tuple[T, float]] = OrderedDict()
        """By key: the answer, and until when (monotonic seconds) it is cached."""

    async def find(self, key: bytes, ask: Ask[T]) -> T:
        """The cached answer, else a new one.

        Raises:
            Retryable: too many reviews wait.
            ClusterError: what ``ask`` raises.
        """
        cached = self._cached(key)
        if cached is not None:
            return cached
        if self._waiting >= MAX_WAITING:
            raise Retryable("too many tokens wait for a review")
        self._waiting += 1
        try:
            async with self._slots:
                cached = self._cached(key)  # Another request with this token may have been answered meanwhile.
                if cached is not None:
                    return cached
                found, seconds = await ask()
        finally:
            self._waiting -= 1
        self._cache[key] = found, time.monotonic() + seconds
        self._cache.move_to_end(key)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return found

    def _cached(self, key: bytes) -> T | None:
        found = self._cache.get(key)
        return found[0] if found is not None and time.monotonic() < found[1] else None
