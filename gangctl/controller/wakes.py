"""Which gangs need another round of the loop: a flag for each gang, which anything may set at any time."""

from __future__ import annotations

import asyncio
from typing import Final

LATER_SECONDS: Final = 1.0
"""How long a change may wait that happens all the time."""


class Wakes:
    """The flags. Setting one many times before the next round causes one round."""

    def __init__(self) -> None:
        self._flags: dict[str, asyncio.Event] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._later: dict[str, asyncio.TimerHandle] = {}

    def wake(self, gang: str) -> None:
        """Ask for another round of this gang (a UID). A gang without a task is announced by :meth:`new`."""
        if gang not in self._flags:
            self._flags[gang] = asyncio.Event()
            self._new.put_nowait(gang)
        self._flags[gang].set()

    def wake_known(self, gang: str) -> None:
        """Ask for another round of this gang, if it has a task."""
        if gang in self._flags:
            self._flags[gang].set()

    def wake_later(self, gang: str) -> None:
        """Ask for a round within :data:`LATER_SECONDS`, unless one begins before. However often: one round."""
        if gang not in self._later:
            self._later[gang] = asyncio.get_running_loop().call_later(LATER_SECONDS, self._wake_now, gang)

    async def new(self) -> str:
        """Wait for the next gang that needs a task."""
        return await self._new.get()

    def begin(self, gang: str) -> None:
        """A round begins: a later wake-up asks for another one."""
        self._cancel(gang)
        self._flags[gang].clear()

    def is_set(self, gang: str) -> bool:
        """Whether the gang was woken since its last round began."""
        return self._flags[gang].is_set()

    async def wait(self, gang: str, seconds: float | None) -> None:
        """Wait until the gang is woken, at most so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._flags[gang].wait()
        except TimeoutError:
            return

    def forget(self, gang: str) -> None:
        """The gang's task ends; the next wake-up announces the gang as new."""
        self._cancel(gang)
        del self._flags[gang]

    def _wake_now(self, gang: str) -> None:
        del self._later[gang]
        self.wake(gang)

    def _cancel(self, gang: str) -> None:
        timer = self._later.pop(gang, None)
        if timer is not None:
            timer.cancel()
