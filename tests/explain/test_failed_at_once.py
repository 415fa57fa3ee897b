"""How many attempts in a row failed at once, by the status alone."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.api.incident import PhaseMilliseconds
from gangctl.api.status import Status
from gangctl.explain.failed_at_once import QUICK_SECONDS, failed_at_once
from tests.core.world import START
from tests.explain.incidents import incident

NO_STEP = PhaseMilliseconds(detect=0, stop=1, barrier=1, start=1)


def status(*begins: float, **more: Any) -> Status:
    """A gang that became active at the start, with incidents at these seconds after it, oldest first."""
    made = [
        incident(
            attempt=at + 2,
            time=START + begin,
            settled_time=START + begin + 1,
            charged=True,
            milliseconds=NO_STEP,
        )
        for at, begin in enumerate(begins)
    ]
    return Status.model_validate({"start_time": START, "incidents": tuple(reversed(made)), **more})


@pytest.mark.parametrize(
    ("begins", "count"),
    [
        ((), 0),
        ((3,), 1),
        ((3, 6, 9), 3),
        ((3, 6 + QUICK_SECONDS), 0),
        ((3, 6 + QUICK_SECONDS, 9 + QUICK_SECONDS), 1),
        ((2 * QUICK_SECONDS, 2 * QUICK_SECONDS + 3), 1),
    ],
)
def test_attempts_that_ended_within_a_minute_of_their_start_are_counted(begins: tuple[float, ...], count: int) -> None:
    assert failed_at_once(status(*begins)) == count


def test_an_attempt_that_made_a_step_ends_the_row() -> None:
    found = status(3, 6, 9)
    assert failed_at_once(found) == 3
    newest, middle, oldest = found.incidents
    stepped = middle.model_copy(update={"milliseconds": PhaseMilliseconds(first_step=1)})
    assert failed_at_once(found.model_copy(update={"incidents": (newest, stepped, oldest)})) == 0
    assert failed_at_once(status(3, 6, 9, progress={"attempt": 3, "step": 7, "time": START})) == 0


def test_what_is_not_charged_and_what_is_not_known_ends_the_row() -> None:
    found = status(3, 6, 9)
    newest, middle, oldest = found.incidents
    drained = middle.model_copy(update={"charged": False})
    assert failed_at_once(found.model_copy(update={"incidents": (newest, drained, oldest)})) == 1
    opened = newest.model_copy(update={"settled": False, "charged": False})
    assert failed_at_once(found.model_copy(update={"incidents": (opened, middle, oldest)})) == 3
    assert failed_at_once(found.model_copy(update={"incidents": (newest, oldest)})) == 0
    assert failed_at_once(found.model_copy(update={"incidents": (newest, middle)})) == 1
