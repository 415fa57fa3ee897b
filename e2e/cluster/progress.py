"""Progress of long work: one line when it begins, one when it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def announce(what: str) -> None:
    """Print one line to the real standard error: pytest does not capture it."""
    print(f"e2e: {what}", file=sys.__stderr__, flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Announce what begins, and how many seconds it took."""
    announce(f"{what} ...")
    began = time.monotonic()
    yield
    announce(f"{what}: {time.monotonic() - began:.0f} s")
