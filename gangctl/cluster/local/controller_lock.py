"""At most one controller for each state directory: a second one would start every process twice."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.atomic_files import unwritable
from gangctl.cluster.local.layout import StateDirectory


@contextmanager
def only_controller(state: StateDirectory) -> Iterator[None]:
    """Hold the controller lock of a state directory; it is released at the end of the process at the latest.

    Raises:
        Terminal: another process holds it; the message names the process.
        Retryable: the lock can't be written.
    """
    try:
        descriptor = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(state.lock, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
            raise Terminal(f"process {holder} is already the controller of {state.path}") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
