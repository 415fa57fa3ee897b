"""What an incident came to and what it cost, in words."""

from __future__ import annotations

from typing import Final

from gangctl.api.incident import Incident
from gangctl.explain.durations import took
from gangctl.explain.lost_steps import lost_steps

_OUTCOMES: Final = {
    "Failed": "failed",
    "Held": "is held: its pods stay for inspection",
    "Succeeded": "succeeded",
    "Suspended": "was suspended",
}
_LEAST_SECONDS: Final = 0.0005
"""What rounds to a millisecond."""


def cost(incident: Incident) -> str:
    """The end of a sentence about the gang, as ``restarted from step 50; 5 steps were lost, 1.25 s of training``.

    Empty while the incident is not over.
    """
    if incident.outcome != "Restarted":
        return _OUTCOMES.get(incident.outcome, "")
    step = incident.restored_step
    point = "restarted from the beginning" if step is None else f"restarted from step {step}"
    lost, most, seconds = incident.lost_steps, incident.lost_steps_at_most, incident.lost_seconds
    if lost is None:
        return f"{point}; the number of lost steps is unknown"
    if most is not None and most != lost:
        return f"{point}; {lost_steps(lost, most)} were lost: not every step was reported"
    if lost == 0:
        return f"{point}; no step was lost"
    spent = f", {took(seconds)} of training" if seconds is not None and seconds >= _LEAST_SECONDS else ""
    return f"{point}; {lost_steps(lost, None)} {'was' if lost == 1 else 'were'} lost{spent}"
