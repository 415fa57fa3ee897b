"""Forks that make no first step cost one executed attempt, and never a second hang."""

from __future__ import annotations

import pytest

from gangsidecar.supervisor.fork_trust import FACTOR, LEAST_MS, ForkTrust

SLOW = LEAST_MS  # Longer than LEAST / FACTOR: the factor decides.


def attempt(trust: ForkTrust, at: int, took: int | None, *, is_executed: bool = False) -> None:
    """An attempt begins at this time, and makes its first step after so long, or never."""
    trust.begin(at)
    if took is not None:
        trust.stepped(at + took, is_executed=is_executed)


def test_without_a_first_step_nothing_is_known_and_nothing_is_late() -> None:
    trust = ForkTrust()
    attempt(trust, 0, None)
    assert trust.limit is None
    assert not trust.is_late(10**9)
    trust.begin(10**9)
    assert trust.objection == ""


@pytest.mark.parametrize(("took", "limit"), [(0, LEAST_MS), (LEAST_MS // FACTOR, LEAST_MS), (SLOW, FACTOR * SLOW)])
def test_the_limit_follows_the_slowest_first_step(took: int, limit: int) -> None:
    trust = ForkTrust()
    attempt(trust, 0, took, is_executed=True)
    attempt(trust, 0, took // 2)
    assert trust.limit == limit
    trust.begin(1000)
    assert not trust.is_late(1000 + limit - 1)
    assert trust.is_late(1000 + limit)


def late(took: int) -> ForkTrust:
    """The first attempt took so long, and the second was late."""
    trust = ForkTrust()
    attempt(trust, 0, took, is_executed=True)
    trust.begin(0)
    assert trust.is_late(10**9)
    return trust


def test_after_a_late_attempt_the_next_is_executed() -> None:
    trust = late(SLOW)
    trust.begin(0)
    assert (
        trust.objection == "a fork made no first step within 180 s, and an earlier worker took 60 s: executed instead"
    )
    trust.begin(0)  # It ended before its first step: nothing was learnt.
    assert trust.objection


def test_forks_are_to_blame_if_an_executed_attempt_is_in_time() -> None:
    trust = late(SLOW)
    attempt(trust, 0, FACTOR * SLOW, is_executed=True)
    assert trust.is_lost
    attempt(trust, 0, 1, is_executed=True)
    assert trust.objection


def test_forks_are_not_to_blame_if_an_executed_attempt_is_late_too() -> None:
    trust = late(SLOW)
    attempt(trust, 0, FACTOR * SLOW + 1, is_executed=True)
    assert (trust.is_lost, trust.objection) == (False, "")
    assert trust.limit == FACTOR * (FACTOR * SLOW + 1)
    trust.begin(0)
    assert trust.objection == ""


def test_an_attempt_that_was_executed_in_part_shows_nothing() -> None:
    trust = late(SLOW)
    attempt(trust, 0, 1, is_executed=False)
    assert (trust.is_lost, bool(trust.objection)) == (False, True)


def test_a_late_first_step_is_none_that_is_missing() -> None:
    trust = late(SLOW)
    trust.stepped(FACTOR * SLOW + 5, is_executed=False)
    assert not trust.is_late(10**9)
    trust.begin(0)
    assert trust.objection == ""
