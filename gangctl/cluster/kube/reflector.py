"""A reflector: keeps a copy of all objects of one kind fresh, by a list and a watch that continues from it.

The rule: list (in pages, consistent), then watch from the list's version. A watch that ends is resumed at its last
version, without a gap. If that version is too old (410), everything is listed again; an object that was deleted
meanwhile is missing in the list. Every other failure is retried with a capped exponential back-off and full jitter: an
API server that answers each request with an error, or with an empty stream, must never be asked in a tight loop. An
older version of an object must never replace a newer version, except that of a list: it is consistent, so it is as new
as the moment it began, whatever the versions. They go back when the store is restored from a backup; the watch, which
would stay quiet until they have caught up, is given up then.

Each watched namespace has a reflector of its own: a list and a watch of several namespaces would need rights in all of
them. What is refused in one namespace (its rights have gone, or the namespace has) must not matter in the others.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import NOTHING, Client, Forbidden, NotFound, ResourceExpired, TooLarge
from gangctl.cluster.kube.decoding import Decoder, ListPage, WatchDecoder, WatchedObject, WatchEvent

log = logging.getLogger(__name__)

T = TypeVar("T", bound=WatchedObject)
V = TypeVar("V")

PAGE_SIZE: Final = 500
PAGE_BYTES: Final = 8 * 2**20
"""A larger page is not read to its end; smaller ones are asked for. Decoded, GangJobs take ten times as much."""
LIST_SECONDS: Final = 60.0
"""Time limit of one page of a list."""
WATCH_SECONDS: Final = (300, 600)
"""Duration of a watch, a random number in this range, so that the watches of many clients don't end together."""
FIRST_BACKOFF_SECONDS: Final = 0.1
LONGEST_BACKOFF_SECONDS: Final = 5.0
SHORTEST_WATCH_SECONDS: Final = 1.0
"""A watch that ends sooner counts as a failure: it isn't resumed at once."""
QUIET_SECONDS: Final = 180.0
"""Watches that show nothing for so long, not even a bookmark (one a minute), show nothing any more: list again."""
BREAK_SECONDS: Final = 5.0
"""A watch that is down for longer counts as a break: changes in that time were seen late."""
MAX_DELETED: Final = 10_000
"""Maximum number of deleted objects that are remembered, so that a late answer doesn't bring one back."""

Changed = Callable[[T | None, T | None], None]
"""Called with an object before and after a change: None before it was created, and after it was deleted."""


