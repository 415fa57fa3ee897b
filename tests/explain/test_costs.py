"""What an incident came to, and what it cost, in words."""

from __future__ import annotations

from typing import Any

import pytest

from gangctl.api.incident import Incident
from gangctl.story.words import cost
from tests.cli.tracecases import incident


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "restarted from step 50; 5 steps were lost, 1.25 s of training"),
        ({"lostSteps": 1, "lostSeconds": 0.0001}, "restarted from step 50; 1 step was lost"),
        ({"lostSteps": 0, "lostSeconds": 0.0}, "restarted from step 50; no step was lost"),
        ({"lostSteps": 0, "lostStepsAtMost": 9, "lostSeconds": 0.0},
         "restarted from step 50; 0 to 9 steps were lost: not every step was reported"),
        ({"lostSteps": 5, "lostStepsAtMost": 5}, "restarted from step 50; 5 steps were lost, 1.25 s of training"),
        ({"restoredStep": None, "lostSteps": None},
         "restarted from the beginning; the number of lost steps is unknown"),
        ({"outcome": "Failed"}, "failed"),
        ({"outcome": "Held"}, "is held: its pods stay for inspection"),
        ({"outcome": "Open"}, ""),
    ],
)  # fmt: skip
def test_the_cost_of_a_restart_is_told_in_one_way(found: dict[str, Any], told: str) -> None:
    values = {key: value for key, value in incident(**found).items() if value is not None}
    assert cost(Incident.model_validate(values)) == told
