"""Policies that are drawn: every field of them, from the least that the API takes to the most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from pydantic import ValidationError

from gangctl.api.gangjob import GangJob
from gangctl.api.model import Model
from gangctl.api.recovery import CheckpointSpec, ProgressSpec, Recovery
from tests.simulation.setups import Setup

Values = Mapping[str, tuple[Any, ...]]
BUDGETS: Final = (
    {"type": "Unlimited"},
    *({"type": "Windowed", "maxRestarts": most, "windowSeconds": 3600} for most in (0, 1, 3)),
    {"type": "Windowed", "maxRestarts": 12, "windowSeconds": 60},
)
RECOVERY: Final[Values] = {
    "budget": BUDGETS,
    "evidenceWindowSeconds": (0, 1, 60, 300),
    "stopGracePeriodSeconds": (0, 1, 20, 120),
    "plannedStopGracePeriodSeconds": (0, 1, 20, 300),
    "coalesceSeconds": (0, 1, 60, 600),
    "barrierTimeoutSeconds": (1, 10, 60, 600),
    "podStartTimeoutSeconds": (1, 60, 1800),
    "schedulingTimeoutSeconds": (None, 1, 1800),
    "replacementTimeoutSeconds": (1, 60, 1800),
    "onReplacementTimeout": ("Hold", "Suspend", "Fail"),
    "lostPodGraceSeconds": (0, 1, 30, 300),
    "isolationTimeoutSeconds": (None, 10, 120, 600),
    "orphanTimeoutSeconds": (5, 60, 3600),
    "replaceAfter": (1, 2, 100),
    "avoidNodeSeconds": (0, 60, 3600),
    "onExhausted": ("Fail", "Hold"),
    "holdTimeoutSeconds": (None, 1, 600),
}
PROGRESS: Final[Values] = {
    "timeoutSeconds": (None, 60, 300, 3600),
    "adaptive": (None, {"factor": 2}, {"factor": 1000}),
    "startupTimeoutSeconds": (None, 60, 300, 1800),
    "onHang": ("Observe", "Restart"),
}
CHECKPOINT: Final[Values] = {"fallbackAfter": (1, 2, 100)}
SHARE: Final = 0.3
"""So many fields are drawn."""
AWAITED: Final = (
    "barrierTimeoutSeconds",
    "stopGracePeriodSeconds",
    "plannedStopGracePeriodSeconds",
    "lostPodGraceSeconds",
    "isolationTimeoutSeconds",
)
"""A gang looks again every two seconds while it waits for these: a year of it takes too long to simulate."""
DAY: Final = 86_400
"""Longer than all other waits. With pings each ten seconds it takes seconds to simulate, a year an hour."""
RARE_RECOVERY: Final[Values] = {
    **dict.fromkeys(
        (
            "podStartTimeoutSeconds",
            "schedulingTimeoutSeconds",
            "replacementTimeoutSeconds",
            "orphanTimeoutSeconds",
            "avoidNodeSeconds",
            "holdTimeoutSeconds",
        ),
        (DAY,),
    ),
    **dict.fromkeys(AWAITED, (3600,)),
    "shrinkAfterSeconds": (0, 1, DAY),
    "growAfterSeconds": (1, DAY),
}
RARE_PROGRESS: Final[Values] = {
    "timeoutSeconds": (DAY,),
    "startupTimeoutSeconds": (DAY,),
    "checkpointTimeoutSeconds": (1, 60, DAY),
    "evaluationTimeoutSeconds": (1, 60, DAY),
}
RARE_CHECKPOINT: Final[Values] = {"restore": ({"trust": "Any"}, {"trust": "Verified"})}
RARE: Final = 0.05
"""So many of these are drawn on top."""
FIXED: Final = {
    "recovery": {"checks", "podDisruptionBudget"},
    "progress": {"source"},
    "checkpoint": {"tiers"},
}
"""What the setups have, and what doesn't concern decisions: the budget for voluntary disruptions is an object."""


def not_drawn() -> dict[str, set[str]]:
    """The fields of each policy for which no value is ever drawn."""
    drawn = {
        "recovery": RECOVERY.keys() | RARE_RECOVERY.keys(),
        "progress": PROGRESS.keys() | RARE_PROGRESS.keys(),
        "checkpoint": CHECKPOINT.keys() | RARE_CHECKPOINT.keys(),
    }
    kinds: dict[str, type[Model]] = {"recovery": Recovery, "progress": ProgressSpec, "checkpoint": CheckpointSpec}
    return {name: {str(one.alias) for one in kind.model_fields.values()} - drawn[name] for name, kind in kinds.items()}


def redrawn(setup: Setup, seed: int) -> Setup:
    """The same gang with the policies of this seed."""
    random = Random(seed)
    while True:
        job = setup.job.model_dump(mode="json", by_alias=True, exclude_none=True)
        spec = job["spec"]
        spec["recovery"] = _drawn(random, spec.get("recovery", {}), RECOVERY)
        spec["progress"] = _drawn(random, spec.get("progress", {}), PROGRESS)
        if "checkpoint" in spec:
            spec["checkpoint"] = _drawn(random, spec["checkpoint"], CHECKPOINT)
        if random.random() < SHARE:
            first = {"type": "Roles", "roles": [spec["roles"][0]["name"]]}
            spec["successPolicy"] = random.choice(({"type": "AllRoles"}, {"type": "Never"}, first))
        if len(spec["roles"]) > 1 and random.random() < SHARE:
            spec["roles"][-1]["dependsOn"] = [{"name": spec["roles"][0]["name"]}]
        spec["recovery"] = _drawn(random, spec["recovery"], RARE_RECOVERY, RARE)
        spec["progress"] = _drawn(random, spec["progress"], RARE_PROGRESS, RARE)
        if "checkpoint" in spec:
            spec["checkpoint"] = _drawn(random, spec["checkpoint"], RARE_CHECKPOINT, RARE)
        try:
            return replace(setup, job=GangJob.model_validate(job))
        except ValidationError:
            continue  # Some fields need others.


def _drawn(random: Random, before: Mapping[str, Any], values: Values, share: float = SHARE) -> dict[str, Any]:
    new = {name: random.choice(some) for name, some in values.items() if random.random() < share}
    return {name: value for name, value in {**before, **new}.items() if value is not None}
