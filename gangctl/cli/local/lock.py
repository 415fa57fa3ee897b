"""At most one `gangctl run` for each state directory, because each starts a controller and there must be only one."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gangctl.cli.errors import UserError
from gangctl.cluster.errors import Retryable, Terminal
from gangctl.cluster.local.controller_lock import only_controller
from gangctl.cluster.local.layout import StateDirectory

CONTROLLER_SECONDS: Final = 15.0
"""Time for the controller of a killed `gangctl run` to notice and exit."""
POLL_SECONDS: Final = 0.05


@contextmanager
def only_run(state: StateDirectory) -> Iterator[None]:
    """Hold the run lock of a state directory, once its previous controller has exited.

    Raises:
        UserError: another run holds the lock, or the directory is not writable.
    """
    try:
        state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(state.run_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(
            f"{error.filename} can't be written: {error.strerror}; choose another --state-dir or make it writable"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 64).decode(errors="replace").strip() or "unknown"
            raise UserError(
                f"another gangctl run (process {holder}) uses {state.path}; end it, or choose another --state-dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        _await_no_controller(state)
        yield
        os.ftruncate(descriptor, 0)
    except OSError as error:
        raise UserError(f"{state.run_lock} can't be written: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _await_no_controller(state: StateDirectory) -> None:
    deadline = time.monotonic() + CONTROLLER_SECONDS
    while True:
        try:
            with only_controller(state):
                return
        except Retryable as error:
            raise UserError(str(error)) from None
        except Terminal as error:
            if time.monotonic() >= deadline:
                raise UserError(f"{error}; gangctl run did not start it, or it hangs: end it first") from None
            time.sleep(POLL_SECONDS)
