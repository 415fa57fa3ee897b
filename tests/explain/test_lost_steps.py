"""Lost steps are told as a range where the framework reports only some."""

from __future__ import annotations

import pytest

from gangctl.story.words import lost_steps


@pytest.mark.parametrize(
    ("steps", "at_most", "told"),
    [
        (0, None, "0 steps"),
        (1, None, "1 step"),
        (7, None, "7 steps"),
        (0, 9, "0 to 9 steps"),
        (1, 10, "1 to 10 steps"),
        (5, 5, "5 steps"),
    ],
)
def test_the_number_has_its_noun(steps: int, at_most: int | None, told: str) -> None:
    assert lost_steps(steps, at_most) == told
