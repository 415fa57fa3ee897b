"""The clock of an event loop in the hands of a test: it stands still until the test moves it."""

from __future__ import annotations

import asyncio

import pytest

TURNS = 5
"""Turns of the loop in which what is due happens, and what follows from it at once."""


class MovedClock:
    """The clock of the running loop. What waits for a file or a socket does not move it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._now)

    async def move(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._now += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)
