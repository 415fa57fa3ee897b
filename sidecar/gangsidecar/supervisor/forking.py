"""Forks a child that works for the supervisor and belongs to no worker. It answers through a pipe.

The supervisor has one thread, so a fork is safe; it takes about a millisecond. A child must keep none of the
supervisor's files but those that it is given: a connection would stay open with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from gangsidecar.supervisor import processes

_ALL = signal.valid_signals()


def fork(work: Callable[[int], None], keep: Sequence[int] = (), *, outlives: bool = False) -> tuple[int, int]:
    """The child's pid, and the end of the pipe through which it answers, which does not block.

    Args:
        work: what the child does. It gets its end of the pipe.
        keep: the files of this process that it keeps, beside standard input and output.
        outlives: whether it goes on when this process is gone.

    Raises:
        OSError: it can't be started.
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
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
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
