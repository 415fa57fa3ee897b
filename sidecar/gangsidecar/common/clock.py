"""The one clock of both programs."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds of CLOCK_BOOTTIME: it never jumps, and it counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
