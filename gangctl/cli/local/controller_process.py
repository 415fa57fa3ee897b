"""Keeps a controller process running, as a Deployment does on a cluster: with back-off after each crash.

The controller's standard input is a pipe from this process: when this process is gone, the controller exits, and gangs
continue without it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gangctl.cluster.local.layout import StateDirectory

QUICK_SECONDS: Final = 10.0
"""A controller that lives for a shorter time counts as a quick death."""
MOST_QUICK_DEATHS: Final = 10
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
END_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL of the controller. A SIGKILL does not harm gangs."""


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
                await self._start()
                began = time.monotonic()
                code = await self._ended()
                lived = time.monotonic() - began
                quick = quick + 1 if lived < QUICK_SECONDS else 1
                if quick >= MOST_QUICK_DEATHS:
                    raise ControllerFailedError(
                        f"the controller died {quick} times in a row, the last time {_how(code)}: {self._last_words()}"
                    )
                pause = 0.0 if quick == 1 else min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (quick - 2))
                self.notify(
                    f"the controller died {_how(code)}; workers continue to train, the controller restarts"
                    + (f" in {pause:g} s" if pause else "")
                )
                await asyncio.sleep(pause)
        finally:
            await self._end()

    async def _start(self) -> None:
        try:
            log = os.open(self.state.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ControllerFailedError(f"{self.state.log} can't be written: {error.strerror}") from None
        try:
            self._child = await asyncio.create_subprocess_exec(
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

    async def _ended(self) -> int:
        assert self._child is not None
        return await self._child.wait()

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

    def _last_words(self) -> str:
        try:
            lines = self.state.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return f"{lines[-1] if lines else 'its log is empty'} ({self.state.log})"


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
