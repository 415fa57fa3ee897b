"""Which members count as slow: one of many, by a share and by deviations, and none where all are slow."""

from __future__ import annotations

import random

import pytest

from gangctl.core.facts.progress import DEVIATIONS, MANY, MIN_RANKS, SLOW_SHARE, outliers


def names(times: list[int], *, stays: bool = False) -> list[str]:
    """The slow ones of members that take so many milliseconds a step."""
    return [one.member for one in outliers([(ms, 0, f"worker-{at}") for at, ms in enumerate(times)], stays=stays)]


def test_one_of_many_is_found() -> None:
    (found,) = outliers([(1000, at, f"worker-{at}") for at in range(7)] + [(1150, 7, "worker-7")])
    assert (found.member, found.rank, found.own_ms, found.typical_ms) == ("worker-7", 7, 1150, 1000)
    assert found.excess == pytest.approx(0.15)


def test_a_member_at_the_share_is_not_slow_and_one_beyond_it_is() -> None:
    at = round(1000 * (1 + SLOW_SHARE))
    assert names([1000] * 7 + [at]) == []
    assert names([1000] * 7 + [at + 1]) == ["worker-7"]


def test_a_fast_member_is_not_slow() -> None:
    assert names([1000] * 7 + [500]) == []


@pytest.mark.parametrize("factor", [1, 2, 10])
def test_nothing_is_said_where_all_are_slow(factor: int) -> None:
    assert names([1000 * factor] * 8) == []


def test_nothing_is_said_of_fewer_than_a_few() -> None:
    assert names([1000] * (MIN_RANKS - 2) + [9000]) == []
    assert names([1000] * (MIN_RANKS - 1) + [9000]) == [f"worker-{MIN_RANKS - 1}"]


def test_members_that_differ_among_themselves_hide_what_is_within_their_spread() -> None:
    uneven = [1000 - 50 * (at % 3 - 1) for at in range(60)]
    assert names([*uneven, 1200]) == []
    assert names([*uneven, round(1000 + 50 * 1.4826 * DEVIATIONS) + 2]) == ["worker-60"]


def test_steps_of_a_few_milliseconds_are_not_judged_by_rounding() -> None:
    assert names([3] * 20 + [5]) == []
    assert names([0] * 20 + [1]) == []


def test_uneven_work_is_no_slow_device() -> None:
    size = 4 * MANY
    assert len(names([1000] * (size - 4) + [1300] * 4)) == 4
    assert names([1000] * (size - 5) + [1300] * 5) == []
    assert names([1000] * 6 + [1300] * 2) == []


def test_what_is_told_stays_until_it_is_clearly_over() -> None:
    between = [1000] * 7 + [1070]
    assert names(between) == []
    assert names(between, stays=True) == ["worker-7"]
    assert names([1000] * 7 + [1050], stays=True) == []


def test_jitter_alone_is_never_slow() -> None:
    made = random.Random(7)
    for _ in range(200):
        assert names([round(made.gauss(1000, 20)) for _ in range(1000)]) == []
