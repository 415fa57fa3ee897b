"""Polling for a condition with a deadline, where nothing can be watched: a file, a process, a query.

The condition gives what it found; None and False mean "not yet". It must not change what it looks at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

POLL_SECONDS = 0.05

T = TypeVar("T")


def until(what: str, condition: Callable[[], T | None], seconds: float = 60.0, every: float = POLL_SECONDS) -> T:
    """Poll until the condition holds, and return what it found.

    Args:
        what: names the condition in the error.
        condition: called at least once.
        seconds: the deadline.
        every: seconds between two calls; more where a call starts a program.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found is not None and found is not False:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)


async def until_async(
    what: str,
    condition: Callable[[], Awaitable[bool] | bool],
    seconds: float = 60.0,
    every: float = POLL_SECONDS,
) -> None:
    """Poll as :func:`until` does, without blocking the event loop. The condition may be a coroutine function.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    end = time.monotonic() + seconds
    while True:
        holds = condition()
        if isawaitable(holds):
            holds = await holds
        if holds:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        await asyncio.sleep(every)
