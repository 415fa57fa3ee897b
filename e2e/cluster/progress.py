"""Progress on long work: one line when something begins that takes a while, one when it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def announce(what: str) -> None:
    """One line, past whatever captures the output of tests."""
    print(f"e2e: {what}", file=sys.__stderr__, flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what begins, and how many seconds it took."""
    announce(f"{what} ...")
    began = time.monotonic()
    yield
    announce(f"{what}: {time.monotonic() - began:.0f} s")
