"""Progress on long work: one line when something begins that takes a while, one when it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def tell(what: str) -> None:
    """One line, past whatever captures the output of tests."""
    print(f"e2e: {what}", file=sys.__stderr__, flush=True)


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Say what begins, and how many seconds it took."""
    tell(f"{what} ...")
    began = time.monotonic()
    yield
    tell(f"{what}: {time.monotonic() - began:.0f} s")
