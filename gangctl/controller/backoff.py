"""Exponential backoff for actions that failed, or that are wanted again after they were done. No other action waits.

The rule: what is done and wanted again was in vain. Something undoes it, or nothing shows it yet: another controller
that deletes new pods must not make this one create as many. Such an action is remembered for a while, wanted or not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 60.0
REMEMBERED_SECONDS: Final = 600.0
"""What is wanted again so long after it was done has lasted for long enough."""


class _Tried(NamedTuple):
    times: int
    """In a row."""
    due: float
    """When it may be tried again."""
    done: bool = False


class Backoff:
    """The failed actions of one gang, and those that were done. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._tried: dict[Hashable, _Tried] = {}

    def is_due(self, action: Hashable, now: float) -> bool:
        """Whether it may be tried now."""
        return action not in self._tried or now >= self._tried[action].due

    def failed(self, action: Hashable, now: float, at_least: float = 0.0) -> int:
        """The action failed; returns how many times in a row. ``at_least``: seconds in which it is not tried again."""
        return self._again(action, now, at_least, done=False)

    def done(self, action: Hashable, now: float) -> int:
        """The action succeeded; returns how many times in a row, each soon after the one before."""
        return self._again(action, now, 0.0, done=True)

    def keep(self, wanted: set[Hashable], now: float) -> None:
        """Forget the failures of all other actions, and what was done long ago: only these are still wanted."""
        self._tried = {
            action: tried
            for action, tried in self._tried.items()
            if (now < tried.due + REMEMBERED_SECONDS if tried.done else action in wanted)
        }

    def succeeded(self, action: Hashable) -> None:
        """The action succeeded, and may be repeated at once."""
        self._tried.pop(action, None)

    def next_in(self, now: float, waits: Callable[[Hashable], bool]) -> float | None:
        """Seconds until the next action is due; None if there is none. ``waits``: whether an action waits to be due."""
        return min((max(0.0, tried.due - now) for action, tried in self._tried.items() if waits(action)), default=None)

    def _again(self, action: Hashable, now: float, at_least: float, *, done: bool) -> int:
        before = self._tried.get(action)
        times = 1 if before is None or before.done is not done else before.times + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(times - 1, 16))
        self._tried[action] = _Tried(times, now + max(pause, at_least), done)
        return times
