"""Fair slots: how many requests are under way at once, shared fairly between namespaces, and between their gangs.

The rule: a namespace may take one more slot while it has fewer than half of those that the others leave free, and so
may a gang in its namespace:

    half(free)  = max(1, free // 2)
    limit(n)    = half(total - used of the other namespaces)
    room(n, g)  = used < total  and  used(n) < limit(n)  and  used(g) < half(limit(n) - used of the other gangs of n)

So one namespace alone gets half, and a second one finds half of the rest however slow the requests of the first are. Of
those that wait, recoveries go before first starts; then the namespaces take turns, and in each its gangs. A gang with
ten thousand pods to create must not delay the replacement of another's pod by more than one request.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_Gangs = dict[str, deque[asyncio.Future[None]]]
"""Gang -> what of it waits; the gang whose turn is next comes first."""
_Waiting = dict[str, _Gangs]
"""Namespace -> its gangs; the namespace whose turn is next comes first."""


class FairSlots:
    """The slots of all namespaces."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._of_namespaces: Counter[str] = Counter()
        self._of_gangs: Counter[str] = Counter()
        self._recoveries: _Waiting = {}
        self._first_starts: _Waiting = {}

    @asynccontextmanager
    async def slot(self, namespace: str, gang: str, *, first_start: bool = False) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the end of the block. ``gang``: its UID."""
        granted = asyncio.get_running_loop().create_future()
        waiting = self._first_starts if first_start else self._recoveries
        waiting.setdefault(namespace, {}).setdefault(gang, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # It was granted in the same moment.
                self._release(namespace, gang)
            raise
        try:
            yield
        finally:
            self._release(namespace, gang)

    def _release(self, namespace: str, gang: str) -> None:
        for used, name in ((self._of_namespaces, namespace), (self._of_gangs, gang)):
            used[name] -= 1
            if not used[name]:
                del used[name]
        self._grant()

    def _grant(self) -> None:
        for waiting in (self._recoveries, self._first_starts):
            while (found := self._next(waiting)) is not None:
                self._serve(waiting, *found)

    def _next(self, waiting: _Waiting) -> tuple[str, str] | None:
        """The namespace and the gang whose turn it is. Of a namespace without room no gang is looked at."""
        used = self._of_namespaces.total()
        for namespace, gangs in waiting.items() if used < self._total else ():
            ours = self._of_namespaces[namespace]
            limit = _half(self._total - (used - ours))
            for gang in gangs if ours < limit else ():
                own = self._of_gangs[gang]
                if own < _half(limit - (ours - own)):
                    return namespace, gang
        return None

    def _serve(self, waiting: _Waiting, namespace: str, gang: str) -> None:
        """Grant a slot to the first request of the gang; then it is the turn of all others."""
        gangs = waiting.pop(namespace)
        queue = gangs.pop(gang)
        granted = queue.popleft()
        if queue:
            gangs[gang] = queue
        if gangs:
            waiting[namespace] = gangs
        if not granted.cancelled():
            self._of_namespaces[namespace] += 1
            self._of_gangs[gang] += 1
            granted.set_result(None)


def _half(free: int) -> int:
    return max(1, free // 2)
