"""The GangJob's status: everything that correctness needs to survive a controller, and a summary for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Model, Timestamp


class GangPhase(StrEnum):
    """A summary for people; machines read conditions."""

    NEW = ""
    SUSPENDED = "Suspended"
    PENDING = "Pending"
    GATHERING = "Gathering"
    RUNNING = "Running"
    HELD = "Held"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class IncidentLevel(StrEnum):
    """What was thrown away, from least to most."""

    PROCESS = "Process"
    CONTAINER = "Container"
    POD = "Pod"
    GANG = "Gang"


class Condition(Model):
    """As Kubernetes' metav1.Condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: Timestamp


class RoleStatus(Model):
    """Counts of one role's members."""

    name: str
    desired: int
    ready: int = 0
    succeeded: int = 0


class RestorePoint(Model):
    """The checkpoint that every rank of the attempt loads."""

    step: int
    tier: str
    path: str = ""


class Master(Model):
    """Where rank 0 of a process group listens; fixed for the attempt."""

    process_group: str
    address: str
    port: int


class ProgressStatus(Model):
    """The highest step any rank has reported in this attempt."""

    attempt: int
    step: int
    time: Timestamp


class Restarts(Model):
    """Counts of attempts after the first."""

    counted: int = 0
    uncounted: int = 0
    in_window: int = 0


class Cause(Model):
    """The settled (or so far strongest) evidence of an incident."""

    reason: str
    member: str = ""
    incarnation: int = 0
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    device: str | None = None
    node: str | None = None
    rule: str | None = None
    message: str = ""
    time: Timestamp
    tied: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Members whose ends came at the same moment as this one, as far as can be told."""


class PhaseMilliseconds(Model):
    """How long each phase of the incident took; absent while it isn't over, or when it didn't take place."""

    detect: int | None = None
    stop: int | None = None
    replace: int | None = None
    barrier: int | None = None
    start: int | None = None
    first_step: int | None = None


class Incident(Model):
    """From the first fault to the first training step after it."""

    attempt: int
    """The attempt that this incident led to."""
    time: Timestamp
    cause: Cause
    level: IncidentLevel = IncidentLevel.PROCESS
    charged: bool = False
    settled: bool = False
    settled_time: Timestamp | None = None
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"] = "Open"
    planned: bool = False
    milliseconds: PhaseMilliseconds = Field(default_factory=PhaseMilliseconds)
    restored_step: int | None = None
    lost_steps: int | None = None
    trace_id: str = Field("", alias="traceID")


class LedgerEntry(Model):
    """What the budget and the ladder remember of one settled incident."""

    time: Timestamp
    attempt: int
    member: str = ""
    charged: bool
    restored_step: int | None = None
    """The restore point of the attempt that failed."""
    progressed: bool | None = None
    """Whether a step beyond it was reported; absent = unknown, which never counts as without progress."""


class Replaced(Model):
    """A member that differs from the default: its incarnation, and the nodes it keeps off."""

    member: str
    incarnation: int
    time: Timestamp
    avoid: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    required: bool = False
    """Avoiding is a requirement (evidence against node or device), not a preference."""
    failures: int = 0
    """Replacements in a row that failed before they were ready: the back-off."""


class Awaited(Model):
    """A pod of an earlier incarnation that may still run a worker: nobody starts before it is known to be gone."""

    member: str
    incarnation: int
    pod: str
    node: str = ""
    vanished_time: Timestamp | None = None
    """When it was first missed without having been seen terminated."""


class HeldRank(Model):
    """A rank that a spare holds."""

    place: str
    """The member whose rank it is by default."""
    member: str


class RejectedStep(Model):
    """A Shared step that doesn't exist until what marks it complete changes."""

    tier: str
    step: int
    marker: str = ""


class Status(Model):
    """Written by the controller only."""

    observed_generation: int = 0
    phase: GangPhase = GangPhase.NEW
    phase_time: Timestamp = 0.0
    """When the phase or the attempt last changed."""
    message: str = ""
    """The `because` of the plan that wrote this status."""
    conditions: tuple[Condition, ...] = ()
    attempt: int = 0
    attempt_generation: int = 0
    start_time: Timestamp | None = None
    completion_time: Timestamp | None = None
    ready: str = ""
    roles: tuple[RoleStatus, ...] = ()
    restore_point: RestorePoint | None = None
    masters: tuple[Master, ...] = ()
    progress: ProgressStatus | None = None
    restarts: Restarts = Field(default_factory=Restarts)
    incidents: Annotated[tuple[Incident, ...], Field(max_length=10)] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    base_incarnation: int = 0
    observed_restart_token: str = ""
    roles_hash: str = ""
    rejected_steps: tuple[RejectedStep, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    ranks: tuple[HeldRank, ...] = ()
    barrier_timeouts: int = 0
    """How often the barrier's deadline passed while gathering this attempt."""
    deadline_time: Timestamp | None = None
    """Since when the barrier's next deadline is counted, at the earliest; set when the last one passed."""
    observed_time: Timestamp = 0.0
    """When the summary (progress, ready, the timings of the last incident) was last brought up to date."""
