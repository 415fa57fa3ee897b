"""The spam filter for Events: a token bucket for each kind of event, so that a flood of one kind blocks no other. Pure.

The rule is that of client-go's ``EventSourceObjectSpamFilter``: a burst of 25, then one event every five minutes.
client-go has a bucket for each object; here each reason of a gang has its own, so that the end of a gang is reported
after any number of restarts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

BURST: Final = 25
REFILL_SECONDS: Final = 300.0
"""Time until a bucket gets one more token."""
MAX_BUCKETS: Final = 4096
"""Number of buckets that are kept, those that were used last: a bucket that was dropped is full again."""


@dataclass(slots=True)
class _TokenBucket:
    tokens: float
    at: float


class EventSpamFilter:
    """The buckets."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _TokenBucket] = OrderedDict()

    def allow(self, kind: Hashable, now: float) -> bool:
        """Take a token of this kind, if there is one at ``now`` (monotonic seconds); whether there was."""
        bucket = self._buckets.setdefault(kind, _TokenBucket(BURST, now))
        self._buckets.move_to_end(kind)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