class Reflector(Generic[T]):
    """All objects of one kind."""

    def __init__(
        self,
        client: Client,
        path: str,
        decoder: WatchDecoder[T],
        changed: Changed[T],
        *,
        selector: str = "",
        absent: str = "",
    ) -> None:
        """``path``: of the list; ``selector``: of labels; ``absent``: the problem to report if the list gets a 404."""
        self._client = client
        self._path = path
        self._decoder = decoder
        self._changed = changed
        self._query = {"labelSelector": selector} if selector else {}
        self._absent = absent
        self._items: dict[str, T] = {}
        self._deleted: dict[str, int] = {}
        """UID -> the version at which it was gone; 0 = not known."""
        self._version = ""
        """Version from which the watch continues; empty = list first."""
        self._listed = 0
        """Version of the newest list: all earlier changes are known."""
        self._begun = 0
        """Number of lists that have begun."""
        self._applied = 0
        """The newest of them whose answer was taken, by the order in which they began."""
        self._seen_in: dict[str, int] = {}
        """UID -> the newest list that had begun when the object was last seen."""
        self._patience: asyncio.Timeout | None = None
        """Of the watch that is open."""
        self._quiet = 0.0
        """For how long the watches before it showed nothing."""
        self._failures = 0
        self._broken_at: float | None = time.monotonic()
        self._since = 0.0
        """When it became fresh, as the clock has elapsed; 0 before."""
        self._last_event_at = time.monotonic()
        self.listed = asyncio.Event()
        """Set when all objects were listed in this run."""
        self.answered = asyncio.Event()
        """Set when they were listed in this run, or the API server has refused it."""
        self.is_refused = False
        """Whether the API server refuses it now: a right or the namespace has gone."""
        self.problem = ""
        """Why the copy isn't fresh, in a sentence; empty while the watch works."""

    @property
    def items(self) -> Mapping[str, T]:
        """By UID."""
        return MappingProxyType(self._items)

    @property
    def stale_seconds(self) -> float:
        """For how long the watch has been broken; 0 while it works."""
        return 0.0 if self._broken_at is None else time.monotonic() - self._broken_at

    @property
    def silent_seconds(self) -> float:
        """Time since the last event; a working watch brings a bookmark about once a minute."""
        return time.monotonic() - self._last_event_at

    @property
    def synced_since(self) -> float:
        """Say since when the copy has been fresh without a break, in seconds since the epoch; 0 while it is stale."""
        if not self.listed.is_set() or self.stale_seconds > BREAK_SECONDS:
            return 0.0
        return clock.time_of(self._since)

    async def run(self) -> NoReturn:
        """Keep the copy fresh until cancelled. It lists all objects first, also if an earlier run has listed them."""
        self.listed.clear()
        self.answered.clear()
        self._version = ""
        self._since = 0.0
        self._failures = 0
        while True:
            try:
                if not self._version:
                    self._version = await self._list()
                    self._quiet = 0.0
                await self._watch()
            except ResourceExpired as error:
                log.info("%s is listed again: %s", self._path, error)
                self._version = ""
                self._failures += 1
            except ClusterError as error:
                self._failures += 1
                self.is_refused = isinstance(error, Forbidden)
                if self.is_refused:
                    self.answered.set()
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
        """Add an object that a write returned. An older version or a deleted object changes nothing."""
        if item.uid not in self._deleted:
            self._keep(item)

    def drop(self, uid: str) -> None:
        """Remove an object that is known to be gone."""
        self._remember_deleted(uid, 0)
        self._seen_in.pop(uid, None)
        old = self._items.pop(uid, None)
        if old is not None:
            self._changed(old, None)

    async def refresh(self) -> None:
        """List everything beside the watch, so that the copy is as new as this call."""
        await self._list()

    async def _list(self) -> str:
        deleted = set(self._deleted)
        self._begun += 1
        number = self._begun
        try:
            page = await list_all(self._client, self._path, self._decoder, self._query, limit=PAGE_SIZE)
        except ResourceExpired:
            # The list took too long, so its next page has expired. A list in one page can't expire.
            page = await list_all(self._client, self._path, self._decoder, self._query, limit=0)
        found, version = {item.uid: item for item in page.items}, page.resource_version
        if number < self._applied:
            return version  # A list that began later was faster.
        self._applied = number
        if _number(version) < self._listed:
            self._was_restored(version)
        self._listed = _number(version)
        for uid, item in tuple(self._items.items()):
            # An object that was written after the list isn't in it, but exists.
            if uid not in found and not (self._seen_in.get(uid, 0) >= number and _is_after(item, version)):
                self.drop(uid)
        for item in found.values():
            # The list must not bring back an object whose deletion the watch has shown in the meantime. What a selector
            # has lost may be there again in a list that is newer.
            gone = self._deleted.get(item.uid)
            if item.uid in deleted or gone is None or 0 < gone < self._listed:
                self._deleted.pop(item.uid, None)
                self._keep(item, is_newest=self._seen_in.get(item.uid, 0) < number)
        return version

    def _was_restored(self, version: str) -> None:
        """The versions went back: the store was restored from a backup. The watch would wait for versions to come."""
        log.warning("%s: the store was restored, from version %d to %s", self._path, self._listed, version)
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def _watch(self) -> None:
        query = self._query | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - not a secret
        }
        try:
            async with (
                asyncio.timeout(QUIET_SECONDS - self._quiet) as self._patience,
                self._client.lines(self._path, query=query) as lines,
            ):
                began = time.monotonic()
                quiet_since = began - self._quiet
                self._mark_working()
                try:
                    async for line in lines:
                        self._patience.reschedule(asyncio.get_running_loop().time() + QUIET_SECONDS)
                        quiet_since = time.monotonic()
                        self._take(self._decoder.event(line))
                        if quiet_since - began > SHORTEST_WATCH_SECONDS:
                            self._failures = 0
                finally:
                    self._quiet = time.monotonic() - quiet_since
        except TimeoutError as error:
            raise ResourceExpired(f"its watch showed nothing from version {self._version} on") from error
        finally:
            self._patience = None
        self._failures = 0 if time.monotonic() - began > SHORTEST_WATCH_SECONDS else self._failures + 1

    def _mark_working(self) -> None:
        if self._since == 0 or self.stale_seconds > BREAK_SECONDS:
            self._since = clock.elapsed()
        self._broken_at = None
        self._last_event_at = time.monotonic()
        self.problem = ""
        self.is_refused = False
        self.listed.set()
        self.answered.set()

    def _take(self, event: WatchEvent[T]) -> None:
        self._last_event_at = time.monotonic()
        is_news = _number(event.resource_version) > self._listed  # A list may be ahead of the watch.
        if is_news and event.item is not None:
            self._deleted.pop(event.item.uid, None)  # A selector loses an object, and may show it again.
            self._keep(event.item)
        elif is_news and event.gone_uid:
            self.drop(event.gone_uid)
            self._remember_deleted(event.gone_uid, _number(event.resource_version))
        self._version = event.resource_version or self._version

    def _keep(self, item: T, *, is_newest: bool = False) -> None:
        old = self._items.get(item.uid)
        if old is not None and _is_older(item, old) and not is_newest:
            return
        self._seen_in[item.uid] = self._begun
        if old != item:
            self._items[item.uid] = item
            self._changed(old, item)
        elif _is_older(old, item):
            self._items[item.uid] = item  # The watch also shows what was written here: that is the same object.

    def _remember_deleted(self, uid: str, version: int) -> None:
        self._deleted[uid] = version
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]


