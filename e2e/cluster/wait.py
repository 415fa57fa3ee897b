"""Waiting for a condition, with a deadline: where nothing can be watched, such as a file or a process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

POLL_SECONDS = 0.05

T = TypeVar("T")


def until(what: str, holds: Callable[[], T | None], seconds: float = 60.0, every: float = POLL_SECONDS) -> T:
    """Look again and again until something is there (not None, not False), and return it.

    ``every``: seconds between two looks; more than a moment where a look is a whole program.

    Raises:
        TimeoutError: it isn't in time.
    """
    end = time.monotonic() + seconds
    while True:
        found = holds()
        if found is not None and found is not False:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)
