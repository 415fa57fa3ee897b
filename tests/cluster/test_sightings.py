"""The times of a pod's changes are on the controller's clock, whatever its node wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangctl.cluster.sightings import LAG_SECONDS, first_seen, seen_again
from gangctl.core.facts.world import Pod

HOUR = 3600.0
NOW = 1_000_000.0
POD = Pod("g-worker-0-0", "uid", "worker-0", 0, created_at=NOW)


def test_a_pod_that_is_listed_was_not_started_in_the_future() -> None:
    listed = replace(POD, created_at=NOW + HOUR, scheduled_at=NOW + HOUR, started_at=NOW + HOUR, ended_at=NOW + HOUR)
    seen = first_seen(listed, NOW)
    assert (seen.created_at, seen.scheduled_at, seen.started_at, seen.ended_at) == (NOW, NOW, NOW, NOW)


def test_a_pod_that_is_listed_may_have_started_long_ago() -> None:
    assert first_seen(replace(POD, started_at=NOW - HOUR), NOW).started_at == NOW - HOUR


@pytest.mark.parametrize(
    ("written", "seen"), [(NOW + HOUR, NOW), (NOW - HOUR, NOW - LAG_SECONDS), (NOW - 1.5, NOW - 1.5)]
)
def test_a_change_that_the_watch_shows_has_just_happened(written: float, seen: float) -> None:
    after = seen_again(replace(POD, started_at=written), POD, POD, NOW)
    assert after.started_at == seen


def test_a_time_that_does_not_change_stays_as_it_was_seen() -> None:
    written = replace(POD, started_at=NOW + HOUR)
    seen = first_seen(written, NOW)
    later = seen_again(replace(written, ended_at=NOW + HOUR), written, seen, NOW + 60)
    assert (later.started_at, later.ended_at) == (NOW, NOW + 60)


def test_a_container_that_does_not_run_has_no_start() -> None:
    written = replace(POD, started_at=NOW - 10)
    assert seen_again(POD, written, written, NOW).started_at is None
