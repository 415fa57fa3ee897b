"""The answers of the API server to reviews of tokens and of access, each cached for a bounded time.

The rule: an answer is asked for once while it is cached, a minute at most, and only a few reviews run at once. A client
that shows new tokens all the time must not flood the API server: if too many reviews wait, the next ones are refused at
once. No token is kept, only its hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from gangctl.cluster.errors import Retryable

T = TypeVar("T")

MAX_WAITING: Final = 500
"""Maximum number of reviews that wait or run."""
MAX_CACHED: Final = 10_000
ACCEPTED_SECONDS: Final = 60.0
"""Time for which it is cached that a token is accepted."""
REFUSED_SECONDS: Final = 10.0
"""Time for which it is cached that a token is refused."""


class Reviews(Generic[T]):
    """Answers by what is reviewed: a token, or a user's right."""

    def __init__(self, concurrency: int, ask: Callable[[str], Awaitable[T]], accepts: Callable[[T], bool]) -> None:
        """A cache of answers that are never None.

        Args:
            concurrency: how many reviews run at once.
            ask: asks the API server; raises ClusterError if there is no answer.
            accepts: whether an answer is cached as long as one that accepts a token.
        """
        self._slots = asyncio.Semaphore(concurrency)
        self._ask = ask
        self._accepts = accepts
        self._waiting = 0
        self._cache: OrderedDict[bytes, tuple[T, float]] = OrderedDict()
        """By the hash of the question: the answer, and until when (monotonic seconds) it is cached."""

    async def find(self, question: str) -> T:
        """The cached answer, else a new one.

        Raises:
            Retryable: too many reviews wait.
            ClusterError: there is no answer.
        """
        key = hashlib.sha256(question.encode()).digest()
        cached = self._cached(key)
        if cached is not None:
            return cached
        if self._waiting >= MAX_WAITING:
            raise Retryable("too many reviews wait")
        self._waiting += 1
        try:
            async with self._slots:
                cached = self._cached(key)  # The same request may have been answered meanwhile.
                if cached is not None:
                    return cached
                found = await self._ask(question)
        finally:
            self._waiting -= 1
        seconds = ACCEPTED_SECONDS if self._accepts(found) else REFUSED_SECONDS
        self._cache[key] = found, time.monotonic() + seconds
        self._cache.move_to_end(key)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return found

    def _cached(self, key: bytes) -> T | None:
        found = self._cache.get(key)
        return found[0] if found is not None and time.monotonic() < found[1] else None
