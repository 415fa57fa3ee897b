"""Deadlines, grace periods and the restart budget of a recovery."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import YEAR, Constraint, Model, PositiveSeconds, Seconds, kind


class Windowed(Model):
    """At most `maxRestarts` charged restarts within `windowSeconds`."""

    type: Literal["Windowed"] = "Windowed"
    max_restarts: Annotated[int, Field(ge=0, le=200)] = 10
    """Maximum number of charged restarts within the window. If 0, the first charged fault ends the gang."""
    window_seconds: PositiveSeconds = 3600
    """Length of the sliding window in seconds. It must be longer than maxRestarts attempts that fail at once."""


class Unlimited(Model):
    """Restarts are counted but not limited."""

    type: Literal["Unlimited"]


Budget = Annotated[
    Annotated[Windowed, Tag("Windowed")] | Annotated[Unlimited, Tag("Unlimited")],
    kind("type", "Windowed"),
]


class Recovery(Model):
    """Deadlines, grace periods and the restart budget."""

    constraints = (
        Constraint(
            "holdTimeoutSeconds needs onExhausted: Hold, because only a gang that is held can time out",
            lambda recovery: recovery.hold_timeout_seconds is None or recovery.on_exhausted == "Hold",
            "!has(self.holdTimeoutSeconds) || self.onExhausted == 'Hold'",
            ("holdTimeoutSeconds", "onExhausted"),
        ),
    )

    budget: Budget = Field(default_factory=Windowed)
    """How many charged restarts the gang may have. Disruptions, faults that a rule ignores and requested restarts are
    not charged."""
    evidence_window_seconds: Annotated[int, Field(ge=0, le=300)] = 5
    """Seconds that FailJob waits for stronger evidence, such as a lost device, after the other workers are stopped."""
    stop_grace_period_seconds: Seconds = 3
    """Seconds from SIGTERM to SIGKILL of a worker's process tree after a fault."""
    planned_stop_grace_period_seconds: Seconds = 120
    """Seconds from SIGTERM to SIGKILL for stops without a failure (suspend, drain, preemption notice), for a last
    checkpoint."""
    coalesce_seconds: Annotated[int, Field(ge=0, le=600)] = 0
    """Seconds that a gang waits after a disruption before it starts again, so that further drains in this time cost no
    further restart. A restart by hand ends the wait."""
    barrier_timeout_seconds: PositiveSeconds = 600
    """Seconds that the gang waits for all members to be ready, while every required pod is scheduled and started, after
    grace periods and waits by choice. The first timeout replaces the missing members, the second the whole gang; after
    the third, onExhausted applies."""
    pod_start_timeout_seconds: PositiveSeconds = 1800
    """Seconds from the scheduling of a pod to the first message of its supervisor after which the pod is replaced. The
    same applies if its containers have ended and have not started this long after a restart."""
    scheduling_timeout_seconds: PositiveSeconds | None = None
    """Seconds that the gang may wait for its pods to be scheduled, before onExhausted applies. If absent, there is no
    limit."""
    replacement_timeout_seconds: PositiveSeconds = 1800
    """Seconds that a replacement pod may take while the other pods keep their devices, before onReplacementTimeout
    applies."""
    on_replacement_timeout: Literal["Hold", "Suspend", "Fail"] = "Hold"
    """Hold: all pods stay for inspection. Suspend: the pods are deleted. Fail: the gang fails."""
    lost_pod_grace_seconds: Seconds = 30
    """Seconds after the end of its grace period after which the pod of a lost node counts as dead and workers can
    start."""
    isolation_timeout_seconds: Annotated[int, Field(ge=10, le=YEAR)] | None = None
    """Seconds without a connection to the controller after which a sidecar stops its worker (strict fencing). If
    absent, workers train on without a controller."""
    orphan_timeout_seconds: Annotated[int, Field(ge=5, le=YEAR)] = 600
    """Seconds without a connection to the controller after which a supervisor that runs no worker exits."""
    replace_after: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of faults of a member within the budget's window after which its pod is replaced."""
    avoid_node_seconds: Seconds = 3600
    """Seconds that a replacement pod avoids the node of the old pod: strictly if the node was at fault, otherwise by
    preference."""
    pod_disruption_budget: Literal["OnePod", "None"] = "OnePod"
    """OnePod: gangctl creates a PodDisruptionBudget, so a drain evicts one pod at a time. None: gangctl creates none;
    delete an existing one yourself."""
    on_exhausted: Literal["Fail", "Hold"] = "Fail"
    """What happens when the budget is exhausted. Fail: the gang fails. Hold: the pods stay without workers until
    restartToken changes or holdTimeoutSeconds have passed."""
    hold_timeout_seconds: PositiveSeconds | None = None
    """Seconds that a gang is held before it fails. Needs onExhausted Hold. If absent, there is no limit."""
