"""Deadlines, graces and budgets of a recovery."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import YEAR, Constraint, Model, PositiveSeconds, Seconds, kind


class Windowed(Model):
    """At most `maxRestarts` charged restarts within `windowSeconds`; older ones are forgotten."""

    type: Literal["Windowed"] = "Windowed"
    max_restarts: Annotated[int, Field(ge=0, le=200)] = 10
    """How many charged restarts the window may hold. 0 = the first charged fault ends the gang."""
    window_seconds: PositiveSeconds = 3600
    """Length of the sliding window, in seconds. Make it longer than maxRestarts attempts that fail at once would
    take, or a gang that never works restarts for ever."""


class Unlimited(Model):
    """Restarts are counted and never run out."""

    type: Literal["Unlimited"]


Budget = Annotated[
    Annotated[Windowed, Tag("Windowed")] | Annotated[Unlimited, Tag("Unlimited")],
    kind("type", "Windowed"),
]


class Recovery(Model):
    """Deadlines, graces and budgets of a recovery."""

    constraints = (
        Constraint(
            "holdTimeoutSeconds needs onExhausted: Hold, because only a gang that is held can time out",
            lambda recovery: recovery.hold_timeout_seconds is None or recovery.on_exhausted == "Hold",
            "!has(self.holdTimeoutSeconds) || self.onExhausted == 'Hold'",
            ("holdTimeoutSeconds", "onExhausted"),
        ),
    )

    budget: Budget = Field(default_factory=Windowed)
    """How many restarts the gang may have. Disruptions (preemption, drain, node shutdown), rules with action Ignore and
    restarts that somebody asked for are not charged."""
    evidence_window_seconds: Annotated[int, Field(ge=0, le=300)] = 5
    """How long FailJob waits for stronger evidence, such as a lost device that explains the exit code, in seconds.
    Stopping the other workers waits for nothing. Raise it where devices' health is reported late."""
    stop_grace_period_seconds: Seconds = 15
    """Time from SIGTERM to SIGKILL of a worker's whole process tree after a fault, in seconds. The restart waits for
    it, so keep it short; a worker that ends at once costs nothing."""
    planned_stop_grace_period_seconds: Seconds = 120
    """The same where nobody failed (suspend, drain, preemption notice), in seconds: time for a last checkpoint."""
    barrier_timeout_seconds: PositiveSeconds = 600
    """How long the gang waits for all members to be ready, in seconds, counted only while every needed pod is scheduled
    and started. Past it, the members that are missing are replaced; past it again, the whole gang; then it fails."""
    pod_start_timeout_seconds: PositiveSeconds = 1800
    """How long a scheduled pod may take until its supervisor has spoken, in seconds; then that pod alone is replaced.
    Raise it for images or volumes that take longer to arrive."""
    scheduling_timeout_seconds: PositiveSeconds | None = None
    """How long the gang may wait for its place in the cluster, in seconds. Absent (the default) = for ever: that is
    Pending and no fault."""
    replacement_timeout_seconds: PositiveSeconds = 1800
    """How long a replacement pod may take while the others wait and hold their devices, in seconds; then
    onReplacementTimeout says what happens."""
    on_replacement_timeout: Literal["Hold", "Suspend", "Fail"] = "Hold"
    """What happens when a replacement took too long. Hold: everything stays for a look. Suspend: the pods are deleted
    and their devices given back. Fail: the gang fails."""
    lost_pod_grace_seconds: Seconds = 30
    """How long after the end of its grace period the pod of a lost node is taken to be dead, in seconds. Until then no
    other worker starts, because it might still run."""
    isolation_timeout_seconds: Annotated[int, Field(ge=10, le=YEAR)] | None = None
    """After how long without its controller a sidecar stops its worker, in seconds (strict fencing). Absent (the
    default) = never: workers train on while the controller is away. Set it where two workers of different attempts must
    never write to the same files, not even on a partitioned node."""
    orphan_timeout_seconds: Annotated[int, Field(ge=5, le=YEAR)] = 600
    """After how long without a controller a supervisor that runs no worker ends by itself, in seconds."""
    replace_after: Annotated[int, Field(ge=1, le=100)] = 2
    """When the same member is the cause this often within the budget's window, its pod is replaced."""
    avoid_node_seconds: Seconds = 3600
    """How long a replaced pod keeps off the node of the old one, in seconds. It is a requirement if a device or the
    node itself was at fault, else a preference."""
    on_exhausted: Literal["Fail", "Hold"] = "Fail"
    """What happens when the budget is used up. Fail: the gang fails. Hold: its pods stay for a look, with no worker
    running, until restartToken changes or holdTimeoutSeconds have passed."""
    hold_timeout_seconds: PositiveSeconds | None = None
    """How long a gang is held before it fails, in seconds; only with onExhausted Hold. Absent (the default) = for
    ever."""
