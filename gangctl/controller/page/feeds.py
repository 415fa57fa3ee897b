"""Live documents for the page: made once for all viewers of the same gang, and only while there are viewers.

The rule: viewers must not delay a decision. A document is made in a thread of its own, one at a time, and the pause
after it is ten times as long as that took, a second at least:

    pause = max(1 s, 10 * (time to make the document))

A viewer gets the newest document, and only if it has changed. Nothing is queued for one that reads slowly.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from gangctl.story.page import Document, encoded

log = logging.getLogger(__name__)

LEAST_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 10.0
BROKEN_EVENT: Final = b"event: broken\ndata: {}\n\n"

T = TypeVar("T")
Make = Callable[[], Document]
"""Makes a document of values that were observed before; it runs in a thread."""
Observe = Callable[[], Make]
"""Observes the world at this moment, in the event loop."""


class Feed:
    """The newest document about one thing, as an event of a stream."""

    def __init__(self, observe: Observe, executor: ThreadPoolExecutor) -> None:
        self.viewers = 0
        self._observe = observe
        self._executor = executor
        self._frame = b""
        self._version = 0
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="page")

    async def after(self, version: int) -> tuple[int, bytes]:
        """Wait for a newer document than this version (0: any); return its version and its event."""
        while version >= self._version:
            await self._news.wait()
        return self._version, self._frame

    def stop(self) -> None:
        """No viewer is left."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            frame = await self._made()
            if frame != self._frame:
                self._frame, news, self._news = frame, self._news, asyncio.Event()
                self._version += 1
                news.set()
            await asyncio.sleep(max(LEAST_SECONDS, PAUSE_SECONDS * (time.monotonic() - began)))

    async def _made(self) -> bytes:
        try:
            make = self._observe()
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: frame_of(make()))
        except Exception:  # what the page can't show must not end anything else
            log.exception("the page can't show a gang, which is a bug")
            return BROKEN_EVENT


class Feeds:
    """All feeds of a page."""

    def __init__(self) -> None:
        self._feeds: dict[Hashable, Feed] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")

    async def make(self, make: Callable[[], T]) -> T:
        """Make something else for a viewer, where documents are made."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, make)

    @asynccontextmanager
    async def watching(self, key: Hashable, observe: Observe) -> AsyncIterator[Feed]:
        """The feed of this key; it is kept up to date until its last viewer leaves."""
        feed = self._feeds.get(key) or Feed(observe, self._executor)
        self._feeds[key] = feed
        feed.viewers += 1
        try:
            yield feed
        finally:
            feed.viewers -= 1
            if not feed.viewers:
                feed.stop()
                del self._feeds[key]


def frame_of(document: Document) -> bytes:
    """The document as an event of a stream; its type is the document's kind. JSON has no line breaks."""
    return b"event: " + document.kind.encode() + b"\ndata: " + encoded(document) + b"\n\n"
