"""A reflector: keeps a copy of all objects of one kind fresh, by one list and one watch that goes on from it.

The rule: list (in parts, consistent), then watch from there. A watch that ends is resumed where it ended, without a
gap; when that place is too old (410) everything is listed again, and what was deleted meanwhile is found missing. All
else is tried again under a capped exponential back-off with full jitter: an API server that answers every request with
an error, or with an empty stream, is never asked in a tight loop. Never does an older version of an object take the
place of a newer one, wherever it came from.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Generic, NoReturn, TypeVar

from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import Client, NotFound, ResourceExpired
from gangctl.cluster.kube.watch.decoding import Decoder, WatchedObject, WatchEvent

log = logging.getLogger(__name__)

T = TypeVar("T", bound=WatchedObject)

PAGE: Final = 500
LIST_SECONDS: Final = 60.0
"""How long one part of a list may take."""
WATCH_SECONDS: Final = (300, 600)
"""How long a watch is asked to last: a random time, so that those of many clients don't end together."""
FIRST_BACKOFF_SECONDS: Final = 0.1
LONGEST_BACKOFF_SECONDS: Final = 5.0
LASTING_SECONDS: Final = 1.0
"""A watch that stood for less than this counts as a failure: it is not resumed at once."""
BREAK_SECONDS: Final = 5.0
"""A watch that is away for longer than this was a break: what happened meanwhile came late."""
REMEMBERED: Final = 10_000
"""So many deleted objects are remembered, lest a late answer brings one back."""

Changed = Callable[[T | None, T | None], None]
"""Called with an object before and after: None before it was there, and when it is gone."""


