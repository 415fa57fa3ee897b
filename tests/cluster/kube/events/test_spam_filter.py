from __future__ import annotations

import pytest

from gangctl.cluster.kube import events
from gangctl.cluster.kube.events import EventSpamFilter


def test_a_bucket_allows_its_burst_and_then_one_event_per_refill() -> None:
    limit = EventSpamFilter()
    assert [limit.allow("a", 0.0) for _ in range(events.BURST + 1)] == [True] * events.BURST + [False]
    assert limit.allow("b", 0.0)
    assert not limit.allow("a", events.REFILL_SECONDS / 2)
    assert limit.allow("a", events.REFILL_SECONDS)
    assert not limit.allow("a", events.REFILL_SECONDS)
    later = events.REFILL_SECONDS * 1000
    assert [limit.allow("a", later) for _ in range(events.BURST + 1)] == [True] * events.BURST + [False]


def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_BUCKETS", 3)
    limit = EventSpamFilter()
    for _ in range(events.BURST):
        limit.allow("a", 0.0)
    assert not limit.allow("a", 0.0)
    for other in "bcd":
        limit.allow(other, 0.0)
    assert limit.allow("a", 0.0)
