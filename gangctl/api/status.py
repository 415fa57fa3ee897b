"""The GangJob's status: everything that correctness needs to survive a controller, and a summary for people.

Texts for people and names that others chose are cut to their bounds (see ``model.py``): a status can always be written.
Lists are not cut here, since a cut list would be another decision; whoever fills one keeps to its bound.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Label, Model, Name, Sentence, Text, Timestamp


class GangPhase(StrEnum):
    """A summary for people; machines read conditions."""

    NEW = ""
    """Not seen by a controller yet."""
    SUSPENDED = "Suspended"
    """No pods, because somebody wants none."""
    PENDING = "Pending"
    """Pods wait for their place in the cluster."""
    GATHERING = "Gathering"
    """Members stop or start: the attempt begins when every needed one is ready."""
    RUNNING = "Running"
    """Every needed member was told to run the attempt."""
    HELD = "Held"
    """Nothing runs, the pods stay for a look."""
    SUCCEEDED = "Succeeded"
    """Ended as the success policy says."""
    FAILED = "Failed"
    """Ended otherwise."""


class IncidentLevel(StrEnum):
    """What was thrown away, from least to most."""

    PROCESS = "Process"
    CONTAINER = "Container"
    POD = "Pod"
    GANG = "Gang"


class Condition(Model):
    """As Kubernetes' metav1.Condition."""

    type: Label
    """Type of the condition, such as Ready, Finished or Failed."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Label
    """Why, in one CamelCase word."""
    message: Sentence = ""
    """Why, in a sentence: what was seen, what happens next, what can be done."""
    observed_generation: int = 0
    """The generation of the GangJob that it was decided for."""
    last_transition_time: Timestamp
    """When its status last changed."""


class RoleStatus(Model):
    """Counts of one role's members."""

    name: Label
    """Name of the role."""
    desired: int
    """How many members it needs."""
    ready: int = 0
    """How many of them are ready for the attempt or run it."""
    succeeded: int = 0
    """How many of them have ended with 0."""


class RestorePoint(Model):
    """The checkpoint that every rank of the attempt loads."""

    step: int
    """Its step."""
    tier: Label
    """The tier that it is in."""
    path: Text = ""
    """Its folder in a shared tier; empty for a Member tier, where each member knows its own."""


class Master(Model):
    """Where rank 0 of a process group listens; fixed for the attempt."""

    process_group: Label
    """Name of the process group."""
    address: Name
    """Address of the pod that holds rank 0."""
    port: int
    """A port that was free there when the attempt began."""


class ProgressStatus(Model):
    """The highest step any rank has reported in this attempt."""

    attempt: int
    """The attempt that it was reported in."""
    step: int
    """The step."""
    time: Timestamp
    """When it was reported. Brought up to date at most every 30 seconds."""


class Spent(Model):
    """What the time since the gang was first seen went to, in seconds.

    Of a gang that never reports a step nothing is known to be training: it has no goodput.
    """

    training: float = 0.0
    """From the first training step of an attempt to its end."""
    lost_progress: float = 0.0
    """The part of training that had to be done again."""
    start_up: float = 0.0
    """Gathering, starting and getting to the first step where no incident had led to the attempt."""
    recovery: float = 0.0
    """The same after an incident, from its fault on."""
    suspended: float = 0.0
    """Suspended, its pods being ended included."""
    pending: float = 0.0
    """Waiting for a place in the cluster, and for all pods to start."""
    held: float = 0.0
    """Held for a look."""


class Restarts(Model):
    """Counts of attempts after the first."""

    counted: int = 0
    """Restarts that were charged to the budget."""
    uncounted: int = 0
    """Restarts that were not: disruptions, rules with action Ignore, restarts that somebody asked for."""
    in_window: int = 0
    """Charged restarts that are still in the budget's window."""


class Cause(Model):
    """The settled (or so far strongest) evidence of an incident."""

    reason: Label
    """What happened, in one CamelCase word: ExitCode, Signal, OOMKilled, DeviceLost, NodeLost, Hang and so on."""
    member: Label = ""
    """The member at fault; empty if it is nobody's."""
    incarnation: int = 0
    """The incarnation of the member's pod."""
    rank: int | None = None
    """The rank that the worker had."""
    exit_code: int | None = None
    """The exit code of its process, if that is the reason."""
    signal: Label | None = None
    """The signal that ended its process, if that is the reason."""
    device: Name | None = None
    """The device at fault, if one is."""
    node: Name | None = None
    """The node of the pod."""
    rule: Label | None = None
    """The rule of the pod failure policy that matched: its name, or its place as rules[3]."""
    message: Sentence = ""
    """What was seen, in a sentence."""
    time: Timestamp
    """When it happened."""
    tied: Annotated[tuple[Label, ...], Field(max_length=8)] = ()
    """Members whose ends came at the same moment as this one, as far as can be told."""


