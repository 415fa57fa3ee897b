"""Decide whether forks can be trusted: a fork should make its first step about as soon as an executed worker does.

A library may pass every guard and still not work in a fork, where it waits for a thread that isn't there. The rule:
such a fork costs an executed attempt and no second hang::

    limit   =   max(LEAST, FACTOR * the longest time that an attempt took to its first step)
    late   <=>  a fork of the attempt still runs after the limit, and no first step was reported

After a late attempt the next are executed, until one of them makes its first step. If it did so within the limit,
forks are to blame, and this supervisor makes no more. Otherwise they weren't: the limit has grown. Where no attempt has
reported a step, nothing is known, and nothing is late.
"""

from __future__ import annotations

LEAST_MS = 60_000
"""A restored attempt also loads its checkpoint, which the first one didn't."""
FACTOR = 3


class ForkTrust:
    """What this supervisor knows of its forks. All times are in milliseconds."""

    def __init__(self) -> None:
        self.objection = ""
        """Why the processes of this attempt must be executed; empty if they may be forked."""
        self.is_lost = False
        """No later attempt is forked either."""
        self._longest: int | None = None
        self._began = 0
        self._is_late = False
        self._has_stepped = False

    @property
    def limit(self) -> int | None:
        """The time after which a fork is late; None if it isn't known."""
        return None if self._longest is None else max(LEAST_MS, FACTOR * self._longest)

    def begin(self, now: int) -> None:
        """An attempt begins."""
        if self._is_late and self._longest is not None:
            self.objection = (
                f"a fork made no first step within {(self.limit or 0) // 1000} s, "
                f"and an earlier worker took {self._longest // 1000} s: executed instead"
            )
        self._began, self._is_late, self._has_stepped = now, False, False

    def is_late(self, now: int) -> bool:
        """Return whether the forks of this attempt, which still run, are late."""
        self._is_late = not self._has_stepped and self.limit is not None and now >= self._began + self.limit
        return self._is_late

    def stepped(self, now: int, *, is_executed: bool) -> None:
        """The attempt has made a step. ``is_executed``: each of its processes was executed."""
        if self._has_stepped:
            return
        took, limit = now - self._began, self.limit
        self._has_stepped, self._is_late = True, False
        self._longest = max(took, self._longest or 0)
        if self.objection and is_executed:
            self.is_lost = self.is_lost or (limit is not None and took <= limit)
            self.objection = self.objection if self.is_lost else ""
