"""Work that may block on a dead file system. A forked child does it and answers through a pipe.

The supervisor has one thread, so a fork is safe; it takes about a millisecond. The supervisor can give up on a child
that hangs in the kernel: it belongs to no worker.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Optional

from gangsidecar import wire
from gangsidecar.common.log import log
from gangsidecar.supervisor import processes
from gangsidecar.supervisor.event_loop import READ, EventLoop

_ALL = signal.valid_signals()

Then = Callable[[Optional[str]], None]


class ForkedHelpers:
    """The children that work for the supervisor itself."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.pids: set[int] = set()
        """Those that have not been reaped yet. The code that reaps one takes it out."""

    def start(self, work: Callable[[], str], by_ms: int, then: Then) -> None:
        """Do the work in a child; ``then`` gets its answer, or None if there is none by that time."""
        try:
            pid, pipe = _fork(work)
        except OSError as error:
            log("error", "no helper process can be started", reason=error)
            then(None)
            return
        self.pids.add(pid)
        pieces: list[bytes] = []
        waiting = True

        def end(answer: str | None) -> None:
            nonlocal waiting
            waiting = False
            self._loop.forget(pipe)
            os.close(pipe)
            if pid in self.pids:  # not reaped, so the pid is still its own
                processes.send([pid], signal.SIGKILL)
            then(answer)

        def read(_mask: int) -> None:
            try:
                piece = os.read(pipe, 1 << 16)
            except BlockingIOError:
                return
            pieces.append(piece)
            if not piece or sum(map(len, pieces)) > wire.MAX_BYTES:
                end(b"".join(pieces).decode("utf-8", errors="replace") or None)

        def late() -> None:
            if waiting:
                end(None)

        self._loop.watch(pipe, READ, read)
        self._loop.at(by_ms, late)


def _fork(work: Callable[[], str]) -> tuple[int, int]:
    """The child's pid, and the end of the pipe through which it answers."""
    pipe, out = os.pipe()
    os.set_blocking(pipe, False)
    # Until the child has reset its handlers, a signal to it would reach the parent's loop.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        pid = os.fork()
        if pid == 0:
            _child(work, out)
    except OSError:
        os.close(pipe)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(out)
    return pid, pipe


def _child(work: Callable[[], str], out: int) -> None:
    """Never returns. The child keeps only the pipe of the parent's files, so no connection stays open with it."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        processes.die_with_parent()
        os.closerange(3, out)
        os.closerange(out + 1, out + 256)
        data = work().encode()
        while data:
            data = data[os.write(out, data) :]
        code = 0
    finally:
        os._exit(code)
