"""A small single-threaded event loop, and the children that work for the supervisor and belong to no worker.

The loop has file descriptors, timers on CLOCK_BOOTTIME and signals. asyncio would take a third of the memory that a
supervisor may use.

The supervisor has one thread, so a fork is safe; it takes about a millisecond. A child answers through a pipe, and must
keep none of the supervisor's files but those that it is given: a connection would stay open with it. What may block on
a dead file system is done by a child: the supervisor gives up on one that hangs in the kernel.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gangsidecar import wire
from gangsidecar.common import log, now_ms
from gangsidecar.supervisor import processes

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
_ALL = signal.valid_signals()


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

    def catch(self, signums: Iterable[int], call: Callable[[int], None]) -> None:
        """Call ``call`` from within the loop for each of these signals, also for one that came while it was blocked."""
        # First: it passes on what the handlers drop.
        signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        for signum in signums:
            signal.signal(signum, lambda _signum, _frame: None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})

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


def fork(work: Callable[[int], None], keep: Sequence[int] = (), *, outlives: bool = False) -> tuple[int, int]:
    """Return the child's pid, and the end of the pipe through which it answers, which does not block.

    The child does the ``work`` with its end of the pipe, and keeps these files beside standard input and output.
    """
    pipe, out = os.pipe()
    os.set_blocking(pipe, False)
    # Until the child has reset its handlers, a signal to it would reach the parent's loop.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    parent = None if outlives else os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            _child(work, out, keep, parent)
    except OSError:
        os.close(pipe)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(out)
    return pid, pipe


def _child(work: Callable[[int], None], out: int, keep: Sequence[int], parent: int | None) -> None:
    """Never returns. ``parent``: the process that it must not outlive."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        others = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
        for one in (*wire.STOP_SIGNALS.values(), *others):
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if parent is not None:
            processes.die_with_parent(parent)
        first = 3
        for kept in sorted({out, *keep}):
            os.closerange(first, kept)
            first = kept + 1
        os.closerange(first, first + 256)
        work(out)
        code = 0
    finally:
        os._exit(code)


class ForkedHelpers:
    """The children that work for the supervisor itself."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.pids: set[int] = set()  # Those that have not been reaped yet. The code that reaps one takes it out.

    def start(self, work: Callable[[], Iterable[str]], by_ms: int, then: Callable[[str, bool], None]) -> None:
        """Do the work in a child, piece by piece; ``then`` gets the pieces, and whether its time was over."""
        try:
            pid, pipe = fork(partial(_answer, work))
        except OSError as error:
            log("error", "no helper process can be started", reason=error)
            then("", False)  # noqa: FBT003 - its signature
            return
        self.pids.add(pid)
        pieces: list[bytes] = []
        waiting = True

        def end(*, late: bool) -> None:
            nonlocal waiting
            waiting = False
            self._loop.forget(pipe)
            os.close(pipe)
            if pid in self.pids:  # not reaped, so the pid is still its own
                processes.send([pid], signal.SIGKILL)
            then(b"".join(pieces).decode("utf-8", errors="replace"), late)

        def read(_mask: int) -> None:
            try:
                piece = os.read(pipe, 1 << 16)
            except BlockingIOError:
                return
            pieces.append(piece)
            if not piece or sum(map(len, pieces)) > wire.MAX_BYTES:
                end(late=False)

        def late() -> None:
            if waiting:
                end(late=True)

        self._loop.watch(pipe, READ, read)
        self._loop.at(by_ms, late)


def _answer(work: Callable[[], Iterable[str]], out: int) -> None:
    for piece in work():
        data = piece.encode()
        while data:
            data = data[os.write(out, data) :]
