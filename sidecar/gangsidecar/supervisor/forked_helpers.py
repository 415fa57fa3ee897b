"""Work that may block on a dead file system. A forked child does it and answers through a pipe.

The supervisor can give up on a child that hangs in the kernel: it belongs to no worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from functools import partial

from gangsidecar import wire
from gangsidecar.common.log import log
from gangsidecar.supervisor import processes
from gangsidecar.supervisor.event_loop import READ, EventLoop
from gangsidecar.supervisor.forking import fork

Then = Callable[[str | None], None]


class ForkedHelpers:
    """The children that work for the supervisor itself."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.pids: set[int] = set()
        """Those that have not been reaped yet. The code that reaps one takes it out."""

    def start(self, work: Callable[[], str], by_ms: int, then: Then) -> None:
        """Do the work in a child; ``then`` gets its answer, or None if there is none by that time."""
        self._start(lambda: (work(),), by_ms, lambda text, late: then(None if late else text or None))

    def stream(self, work: Callable[[], Iterable[str]], by_ms: int, then: Callable[[str], None]) -> None:
        """Do the work in a child, piece by piece; ``then`` gets those that are there by that time."""
        self._start(work, by_ms, lambda text, _late: then(text))

    def _start(self, work: Callable[[], Iterable[str]], by_ms: int, then: Callable[[str, bool], None]) -> None:
        """``then`` gets what the child has said, and whether its time was over."""
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