class PhaseMilliseconds(Model):
    """How long each phase of the incident took; absent while it isn't over, or when it didn't take place."""

    detect: int | None = None
    """From the fault to the first write of the status, in milliseconds."""
    stop: int | None = None
    """Until the last worker had stopped, in milliseconds."""
    replace: int | None = None
    """Until the last replaced pod was ready, in milliseconds."""
    barrier: int | None = None
    """Until the attempt was decided and written, in milliseconds."""
    start: int | None = None
    """Until the last worker was started, in milliseconds."""
    first_step: int | None = None
    """Until every member had made its first training step, in milliseconds: the workers' own start-up. Members that
    report none within 10 seconds of the first are not waited for."""


class IncidentMember(Model):
    """What one member that matters did in one phase of an incident."""

    member: Label
    """Name of the member."""
    incarnation: int = 0
    """Incarnation of its pod."""
    node: Name = ""
    """Node of the pod."""
    device: Name | None = None
    """The device at fault, if one of its is."""
    part: Literal["Cause", "Replaced", "Slowest"]
    """Why it is listed: it is at fault, its pod was replaced, or the others waited for it."""
    phase: Literal["Stop", "Replace", "Start", "CheckpointLoad", "FirstStep"]
    """What is measured: until its last process was gone, until its new pod was ready, until its worker was started,
    the load of the restore point, or from its start (or, where the framework says how long the step took, from the
    step's) to its first training step."""
    begin_milliseconds: int = 0
    """When that began, in milliseconds after the incident's beginning, on the controller's clock."""
    milliseconds: int = 0
    """How long it took, in milliseconds."""


class Incident(Model):
    """From the first fault to the first training step after it."""

    attempt: int
    """The attempt that this incident led to."""
    time: Timestamp
    """When it began."""
    cause: Cause
    """What it is put down to."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """How much was thrown away."""
    charged: bool = False
    """Whether it was charged to the budget."""
    settled: bool = False
    """Whether cause, level and charge are decided; stronger evidence may still correct them for a few seconds."""
    settled_time: Timestamp | None = None
    """When they were decided."""
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"] = "Open"
    """What it led to; Open = it isn't over."""
    planned: bool = False
    """Nobody failed: workers had the longer grace for a last checkpoint."""
    milliseconds: PhaseMilliseconds = Field(default_factory=PhaseMilliseconds)
    """How long each phase took."""
    restored_step: int | None = None
    """The step that the next attempt was restored from; absent = from the beginning."""
    lost_steps: int | None = None
    """How many steps have to be done again; absent where progress isn't known."""
    lost_seconds: float | None = None
    """How long the failed attempt had trained for those steps, in seconds; absent where that isn't known."""
    members: Annotated[tuple[IncidentMember, ...], Field(max_length=8)] = ()
    """The members that matter: the one at fault, the replaced, the slowest of each phase."""
    trace_id: Label = Field("", alias="traceID")
    """The trace of the incident."""
    linked_trace_id: Label = Field("", alias="linkedTraceID")
    """The trace of the incident that this one followed at once; empty if there is none."""


class LedgerEntry(Model):
    """What the budget and the ladder remember of one settled incident."""

    time: Timestamp
    """When it began."""
    attempt: int
    """The attempt that it led to."""
    member: Label = ""
    """The member at fault."""
    incarnation: int = 0
    """The incarnation of its pod at the time."""
    charged: bool
    """Whether it was charged to the budget."""
    restored_step: int | None = None
    """The restore point of the attempt that failed."""
    progressed: bool | None = None
    """Whether a step beyond it was reported; absent = unknown, which never counts as without progress."""


class Replaced(Model):
    """A member that differs from the default: its incarnation, and the nodes it keeps off."""

    member: Label
    """Name of the member."""
    incarnation: int
    """Incarnation of its current pod."""
    attempt: int = 0
    """The first attempt that a worker in its current pod can belong to."""
    time: Timestamp
    """When it was replaced last."""
    since: Timestamp = 0.0
    """When the first of the replacements in a row was made."""
    avoid: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    """Nodes that its pod keeps off."""
    required: bool = False
    """Avoiding is a requirement (evidence against node or device), not a preference."""
    failures: int = 0
    """Replacements in a row that failed before they were ready: the back-off."""


class Awaited(Model):
    """A pod of an earlier incarnation that may still run a worker: nobody starts before it is known to be gone."""

    member: Label
    """Name of the member whose pod it was."""
    incarnation: int
    """Incarnation of the pod."""
    pod: Label
    """UID of the pod."""
    node: Name = ""
    """Node of the pod."""
    vanished_time: Timestamp | None = None
    """When it was first missed without having been seen terminated."""


class AwaitedAll(Model):
    """Too many pods to be listed: nobody starts before the last of them has been gone for the grace of a lost pod."""

    incarnation: int
    """All pods of this incarnation or an earlier one that aren't their members' current ones."""
    vanished_time: Timestamp | None = None
    """Since when none of them is seen to run a worker."""


