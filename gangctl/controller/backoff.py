"""Actions that failed wait longer and longer before they are tried again, and nothing else waits for them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 60.0


class Backoff:
    """Which actions of one gang wait. Times are seconds on one clock, the caller's."""

    def __init__(self) -> None:
        self._failed: dict[Hashable, tuple[int, float]] = {}
        """Action -> failures in a row, not before."""

    def is_due(self, action: Hashable, now: float) -> bool:
        """Whether it may be tried now."""
        return action not in self._failed or now >= self._failed[action][1]

    def failed(self, action: Hashable, now: float) -> None:
        """It was tried and failed."""
        failures = self._failed.get(action, (0, 0.0))[0] + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 16))
        self._failed[action] = failures, now + pause

    def keep(self, wanted: set[Hashable]) -> None:
        """Only these are still wanted, and have failed if they did."""
        self._failed = {action: failed for action, failed in self._failed.items() if action in wanted}

    def succeeded(self, action: Hashable) -> None:
        """It was tried and has worked."""
        self._failed.pop(action, None)

    def next_in(self, now: float) -> float | None:
        """Seconds until the next one is due; None if none waits."""
        return min((max(0.0, due - now) for _, due in self._failed.values()), default=None)
