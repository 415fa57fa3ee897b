"""Who was refused and why: every case is counted, and said so seldom that a flood of them doesn't flood the log."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Final

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 5.0
"""For so long after a line about a reason there is no other about the same one."""


class Refusals:
    """By reason; reasons are few and fixed, so that they can be labels of a metric."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: dict[str, tuple[float, int]] = {}
        """When a reason was said last, and how many there had been by then."""

    def add(self, reason: str, who: str, what: str) -> None:
        """One more: ``who`` and ``what`` (a sentence) are for the log."""
        self.counts[reason] += 1
        now, count = time.monotonic(), self.counts[reason]
        at, before = self._said.get(reason, (-QUIET_SECONDS, 0))
        if now - at < QUIET_SECONDS:
            return
        self._said[reason] = now, count
        others = count - before - 1
        more = f" ({others} more since the last line of this kind)" if others else ""
        log.warning("refused, %s: %s: %s%s", reason, who, what, more)