async def list_all(
    client: Client,
    path: str,
    decoder: Decoder[V],
    query: Mapping[str, str] = NOTHING,
    *,
    limit: int = PAGE_SIZE,
) -> ListPage[V]:
    """List all objects, page by page, without those that can't be read. ``limit``: of a page; 0 = all in one page."""
    found: list[V] = []
    more = ""
    while True:
        asked = {**query, **({"limit": str(limit)} if limit else {}), **({"continue": more} if more else {})}
        try:
            body = await client.request(
                *("GET", path), query=asked, timeout=LIST_SECONDS, most=PAGE_BYTES if limit > 1 else None
            )
        except TooLarge:
            limit = max(1, limit // 4)
            continue
        page = decoder.page(body)
        found += page.items
        more = page.continue_token
        if not more:
            return ListPage(tuple(found), page.resource_version, "")


def _number(version: str) -> int:
    """Versions of objects are numbers that grow over all objects of a kind (KEP-5504)."""
    return int(version) if version.isdecimal() else 0


def _is_older(item: WatchedObject, than: WatchedObject) -> bool:
    return _number(item.resource_version) < _number(than.resource_version)


def _is_after(item: WatchedObject, version: str) -> bool:
    return _number(item.resource_version) > _number(version)


ALL = ""
"""Stands for all namespaces."""
STALE_SECONDS: Final = 30.0
"""Time after which a broken watch is reported as a problem; shorter breaks are normal."""


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """How fresh the objects of one kind are, in seconds."""

    kind: str
    """gangjobs, pods, nodes, or what a companion watches."""
    broken: float
    """For how long the watch has been broken; 0 while it works."""
    silent: float
    """Time since the last event of the watch."""


def health(kind: str, watches: Iterable[Reflector[Any]]) -> WatchHealth:
    """Return how fresh they are: of several namespaces, the least fresh."""
    found = tuple(watches)
    return WatchHealth(kind, max(one.stale_seconds for one in found), max(one.silent_seconds for one in found))


def problem(what: str, watch: Reflector[Any]) -> str:
    """Return why objects aren't fresh, or aren't shown, in a sentence; empty if they are. ``what``: for people."""
    if watch.listed.is_set():
        why = f"has been broken for {watch.stale_seconds:.0f} s: {watch.problem or 'it ended'}"
        return f"the watch of {what} {why}" if watch.stale_seconds >= STALE_SECONDS else ""
    return f"{what} haven't been listed yet: {watch.problem or 'the first list is under way'}"


class NamespacedObject(WatchedObject, Protocol):
    """The value that is kept of an object in a namespace."""

    @property
    def namespace(self) -> str:
        """The object's namespace."""


N = TypeVar("N", bound=NamespacedObject)


class NamespacedCopy(Generic[N]):
    """The copies of the objects of one kind, as if they were one."""

    def __init__(self, namespaces: Sequence[str], reflector: Callable[[str], Reflector[N]]) -> None:
        """``namespaces``: none = all of the cluster. ``reflector``: makes that of a namespace."""
        self.reflectors: Mapping[str, Reflector[N]] = {one: reflector(one) for one in namespaces or (ALL,)}
        """By namespace."""

    @property
    def items(self) -> Mapping[str, N]:
        """By UID."""
        found = tuple(one.items for one in self.reflectors.values())
        return found[0] if len(found) == 1 else _Union(found)

    def of(self, namespace: str) -> Reflector[N]:
        return self.reflectors.get(namespace) or next(iter(self.reflectors.values()))

    @property
    def readable(self) -> tuple[Reflector[N], ...]:
        """Those that aren't refused; all of them if each is."""
        found = tuple(self.reflectors.values())
        return tuple(one for one in found if not one.is_refused) or found

    async def wait(self) -> None:
        """Wait until each namespace was listed, or one of several is refused."""
        for one in self.reflectors.values():
            await (one.answered if len(self.reflectors) > 1 else one.listed).wait()

    async def refresh(self) -> None:
        """List everything again, but what is refused."""
        for one in self.reflectors.values():
            try:
                await one.refresh()
            except Forbidden:
                if len(self.reflectors) == 1:
                    raise

    def problems(self, what: str) -> Iterator[str]:
        """Return why the objects aren't fresh, or aren't shown, in sentences: of the namespaces that count."""
        readable = self.readable
        for namespace, one in self.reflectors.items():
            found = problem(f"{what} in namespace {namespace}" if namespace else what, one) if one in readable else ""
            if found:
                yield found

    def put(self, item: N) -> None:
        """Add an object that a write returned; see :meth:`Reflector.put`."""
        found = self.reflectors.get(item.namespace) or self.reflectors.get(ALL)
        if found is not None:
            found.put(item)

    def drop(self, uid: str) -> None:
        """Remove an object that is known to be gone."""
        for one in self.reflectors.values():
            one.drop(uid)


class _Union(Mapping[str, N]):
    """Several mappings without a common key, without a copy of them."""

    def __init__(self, parts: Sequence[Mapping[str, N]]) -> None:
        self._parts = parts

    def __getitem__(self, key: str) -> N:
        for part in self._parts:
            if key in part:
                return part[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._parts))
