"""Which rank of a member is furthest behind, and in which phase the member is."""

from __future__ import annotations

from gangsidecar.agent.progress import Call, RankCalls


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


def test_a_rank_that_called_once_is_not_behind_for_ever() -> None:
    known = calls((0, 5, 1.0), (1, 5, 1.0), (0, 6, 2.0))
    assert known.behind(1, every=1) == Call(1, 5, "Step", 1.0, 101), "one step behind, as any rank may be"
    known.add(1, Call(0, 7, "Step", 3.0, 100))
    assert known.behind(1, every=1) is None


def test_a_rank_that_calls_only_when_it_saves_is_not_behind() -> None:
    known = calls((0, 5, 1.0), (0, 6, 2.0))
    for step in (10, 11):
        known.add(1, Call(1, step, "Checkpoint", step * 1.0))
    known.add(1, Call(0, 400, "Step", 400.0))
    assert known.behind(1, every=1) is None


def test_a_rank_that_has_reported_two_steps_and_stops_is_behind_though_another_called_once() -> None:
    known = calls((0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0), (0, 2, 2.0), (1, 2, 2.0), (0, 90, 90.0))
    assert known.behind(1, every=1) == Call(1, 2, "Step", 2.0, 101)


def test_how_far_apart_reports_are_is_learnt_anew_in_another_attempt() -> None:
    known = calls((1, 5, 1.0), (1, 6, 2.0))
    for rank, step in ((1, 7), (0, 7), (0, 20)):
        known.add(2, Call(rank, step, "Step", step * 1.0))
    assert known.behind(2, every=1) is None


def phase(*more: tuple[int, int, str]) -> str:
    """The phase of a member whose ranks have both reported steps 4 and 5, after more calls of (rank, step, phase)."""
    known = calls((0, 4, 1.0), (1, 4, 1.1), (0, 5, 2.0), (1, 5, 2.1))
    for at, (rank, step, name) in enumerate(more, 3):
        known.add(1, Call(rank, step, name, float(at)))
    return known.phase(1)


def test_a_rank_that_saves_alone_is_waited_for_whatever_the_others_said_later() -> None:
    assert phase() == "Step"
    assert phase((0, 5, "Checkpoint"), (1, 6, "Step")) == "Checkpoint"
    assert phase((0, 5, "Evaluation"), (1, 5, "Startup")) == "Evaluation"
    assert phase((0, 5, "Checkpoint"), (1, 6, "Step"), (0, 6, "Step")) == "Step"


def test_a_rank_that_the_others_have_left_behind_is_not_waited_for() -> None:
    assert phase((0, 5, "Checkpoint"), (1, 6, "Step"), (1, 7, "Step")) == "Step"


def test_a_rank_that_calls_only_when_it_saves_is_not_waited_for() -> None:
    known = calls((0, 4, 1.0), (0, 5, 2.0))
    known.add(1, Call(1, 5, "Checkpoint", 3.0))
    known.add(1, Call(0, 5, "Step", 4.0))
    assert known.phase(1) == "Step"
