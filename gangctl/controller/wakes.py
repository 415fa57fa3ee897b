"""Which gangs are to be looked at again: a flag for each, that anybody may set at any time."""

from __future__ import annotations

import asyncio
from typing import Final

LATER_SECONDS: Final = 1.0
"""How long news may wait that is worth a look, but that comes all the time."""


class Wakes:
    """Many wake-ups before the next look are one."""

    def __init__(self) -> None:
        self._flags: dict[str, asyncio.Event] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._later: dict[str, asyncio.TimerHandle] = {}

    def wake(self, gang: str) -> None:
        """Have this gang (by UID) looked at again; one that nobody looks at yet is announced by :meth:`new`."""
        if gang not in self._flags:
            self._flags[gang] = asyncio.Event()
            self._new.put_nowait(gang)
        self._flags[gang].set()

    def wake_later(self, gang: str) -> None:
        """The same, a while later, unless there is a look at it before: at most one a while, however much comes."""
        if gang not in self._later:
            self._later[gang] = asyncio.get_running_loop().call_later(LATER_SECONDS, self._wake_now, gang)

    async def new(self) -> str:
        """The next gang that somebody has to begin to look at."""
        return await self._new.get()

    def begin(self, gang: str) -> None:
        """A look begins: what happens from now on needs another one."""
        self._cancel(gang)
        self._flags[gang].clear()

    def is_set(self, gang: str) -> bool:
        """Whether something has happened since the last look began."""
        return self._flags[gang].is_set()

    async def wait(self, gang: str, seconds: float | None) -> None:
        """Until something happens, or so much time has passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._flags[gang].wait()
        except TimeoutError:
            return

    def forget(self, gang: str) -> None:
        """Nobody looks at it any more; the next wake-up announces it as new."""
        self._cancel(gang)
        del self._flags[gang]

    def _wake_now(self, gang: str) -> None:
        del self._later[gang]
        self.wake(gang)

    def _cancel(self, gang: str) -> None:
        timer = self._later.pop(gang, None)
        if timer is not None:
            timer.cancel()
