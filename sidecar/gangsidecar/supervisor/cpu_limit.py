"""A limit of processor time for a search: a regular expression can take exponential time for one line."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable


class TooSlowError(Exception):
    """A search takes too long."""


def limited(seconds: float, work: Callable[[], None]) -> float:
    """Do the work; returns how much processor time it took.

    Raises:
        TooSlowError: it took longer, and was ended.
    """
    signal.signal(signal.SIGVTALRM, _raise)
    began = time.thread_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.thread_time() - began


def _raise(_signum: int, _frame: object) -> None:
    raise TooSlowError
