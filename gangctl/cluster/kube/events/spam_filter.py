"""How much may be said: a token bucket for each kind of news, so that a flood of one starves no other. Pure.

The rule is the one of Kubernetes' own controllers for the Events of one object: 25 at once, then one in five minutes.
Here each reason of a gang has its own, so that a gang's end is told after any number of restarts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

BURST: Final = 25
REFILL_SECONDS: Final = 300.0
"""One more may be said after so long."""
KEPT: Final = 4096
"""So many buckets are remembered, those that were used last: a forgotten one is full again."""


@dataclass(slots=True)
class _TokenBucket:
    tokens: float
    at: float


class EventSpamFilter:
    """The buckets."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _TokenBucket] = OrderedDict()

    def allow(self, kind: Hashable, now: float) -> bool:
        """Whether one more of this kind may be said at ``now``, in monotonic seconds; if so, it counts as said."""
        bucket = self._buckets.setdefault(kind, _TokenBucket(BURST, now))
        self._buckets.move_to_end(kind)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
