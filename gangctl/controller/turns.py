"""Short pieces of work in turns of the event loop: of namespaces one after the other, of many members in slices.

The rule: namespaces take turns, and within a namespace the first comes first. However much arrives at once, everything
else that the loop does waits for one turn at most, and a namespace's work for one piece of each other namespace. Of a
large gang's members, the first slice is served at once, each further slice in a later turn of the loop, in order; what
has changed in between is for the work to see.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeVar

log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.005
"""After so long the loop serves everything else before it goes on."""


class Turns:
    """The work that waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        """By namespace; the one whose turn is next comes first."""
        self._is_planned = False

    def take(self, namespace: str, work: Callable[[], None]) -> asyncio.Future[None]:
        """Do this work in its turn, unless the future that is returned is cancelled. It raises what the work raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.put(namespace, partial(_do, done, work))
        return done

    def put(self, namespace: str, work: Callable[[], None]) -> None:
        """Do this work in its turn, without waiting for it. If it raises, that is logged, and costs no other work."""
        self._waiting.setdefault(namespace, deque()).append(work)
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        ends = time.monotonic() + TURN_SECONDS
        while self._waiting and time.monotonic() < ends:
            namespace = next(iter(self._waiting))
            queue = self._waiting.pop(namespace)
            try:
                queue.popleft()()
            except Exception:
                log.exception("a piece of work of namespace %s crashed, which is a bug", namespace)
            if queue:
                self._waiting[namespace] = queue
        if self._waiting:
            self._plan()


def _do(done: asyncio.Future[None], work: Callable[[], None]) -> None:
    if done.done():  # Its connection has ended meanwhile.
        return
    try:
        work()
    except Exception as error:  # noqa: BLE001 - it is raised where the work was asked for
        done.set_exception(error)
    else:
        done.set_result(None)


_T = TypeVar("_T")
SLICE: Final = 512
"""So many members are served in one turn of the loop: of fewer, the first would answer before the last are told."""


def in_slices(items: Iterator[_T], serve: Callable[[_T], None]) -> None:
    """Serve every item. ``items`` must not change meanwhile."""
    some = tuple(islice(items, SLICE))
    for item in some:
        serve(item)
    if len(some) == SLICE:
        asyncio.get_running_loop().call_soon(in_slices, items, serve)
