"""The controller's clock: the wall time at the start of a term, and the time that has passed since then.

The rule: within a term the clock never jumps, whatever is done to the wall clock, and it goes on while the machine
sleeps. So a wait that is counted on it is as long as it says. Two terms may have clocks that are hours apart: no wait
that must be safe may go from one to the other.
"""

import time


class _Term:
    def __init__(self) -> None:
        self.offset = 0.0
        """Wall time minus elapsed time, in seconds."""
        self.begin()

    def begin(self) -> None:
        self.offset = time.time() - elapsed()


def elapsed() -> float:
    """Seconds since the machine was started; the time of its sleep counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_TERM = _Term()


def begin_term() -> None:
    """Read the wall clock. What was computed from the clock before must not be used any more."""
    _TERM.begin()


def now() -> float:
    """Seconds since the epoch, in whole microseconds: what is stored is read as the same number again."""
    return time_of(elapsed())


def time_of(moment: float) -> float:
    """Return when a moment was, in seconds since the epoch; ``moment``: what :func:`elapsed` gave then."""
    return round(_TERM.offset + moment, 6)