class HeldRank(Model):
    """A rank that a spare holds."""

    place: Label
    """The member whose rank it is by default."""
    member: Label
    """The spare that holds it."""


class RejectedStep(Model):
    """A Shared step that doesn't exist until what marks it complete changes."""

    tier: Label
    """The tier that it is in."""
    step: int
    """The step."""
    marker: Text = ""
    """Identity of what marked it complete when it was rejected."""


class RecordedStep(Model):
    """A step of a Shared tier that every rank has registered: a lost pod takes its registrations with it, not this."""

    tier: Label
    """The tier that it is in."""
    step: int
    """The step."""
    path: Text = ""
    """Where it is, if that was said."""
    marker: Text = ""
    """Identity of the registration."""


class Status(Model):
    """Written by the controller only."""

    observed_generation: int = 0
    """The generation of the spec that the controller has last acted on."""
    phase: GangPhase = GangPhase.NEW
    """A summary for people; machines read conditions."""
    phase_time: Timestamp = 0.0
    """When the phase or the attempt last changed."""
    message: Sentence = ""
    """Why the status is what it is: the reason for the last decision, in a sentence."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """Accepted, Ready, Progressing, Suspended, Restarting, Degraded, Finished, Succeeded, Failed."""
    attempt: int = 0
    """The number of the current try of the whole gang. It never goes down."""
    started_attempt: int = 0
    """The newest attempt that was started: what came after it was held or suspended before. 0 = none was."""
    attempt_generation: int = 0
    """The generation of the spec whose roles and templates this attempt runs."""
    start_time: Timestamp | None = None
    """When the gang was first active, or active again after it was suspended."""
    completion_time: Timestamp | None = None
    """When it ended."""
    ready: Label = ""
    """Members that are ready or run, of those that are needed, as in 7/8."""
    roles: Annotated[tuple[RoleStatus, ...], Field(max_length=8)] = ()
    """Counts for each role."""
    restore_point: RestorePoint | None = None
    """The checkpoint that every rank of the attempt loads; absent = from the beginning."""
    masters: Annotated[tuple[Master, ...], Field(max_length=8)] = ()
    """Where rank 0 of each process group listens in this attempt."""
    hosts: Annotated[tuple[Name, ...], Field(max_length=512)] = ()
    """Addresses of this attempt's members, in the order of roles and indexes: what host files are made of. Empty in
    gangs that need more than 512 members."""
    progress: ProgressStatus | None = None
    """The highest step any rank has reported in this attempt."""
    first_step: ProgressStatus | None = None
    """The first training step that any rank has reported in the newest attempt that made one."""
    spent: Spent = Field(default_factory=Spent)
    """What the time until accountedTime went to."""
    accounted_time: Timestamp = 0.0
    """Until when time is accounted for in spent; the epoch if it isn't yet."""
    restarts: Restarts = Field(default_factory=Restarts)
    """Counts of attempts after the first."""
    incidents: Annotated[tuple[Incident, ...], Field(max_length=10)] = ()
    """The last 10 incidents, newest first."""
    ledger: Annotated[tuple[LedgerEntry, ...], Field(max_length=1000)] = ()
    """What the budget and the ladder remember of settled incidents."""
    base_incarnation: int = 0
    """The incarnation of every pod that isn't in replaced; raised when the whole gang is recreated."""
    given_back: bool = False
    """Suspended because a replacement took too long: it goes on when restartToken changes, or suspend is set and taken
    back."""
    observed_restart_token: Annotated[str, Field(max_length=253)] = ""
    """The restart token that was last acted on."""
    roles_hash: Label = ""
    """Hash of the roles that the pods were made of."""
    rejected_steps: Annotated[tuple[RejectedStep, ...], Field(max_length=1000)] = ()
    """Checkpoint steps that can't be used."""
    recorded_steps: Annotated[tuple[RecordedStep, ...], Field(max_length=16)] = ()
    """Newest steps of Shared tiers with source API that were registered by every rank."""
    replaced: Annotated[tuple[Replaced, ...], Field(max_length=1000)] = ()
    """Members whose incarnation differs from the default."""
    awaited: Annotated[tuple[Awaited, ...], Field(max_length=1000)] = ()
    """Pods of earlier incarnations that may still run a worker."""
    awaited_all: AwaitedAll | None = None
    """The same for more pods than can be listed."""
    ranks: Annotated[tuple[HeldRank, ...], Field(max_length=10_000)] = ()
    """Ranks that spares hold."""
    barrier_timeouts: int = 0
    """How often the barrier's deadline passed while gathering this attempt."""
    deadline_time: Timestamp | None = None
    """Since when the barrier's next deadline is counted, at the earliest; set when the last one passed."""
    observed_time: Timestamp = 0.0
    """When the summary (progress, ready, the timings of the last incident) was last brought up to date."""
