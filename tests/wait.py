"""Wait until a condition holds, with a deadline, where nothing can be awaited: a file, a process, a remote state.

A condition returns what it found; anything false means "not yet". It must not change what it looks at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar, overload

SECONDS = 90.0
"""The deadline where a test names none: a machine with four busy loops for each core takes ten times as long."""
EVERY_SECONDS = 0.01

T = TypeVar("T")


def until(what: str, condition: Callable[[], T | None], seconds: float = SECONDS, every: float = EVERY_SECONDS) -> T:
    """Call the condition until it holds, and return what it found.

    Args:
        what: names the condition in the error.
        condition: called at least once.
        seconds: the deadline.
        every: seconds between two calls; more where a call is expensive.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise _missed(what, seconds, found)
        time.sleep(every)
    return found


@overload
async def until_async(
    what: str, condition: Callable[[], Awaitable[T | None]], seconds: float = ..., every: float = ...
) -> T: ...


@overload
async def until_async(what: str, condition: Callable[[], T | None], seconds: float = ..., every: float = ...) -> T: ...


async def until_async(
    what: str,
    condition: Callable[[], Awaitable[T | None] | T | None],
    seconds: float = SECONDS,
    every: float = EVERY_SECONDS,
) -> T:
    """Do the same as :func:`until` without blocking the event loop. The condition may be a coroutine function.

    A condition that hangs ends with the deadline, too.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    found: T | None = None
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            while True:
                answer = condition()
                found = await answer if isawaitable(answer) else answer
                if found:
                    return found
                await asyncio.sleep(every)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise _missed(what, seconds, found) from error


def _missed(what: str, seconds: float, found: object) -> TimeoutError:
    last = "" if found is None or found is False else f"; the condition found {found!r}"
    return TimeoutError(f"{what}: not within {seconds:g} s{last}")