class Reflector(Generic[T]):
    """All objects of one kind."""

    def __init__(
        self,
        client: Client,
        path: str,
        reading: Decoder[T],
        changed: Changed[T],
        *,
        selector: str = "",
        absent: str = "",
    ) -> None:
        """``path`` of the list; ``selector``: of labels; ``absent``: what it means if there is no such list (404)."""
        self._client = client
        self._path = path
        self._reading = reading
        self._changed = changed
        self._query = {"labelSelector": selector} if selector else {}
        self._absent = absent
        self._items: dict[str, T] = {}
        self._deleted: dict[str, None] = {}
        self._version = ""
        """Where the watch goes on; empty = list first."""
        self._listed = 0
        """The version of the newest list: all before it is known."""
        self._failures = 0
        self._broken_at: float | None = time.monotonic()
        self._since = 0.0
        self._heard_at = time.monotonic()
        self.listed = asyncio.Event()
        """Set once everything was listed in this run."""
        self.problem = ""
        """Why it isn't fresh, in a sentence; empty while a watch stands."""

    @property
    def items(self) -> Mapping[str, T]:
        """By UID."""
        return MappingProxyType(self._items)

    @property
    def stale_seconds(self) -> float:
        """For how long nothing was heard because the watch is broken; 0 while it stands."""
        return 0.0 if self._broken_at is None else time.monotonic() - self._broken_at

    @property
    def silent_seconds(self) -> float:
        """How long ago the API server said something; a watch that stands brings a bookmark every minute or so."""
        return time.monotonic() - self._heard_at

    @property
    def synced_since(self) -> float:
        """Since when it is fresh without a break, in seconds since the epoch; 0 while it is stale."""
        return 0.0 if not self.listed.is_set() or self.stale_seconds > BREAK_SECONDS else self._since

    async def run(self) -> NoReturn:
        """Keep the copy fresh until cancelled. What was kept by an earlier run is listed anew first."""
        self.listed.clear()
        self._version = ""
        self._since = 0.0
        self._failures = 0
        while True:
            try:
                if not self._version:
                    self._version = await self._list()
                await self._watch()
            except ResourceExpired as error:
                log.info("%s is listed again: %s", self._path, error)
                self._version = ""
                self._failures += 1
            except ClusterError as error:
                self._failures += 1
                self.problem = self._absent if self._absent and isinstance(error, NotFound) else str(error)
                if self._failures.bit_count() == 1:  # the first, the second, the fourth, ...
                    level = logging.INFO if self._failures == 1 else logging.WARNING
                    log.log(level, "%s: %s", self._path, self.problem)
            finally:
                if self._broken_at is None:
                    self._broken_at = time.monotonic()
            limit = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(self._failures, 10))
            await asyncio.sleep(random.uniform(0, limit) if self._failures else 0)  # noqa: S311 - not a secret

    def put(self, item: T) -> None:
        """What a write returned: it is seen by the next read. An older version or a deleted object changes nothing."""
        if item.uid not in self._deleted:
            self._keep(item)

    def drop(self, uid: str) -> None:
        """The object is known to be gone."""
        self._remember_deleted(uid)
        old = self._items.pop(uid, None)
        if old is not None:
            self._changed(old, None)

    async def refresh(self) -> None:
        """List everything once more, beside the watch: what is kept is then as new as this call.

        Raises:
            ClusterError: it can't be listed.
        """
        await self._list()

    async def _list(self) -> str:
        deleted = set(self._deleted)
        try:
            found, version = await self._parts(PAGE)
        except ResourceExpired:
            # The list took so long that its beginning is forgotten: the whole of it at once can't expire.
            found, version = await self._parts(0)
        if _number(version) < self._listed:
            return version  # Another list has overtaken this one.
        self._listed = _number(version)
        for uid, item in tuple(self._items.items()):
            # What was written after the list was made isn't in it, and isn't gone either.
            if uid not in found and not _is_after(item, version):
                self.drop(uid)
        for item in found.values():
            # What a watch has told to be gone while the list was on its way isn't brought back by it.
            if item.uid in deleted or item.uid not in self._deleted:
                self._keep(item)
        return version

    async def _parts(self, limit: int) -> tuple[dict[str, T], str]:
        found: dict[str, T] = {}
        more = ""
        while True:
            query = self._query | ({"limit": str(limit)} if limit else {}) | ({"continue": more} if more else {})
            page = self._reading.page(await self._client.request("GET", self._path, query=query, timeout=LIST_SECONDS))
            found |= {item.uid: item for item in page.items}
            more = page.more
            if not more:
                return found, page.resource_version

    async def _watch(self) -> None:
        query = self._query | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - not a secret
        }
        async with self._client.lines(self._path, query=query) as lines:
            began = time.monotonic()
            self._stands()
            async for line in lines:
                self._take(self._reading.event(line))
                if time.monotonic() - began > LASTING_SECONDS:
                    self._failures = 0
        self._failures = 0 if time.monotonic() - began > LASTING_SECONDS else self._failures + 1

    def _stands(self) -> None:
        if self._since == 0 or self.stale_seconds > BREAK_SECONDS:
            self._since = time.time()
        self._broken_at = None
        self._heard_at = time.monotonic()
        self.problem = ""
        self.listed.set()

    def _take(self, seen: WatchEvent[T]) -> None:
        self._heard_at = time.monotonic()
        is_news = _number(seen.resource_version) > self._listed  # a list may have overtaken the watch
        if is_news and seen.item is not None:
            self._keep(seen.item)
        elif is_news and seen.gone:
            self.drop(seen.gone)
        self._version = seen.resource_version or self._version

    def _keep(self, item: T) -> None:
        old = self._items.get(item.uid)
        if old is not None and _is_older(item, old):
            return
        self._items[item.uid] = item
        if old != item:
            self._changed(old, item)

    def _remember_deleted(self, uid: str) -> None:
        self._deleted[uid] = None
        if len(self._deleted) > REMEMBERED:
            del self._deleted[next(iter(self._deleted))]


def _number(version: str) -> int:
    """Versions are numbers and grow over all objects of a kind (KEP-5504)."""
    return int(version) if version.isdecimal() else 0


def _is_older(item: WatchedObject, than: WatchedObject) -> bool:
    return _number(item.resource_version) < _number(than.resource_version)


def _is_after(item: WatchedObject, version: str) -> bool:
    return _number(item.resource_version) > _number(version)
