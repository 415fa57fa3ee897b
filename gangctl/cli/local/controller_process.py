"""Keep the controller of a state directory running, as a Deployment does on a cluster: with back-off after each crash.

The controller's standard input is a pipe from this process: when this process is gone, the controller exits, and gangs
continue without it. At most one `gangctl run` may use a state directory, because each starts a controller.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from gangctl.cli.errors import UserError
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.layout import StateDirectory, only_controller, only_process

QUICK_SECONDS: Final = 10.0
"""A controller that lives for a shorter time counts as a quick death."""
MOST_QUICK_DEATHS: Final = 10
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
END_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL of the controller. A SIGKILL does not harm gangs."""
CONTROLLER_SECONDS: Final = 15.0
"""Time for the controller of a killed `gangctl run` to notice and exit."""
POLL_SECONDS: Final = 0.05


class ControllerFailedError(Exception):
    """The controller keeps dying; the message has the reason and the path of its log."""


@dataclass
class ControllerProcess:
    """The controller process of a state directory. ``notify`` is called with messages for the user."""

    state: StateDirectory
    notify: Callable[[str], None]
    _child: asyncio.subprocess.Process | None = field(default=None, init=False)

    async def run(self) -> None:
        """Keep the controller running until cancelled, then end it.

        Raises:
            ControllerFailedError: it died too often in a row.
        """
        quick = 0
        try:
            while True:
                self._child = await self._start()
                began = time.monotonic()
                code = await self._child.wait()
                lived = time.monotonic() - began
                quick = quick + 1 if lived < QUICK_SECONDS else 1
                if quick >= MOST_QUICK_DEATHS:
                    last = f"the last time {_exit_text(code)}: {self._last_line()}"
                    raise ControllerFailedError(f"the controller died {quick} times in a row, {last}")
                pause = 0.0 if quick == 1 else min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (quick - 2))
                self.notify(
                    f"the controller died {_exit_text(code)}; workers continue to train, the controller restarts"
                    + (f" in {pause:g} s" if pause else "")
                )
                await asyncio.sleep(pause)
        finally:
            await self._end()

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            log = os.open(self.state.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ControllerFailedError(f"{self.state.log} can't be written: {error.strerror}") from None
        try:
            return await asyncio.create_subprocess_exec(
                # In UTF-8 whatever the locale is: manifests are, and so is what is stored.
                *(sys.executable, "-X", "utf8", "-P", "-m", "gangctl.controller"),
                *("--state-dir", str(self.state.path)),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # only this process handles Ctrl-C
            )
        except OSError as error:
            raise ControllerFailedError(f"the controller can't be started: {error.strerror}") from None
        finally:
            os.close(log)

    async def _end(self) -> None:
        child = self._child
        if child is None or child.returncode is not None:
            return
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGCONT)  # gangctl inject may have frozen it
        try:
            async with asyncio.timeout(END_SECONDS):
                await child.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    def _last_line(self) -> str:
        try:
            lines = self.state.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return f"{lines[-1] if lines else 'its log is empty'} ({self.state.log})"


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


@contextmanager
def only_run(state: StateDirectory) -> Iterator[None]:
    """Hold the run lock of a state directory, once its previous controller has exited.

    Raises:
        UserError: the directory isn't writable, or its controller goes on.
        ClusterError: another run holds the lock, or it can't be written.
    """
    try:
        state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{error.filename} can't be written: {error.strerror}; choose another --state-dir or make it writable"
        ) from None
    busy = f"uses {state.path}; end it, or choose another --state-dir"
    with only_process(state.run_lock, lambda holder: f"another gangctl run (process {holder}) {busy}"):
        _await_no_controller(state)
        yield


def _await_no_controller(state: StateDirectory) -> None:
    deadline = time.monotonic() + CONTROLLER_SECONDS
    while True:
        try:
            with only_controller(state):
                return
        except Terminal as error:
            if time.monotonic() >= deadline:
                raise UserError(f"{error}; gangctl run did not start it, or it hangs: end it first") from None
            time.sleep(POLL_SECONDS)
