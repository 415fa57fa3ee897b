"""Exponential backoff for failed actions. No other action waits for them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 60.0


class Backoff:
    """The failed actions of one gang. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._failed: dict[Hashable, tuple[int, float]] = {}
        """Action -> how many times in a row it failed, and when it is due again."""

    def is_due(self, action: Hashable, now: float) -> bool:
        """Whether it may be tried now."""
        return action not in self._failed or now >= self._failed[action][1]

    def failed(self, action: Hashable, now: float, at_least: float = 0.0) -> int:
        """The action failed; returns how many times in a row. ``at_least``: seconds in which it is not tried again."""
        failures = self._failed.get(action, (0, 0.0))[0] + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 16))
        self._failed[action] = failures, now + max(pause, at_least)
        return failures

    def keep(self, wanted: set[Hashable]) -> None:
        """Forget the failures of all other actions: only these are still wanted."""
        self._failed = {action: failed for action, failed in self._failed.items() if action in wanted}

    def succeeded(self, action: Hashable) -> None:
        """The action succeeded."""
        self._failed.pop(action, None)

    def next_in(self, now: float) -> float | None:
        """Seconds until the next failed action is due; None if there is none."""
        return min((max(0.0, due - now) for _, due in self._failed.values()), default=None)
