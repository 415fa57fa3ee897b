"""The controller's wall clock."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds since the epoch, in whole microseconds: what is stored is read as the same number again."""
    return round(time.time(), 6)
