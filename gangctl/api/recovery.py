"""Deadlines, grace periods and the restart budget of a recovery."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import YEAR, Constraint, Model, PositiveSeconds, Seconds, kind


class Windowed(Model):
    """At most `maxRestarts` charged restarts within `windowSeconds`; older ones no longer count."""

    type: Literal["Windowed"] = "Windowed"
    max_restarts: Annotated[int, Field(ge=0, le=200)] = 10
    """Maximum number of charged restarts within the window. If 0, the first charged fault ends the gang."""
    window_seconds: PositiveSeconds = 3600
    """Length of the sliding window in seconds. It must be longer than the time that maxRestarts attempts take if each
    fails at once; otherwise a gang that never works restarts forever."""


class Unlimited(Model):
    """Restarts are counted but not limited."""

    type: Literal["Unlimited"]


Budget = Annotated[
    Annotated[Windowed, Tag("Windowed")] | Annotated[Unlimited, Tag("Unlimited")],
    kind("type", "Windowed"),
]


class Recovery(Model):
    """Deadlines, grace periods and the restart budget of a recovery."""

    constraints = (
        Constraint(
            "holdTimeoutSeconds needs onExhausted: Hold, because only a gang that is held can time out",
            lambda recovery: recovery.hold_timeout_seconds is None or recovery.on_exhausted == "Hold",
            "!has(self.holdTimeoutSeconds) || self.onExhausted == 'Hold'",
            ("holdTimeoutSeconds", "onExhausted"),
        ),
    )

    budget: Budget = Field(default_factory=Windowed)
    """How many restarts the gang may have. Disruptions (preemption, drain, node shutdown), faults that a rule ignores
    and requested restarts are not charged."""
    evidence_window_seconds: Annotated[int, Field(ge=0, le=300)] = 5
    """Seconds that FailJob waits for stronger evidence, such as a lost device that explains the exit code. The other
    workers are stopped without waiting. Raise the value if device health is reported late."""
    stop_grace_period_seconds: Seconds = 3
    """Seconds from SIGTERM to SIGKILL of a worker's process tree after a fault. All workers go back to a checkpoint
    then, and the restart waits for the last one, so keep it short; a worker that ends at once costs no time."""
    planned_stop_grace_period_seconds: Seconds = 120
    """Seconds from SIGTERM to SIGKILL for stops without a failure (suspend, drain, preemption notice): time for a last
    checkpoint."""
    coalesce_seconds: Annotated[int, Field(ge=0, le=600)] = 0
    """Seconds that a gang waits after a disruption (a drain, an eviction, a preemption) before it starts again, so that
    nodes that are drained within this time cost one restart. If 0, it starts again as soon as it can. A restart by hand
    ends the wait."""
    barrier_timeout_seconds: PositiveSeconds = 600
    """Seconds that the gang waits for all members to be ready, counted only while every required pod is scheduled and
    started, and not before the stop grace period, the evidence window and a wait by choice (coalesceSeconds) are over.
    After the first timeout the missing members are replaced, after the second the whole gang, and after the third the
    gang fails."""
    pod_start_timeout_seconds: PositiveSeconds = 1800
    """Seconds from the scheduling of a pod to the first message of its supervisor, after which only this pod is
    replaced. So is a pod whose containers have ended and have not started again within this time of a restart. Raise
    the value for large images or slow volumes."""
    scheduling_timeout_seconds: PositiveSeconds | None = None
    """Seconds that the gang may wait for its pods to be scheduled. If absent, it waits without limit in phase Pending,
    which is not a fault."""
    replacement_timeout_seconds: PositiveSeconds = 1800
    """Seconds that a replacement pod may take while the other pods wait and keep their devices. Afterwards
    onReplacementTimeout applies."""
    on_replacement_timeout: Literal["Hold", "Suspend", "Fail"] = "Hold"
    """What to do when a replacement takes too long. Hold: all pods stay for inspection. Suspend: the pods are deleted
    and their devices released. Fail: the gang fails."""
    lost_pod_grace_seconds: Seconds = 30
    """Seconds after the end of its grace period after which the pod of a lost node counts as dead. Until then no worker
    starts, because the old one might still run."""
    isolation_timeout_seconds: Annotated[int, Field(ge=10, le=YEAR)] | None = None
    """Seconds without a connection to the controller after which a sidecar stops its worker (strict fencing). If
    absent, workers continue to train while the controller is away. Set it if two workers of different attempts must
    never write to the same files, even if a node is partitioned."""
    orphan_timeout_seconds: Annotated[int, Field(ge=5, le=YEAR)] = 600
    """Seconds without a connection to the controller after which a supervisor that runs no worker exits."""
    replace_after: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of faults of the same member, within the window of the budget, after which its pod is replaced."""
    avoid_node_seconds: Seconds = 3600
    """Seconds that a replacement pod avoids the node of the old pod. This is a requirement if the node was at fault,
    and a preference otherwise: the node of a device that failed may have healthy ones."""
    pod_disruption_budget: Literal["OnePod", "None"] = "OnePod"
    """PodDisruptionBudget of the gang. OnePod: a drain evicts one pod, and the next when its replacement is ready.
    None: gangctl makes none, because the cluster has its own (a pod with two can't be evicted) or a drain must not
    wait; delete one that is there already."""
    on_exhausted: Literal["Fail", "Hold"] = "Fail"
    """What to do when the budget is exhausted. Fail: the gang fails. Hold: the pods stay for inspection, without
    workers, until restartToken changes or holdTimeoutSeconds have passed."""
    hold_timeout_seconds: PositiveSeconds | None = None
    """Seconds that a gang is held before it fails. Only with onExhausted Hold. If absent, it is held without limit."""
