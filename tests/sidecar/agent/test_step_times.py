"""How long the steps of a member's slowest rank take: the median of a full window, of this attempt alone."""

from __future__ import annotations

from gangsidecar.agent.progress import WINDOW, StepTimes


def filled(*ranks: tuple[int, int], steps: int = WINDOW) -> StepTimes:
    """Each (rank, milliseconds) has made as many steps in attempt 1."""
    times = StepTimes()
    for rank, milliseconds in ranks:
        for _ in range(steps):
            times.add(1, rank, milliseconds)
    return times


def test_the_slowest_rank_is_told() -> None:
    assert filled((0, 100), (1, 130), (2, 110)).slowest(1) == (130, 1)


def test_nothing_is_told_before_a_window_is_full() -> None:
    times = filled((0, 100), steps=WINDOW - 1)
    assert times.slowest(1) is None
    times.add(1, 0, 100)
    assert times.slowest(1) == (100, 0)


def test_a_rank_whose_window_is_not_full_does_not_hide_the_others() -> None:
    times = filled((0, 100))
    times.add(1, 1, 900)
    assert times.slowest(1) == (100, 0)


def test_pauses_in_fewer_than_half_of_the_steps_do_not_count() -> None:
    times = filled((0, 100))
    for _ in range(WINDOW // 2 - 1):
        times.add(1, 0, 60_000)
    assert times.slowest(1) == (100, 0)


def test_a_rank_that_becomes_slow_shows_it_within_a_window() -> None:
    times = filled((0, 100))
    needed = 0
    while times.slowest(1) == (100, 0):
        times.add(1, 0, 115)
        needed += 1
    assert WINDOW // 2 <= needed <= WINDOW // 2 + 1


def test_another_attempt_begins_anew() -> None:
    times = filled((0, 100))
    times.add(2, 0, 100)
    assert times.slowest(2) is None
    assert times.slowest(1) is None
