"""A small single-threaded event loop: file descriptors, timers on CLOCK_BOOTTIME, signals.

asyncio would take a third of the memory that a supervisor may use.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import signal
import socket
from collections.abc import Callable
from typing import Any

from gangsidecar.common.clock import now_ms

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class EventLoop:
    """Calls back for files that are ready and timers that are due. A callback must not block."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._watched: dict[Any, int] = {}
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wakeup, self._signals = socket.socketpair()
        for end in (self._wakeup, self._signals):
            end.setblocking(False)  # noqa: FBT003 - its signature

    def catch(self, signums: tuple[signal.Signals, ...], call: Callable[[int], None]) -> None:
        """Call ``call`` from within the loop for each of these signals, instead of their default action."""
        for signum in signums:
            signal.signal(signum, _ignore)
        signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)

        def read(_mask: int) -> None:
            try:
                caught = self._wakeup.recv(4096)
            except BlockingIOError:
                return
            for signum in caught:
                call(signum)

        self.watch(self._wakeup, READ, read)

    def watch(self, file: Any, mask: int, call: Callable[[int], None]) -> None:
        """Call back when the file is ready for ``mask``; this replaces an earlier request."""
        if file not in self._watched:
            self._selector.register(file, mask, call)
        elif self._watched[file] != mask:
            self._selector.modify(file, mask, call)
        self._watched[file] = mask

    def forget(self, file: Any) -> None:
        """Stop calling back for the file. Call it before the file is closed."""
        if self._watched.pop(file, None) is not None:
            self._selector.unregister(file)

    def at(self, when_ms: int, call: Callable[[], None]) -> None:
        """Call back once at that time. The callback checks whether it still matters."""
        heapq.heappush(self._timers, (when_ms, next(self._order), call))

    def turn(self, until_ms: int | None) -> None:
        """Wait until something is ready or due, at most until the given time, and call back for all of it."""
        times = [] if until_ms is None else [until_ms]
        if self._timers:
            times.append(self._timers[0][0])
        timeout = max(0, min(times) - now_ms()) / 1000 if times else None
        for key, mask in self._selector.select(timeout):
            if key.fileobj in self._watched:  # an earlier callback of this turn may have dropped it
                key.data(mask)
        while self._timers and self._timers[0][0] <= now_ms():
            heapq.heappop(self._timers)[2]()


def _ignore(_signum: int, _frame: object) -> None:
    """The wakeup descriptor passes it on."""
