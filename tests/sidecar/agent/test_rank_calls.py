"""Which rank of a member is furthest behind."""

from __future__ import annotations

from gangsidecar.agent.rank_calls import Call, RankCalls


def calls(*made: tuple[int, int, float], attempt: int = 1) -> RankCalls:
    """Calls of (rank, step, time), one after the other."""
    known = RankCalls()
    for rank, step, at in made:
        known.add(attempt, Call(rank, step, "Step", at, 100 + rank))
    return known


def test_the_rank_with_the_lowest_step_is_behind_and_says_since_when() -> None:
    found = calls((0, 5, 1.0), (1, 4, 0.9), (2, 6, 1.2)).behind(1)
    assert found == Call(1, 4, "Step", 0.9, 101)


def test_ranks_that_have_made_the_same_step_are_together() -> None:
    assert calls((0, 5, 1.0), (1, 5, 9.0)).behind(1) is None
    assert calls((0, 5, 1.0)).behind(1) is None
    assert RankCalls().behind(1) is None


def test_of_equal_ones_the_longest_silent_counts() -> None:
    found = calls((0, 9, 3.0), (1, 4, 2.0), (2, 4, 1.0)).behind(1)
    assert found is not None
    assert found.rank == 2


def test_the_newest_call_of_a_rank_counts() -> None:
    assert calls((0, 5, 1.0), (1, 4, 0.9), (1, 5, 1.5)).behind(1) is None


def test_another_attempt_begins_anew() -> None:
    known = calls((0, 5, 1.0), (1, 4, 0.9))
    known.add(2, Call(0, 5, "Step", 2.0))
    assert known.behind(1) is None
    assert known.behind(2) is None
