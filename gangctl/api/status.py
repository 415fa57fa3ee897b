"""The status of a GangJob: all state that must survive a restart of the controller, and a summary for people.

Messages, and names from outside, are cut to their limits (see ``model.py``), so that a status can always be written.
Lists are not cut here, because a shorter list would change decisions; the code that fills a list keeps its limit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Label, Model, Name, Sentence, Text, Timestamp
from gangctl.api.policy import Action


class GangPhase(StrEnum):
    """Phase of a gang: a summary for people. Programs read conditions."""

    NEW = ""
    """No controller has seen the gang yet."""
    SUSPENDED = "Suspended"
    """The gang has no pods, because it is suspended or a replacement took too long."""
    PENDING = "Pending"
    """Pods wait to be scheduled."""
    GATHERING = "Gathering"
    """Members stop or start. The attempt starts when every required member is ready."""
    RUNNING = "Running"
    """Every required member received the order to run the attempt."""
    HELD = "Held"
    """No worker runs, and the pods stay for inspection."""
    SUCCEEDED = "Succeeded"
    """The gang has ended, and the success policy is satisfied."""
    FAILED = "Failed"
    """The gang has ended without success."""


class IncidentLevel(StrEnum):
    """What a restart replaces, from least to most."""

    PROCESS = "Process"
    CONTAINER = "Container"
    POD = "Pod"
    GANG = "Gang"


class Condition(Model):
    """A condition, as in Kubernetes' metav1.Condition."""

    type: Label
    """Type of the condition, such as Ready, Finished or Failed."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition."""
    reason: Label
    """Reason of the last transition, in one CamelCase word."""
    message: Sentence = ""
    """Message for people: what was seen, what happens next and what to do."""
    observed_generation: int = 0
    """Generation of the GangJob that the condition was set for."""
    last_transition_time: Timestamp
    """Time of the last change of status."""


class RoleStatus(Model):
    """Member counts of one role."""

    name: Label
    """Name of the role."""
    desired: int
    """Number of members that the role requires."""
    ready: int = 0
    """Number of members that are ready for the attempt or run it."""
    succeeded: int = 0
    """Number of members that exited with 0."""


class RestorePoint(Model):
    """The checkpoint that every rank of the attempt loads."""

    step: int
    """Step of the checkpoint."""
    tier: Label
    """The tier that it is in."""
    path: Text = ""
    """Path of the checkpoint in a Shared tier. Empty for a Member tier, where each member knows its own path."""


class Master(Model):
    """Address of rank 0 of a process group; fixed for the attempt."""

    process_group: Label
    """Name of the process group."""
    address: Name
    """Address of the pod that has rank 0."""
    port: int
    """Port that was free on this pod when the attempt started."""


class ProgressStatus(Model):
    """A step that a rank has reported."""

    attempt: int
    """Attempt in which the step was reported."""
    step: int
    """Number of the step."""
    time: Timestamp
    """Time of the report. Updated at most every 30 seconds."""


class Spent(Model):
    """What the time since the gang was first seen was spent on, in seconds.

    A gang that never reports a step has no known training time, and therefore no goodput.
    """

    training: float = 0.0
    """From the first training step of an attempt to the end of the attempt."""
    lost_progress: float = 0.0
    """The part of training that had to be repeated."""
    start_up: float = 0.0
    """Gathering, starting and reaching the first step, in attempts that did not follow an incident."""
    recovery: float = 0.0
    """The same after an incident, counted from its fault."""
    suspended: float = 0.0
    """Suspended, including the termination of the pods."""
    pending: float = 0.0
    """Waiting for all pods to be scheduled and started."""
    held: float = 0.0
    """Held for inspection."""


class Restarts(Model):
    """Counts of the attempts after the first."""

    counted: int = 0
    """Restarts that were charged to the budget."""
    uncounted: int = 0
    """Restarts that were not charged: disruptions, rules with action Ignore, requested restarts."""
    in_window: int = 0
    """Charged restarts within the window of the budget."""


class Cause(Model):
    """Cause of an incident: the strongest evidence found."""

    reason: Label
    """Reason in one CamelCase word, such as ExitCode, Signal, OOMKilled, DeviceLost, NodeLost or Hang."""
    member: Label = ""
    """Member at fault; empty if no member is."""
    incarnation: int = 0
    """Incarnation of the member's pod."""
    rank: int | None = None
    """Rank of the worker process."""
    exit_code: int | None = None
    """Exit code of the process, if that is the reason."""
    signal: Label | None = None
    """Signal that ended the process, if that is the reason."""
    device: Name | None = None
    """Device at fault, if any."""
    node: Name | None = None
    """The node of the pod."""
    rule: Label | None = None
    """Rule of the pod failure policy that matched: its name, or its index such as rules[3]."""
    action: Action | None = None
    """What that rule, or the absence of one, asks for."""
    why: Sentence = ""
    """Why the rule matched, or why none did, in a sentence."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """The least that has to be thrown away, as the fault itself or the rule asks for."""
    message: Sentence = ""
    """What was seen, in one sentence."""
    time: Timestamp
    """When it happened."""
    tied: Annotated[tuple[Label, ...], Field(max_length=8)] = ()
    """Members that ended at the same moment, as far as can be determined."""


class PhaseMilliseconds(Model):
    """Duration of each phase of the incident. Absent while the phase is not over, or if it did not take place."""

    detect: int | None = None
    """Milliseconds from the fault to the first write of the status."""
    stop: int | None = None
    """Milliseconds until the last worker had stopped."""
    replace: int | None = None
    """Milliseconds until the last replacement pod was ready."""
    barrier: int | None = None
    """Milliseconds until the attempt was decided and written to the status."""
    start: int | None = None
    """Milliseconds until the last worker had started."""
    first_step: int | None = None
    """Milliseconds until every member had completed its first training step: the start-up of the workers. Members that
    report no step within 10 seconds of the first one are not counted."""


class IncidentMember(Model):
    """One phase of an incident, as one relevant member took part in it."""

    member: Label
    """Name of the member."""
    incarnation: int = 0
    """Incarnation of the member's pod."""
    node: Name = ""
    """Node of the pod."""
    device: Name | None = None
    """Device of the member that is at fault, if any."""
    part: Literal["Cause", "Replaced", "Slowest"]
    """Why the member is listed: it is at fault, its pod was replaced, or the others waited for it."""
    phase: Literal["Stop", "Replace", "Start", "CheckpointLoad", "FirstStep"]
    """What is measured. Stop: until its last process was gone. Replace: until its new pod was ready. Start: until its
    worker had started. CheckpointLoad: loading the restore point. FirstStep: from the start of the worker, or of the
    step if the framework reports its duration, to the end of the first training step."""
    begin_milliseconds: int = 0
    """Start of the phase in milliseconds after the start of the incident, on the controller's clock."""
    milliseconds: int = 0
    """Duration in milliseconds."""


class Incident(Model):
    """An incident: from the first fault to the first training step after it."""

    attempt: int
    """Attempt that the incident led to."""
    time: Timestamp
    """Start of the incident."""
    cause: Cause
    """Cause of the incident."""
    level: IncidentLevel = IncidentLevel.PROCESS
    """What the restart replaced."""
    charged: bool = False
    """Whether the incident was charged to the budget."""
    settled: bool = False
    """Whether cause, level and charge are decided. Stronger evidence may still correct them for a few seconds."""
    settled_time: Timestamp | None = None
    """Time of that decision."""
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"] = "Open"
    """What the incident led to. Open: it is not over."""
    planned: bool = False
    """Whether the stop was planned, without a failure: workers had the longer grace period for a last checkpoint."""
    milliseconds: PhaseMilliseconds = Field(default_factory=PhaseMilliseconds)
    """Duration of each phase."""
    restored_step: int | None = None
    """Step that the next attempt restored; absent if it started from the beginning."""
    lost_steps: int | None = None
    """Number of steps that must be repeated; absent if progress is unknown."""
    lost_seconds: float | None = None
    """Seconds that the failed attempt had trained for those steps; absent if unknown."""
    members: Annotated[tuple[IncidentMember, ...], Field(max_length=8)] = ()
    """Members of interest: the one at fault, the replaced ones, and the slowest of each phase."""
    trace_id: Label = Field("", alias="traceID")
    """ID of the trace of the incident."""
    linked_trace_id: Label = Field("", alias="linkedTraceID")
    """ID of the trace of the previous incident, if this one followed at once; empty otherwise."""


class LedgerEntry(Model):
    """One settled incident, as the budget and the ladder remember it."""

    time: Timestamp
    """Start of the incident."""
    attempt: int
    """Attempt that the incident led to."""
    member: Label = ""
    """Member at fault."""
    incarnation: int = 0
    """Incarnation of its pod at that time."""
    charged: bool
    """Whether the incident was charged to the budget."""
    restored_step: int | None = None
    """Restore point of the attempt that failed."""
    progressed: bool | None = None
    """Whether a step beyond the restore point was reported. Absent if unknown, which never counts as no progress."""


class Replaced(Model):
    """A member whose incarnation or nodes to avoid differ from the default."""

    member: Label
    """Name of the member."""
    incarnation: int
    """Incarnation of its current pod."""
    attempt: int = 0
    """First attempt that a worker in the current pod can belong to."""
    time: Timestamp
    """Time of the last replacement."""
    since: Timestamp = 0.0
    """Time of the first of the consecutive replacements."""
    avoid: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    """Nodes that the member's pod avoids."""
    required: bool = False
    """Whether avoiding the nodes is a requirement (evidence against a node or device) or a preference."""
    failures: int = 0
    """Number of consecutive replacements that failed before they were ready, for the back-off."""


class Awaited(Model):
    """A pod of an earlier incarnation that may still run a worker. No worker starts until it is gone."""

    member: Label
    """Name of the member that the pod belonged to."""
    incarnation: int
    """Incarnation of the pod."""
    pod: Label
    """UID of the pod."""
    node: Name = ""
    """Node of the pod."""
    vanished_time: Timestamp | None = None
    """Time at which the pod was first missing without having been seen terminated."""


class AwaitedAll(Model):
    """More pods than can be listed. No worker starts until lostPodGraceSeconds after the last is gone."""

    incarnation: int
    """All pods of this incarnation or an earlier one that are not the current pods of their members."""
    vanished_time: Timestamp | None = None
    """Time since which none of them is seen to run a worker."""


class HeldRank(Model):
    """A rank that a spare has taken over."""

    place: Label
    """Member that has the rank by default."""
    member: Label
    """Spare that has taken over the rank."""


class RejectedStep(Model):
    """A step of a Shared tier that is ignored until the file that marks it complete changes."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    marker: Text = ""
    """Identity of the completion marker when the step was rejected."""


class RecordedStep(Model):
    """A step of a Shared tier that every rank has registered. Registrations are lost with their pods, this is not."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    path: Text = ""
    """Path of the checkpoint, if a rank reported one."""
    marker: Text = ""
    """Identity of the registration."""


class Status(Model):
    """Observed state of a gang. Only the controller writes it."""

    observed_generation: int = 0
    """Generation of the spec that the controller last acted on."""
    phase: GangPhase = GangPhase.NEW
    """Phase of the gang: a summary for people. Programs read conditions."""
    phase_time: Timestamp = 0.0
    """Time of the last change of phase or attempt."""
    message: Sentence = ""
    """Reason for the last decision, in one sentence."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """Accepted, Ready, Progressing, Suspended, Restarting, Degraded, Finished, Succeeded, Failed."""
    attempt: int = 0
    """Number of the current attempt of the whole gang. It never decreases."""
    started_attempt: int = 0
    """Newest attempt that was started; later ones were held or suspended before their start. 0 if none was."""
    attempt_generation: int = 0
    """Generation of the spec whose roles and templates this attempt runs."""
    start_time: Timestamp | None = None
    """Time at which the gang became active, or active again after it was suspended."""
    completion_time: Timestamp | None = None
    """Time at which the gang ended."""
    ready: Label = ""
    """Number of members that are ready or run, and of those required, such as 7/8."""
    roles: Annotated[tuple[RoleStatus, ...], Field(max_length=8)] = ()
    """Member counts of each role."""
    restore_point: RestorePoint | None = None
    """Checkpoint that every rank of the attempt loads; absent if the attempt starts from the beginning."""
    masters: Annotated[tuple[Master, ...], Field(max_length=8)] = ()
    """Address of rank 0 of each process group in this attempt."""
    hosts: Annotated[tuple[Name, ...], Field(max_length=512)] = ()
    """Addresses of the members of this attempt, in the order of roles and indexes, for host files. Empty in gangs that
    require more than 512 members."""
    progress: ProgressStatus | None = None
    """Highest step that any rank has reported in this attempt."""
    first_step: ProgressStatus | None = None
    """First training step that any rank has reported in the newest attempt that reported one."""
    spent: Spent = Field(default_factory=Spent)
    """What the time until accountedTime was spent on."""
    accounted_time: Timestamp = 0.0
    """Time until which spent accounts for the gang's time; the epoch if it does not yet."""
    restarts: Restarts = Field(default_factory=Restarts)
    """Restart counts."""
    incidents: Annotated[tuple[Incident, ...], Field(max_length=10)] = ()
    """The last 10 incidents, newest first."""
    ledger: Annotated[tuple[LedgerEntry, ...], Field(max_length=1000)] = ()
    """Settled incidents, as the budget and the ladder remember them."""
    base_incarnation: int = 0
    """Incarnation of every pod that is not in replaced. Incremented when the whole gang is recreated."""
    given_back: bool = False
    """Whether the gang is suspended because a replacement took too long. It continues when restartToken changes, or
    when suspend is set to true and back to false."""
    observed_restart_token: Annotated[str, Field(max_length=253)] = ""
    """Restart token that was last acted on."""
    roles_hash: Label = ""
    """Hash of the roles that the pods were made from."""
    rejected_steps: Annotated[tuple[RejectedStep, ...], Field(max_length=1000)] = ()
    """Checkpoint steps that cannot be used."""
    recorded_steps: Annotated[tuple[RecordedStep, ...], Field(max_length=16)] = ()
    """Newest steps of Shared tiers with source API that every rank has registered."""
    replaced: Annotated[tuple[Replaced, ...], Field(max_length=1000)] = ()
    """Members whose incarnation or nodes to avoid differ from the default."""
    awaited: Annotated[tuple[Awaited, ...], Field(max_length=1000)] = ()
    """Pods of earlier incarnations that may still run a worker."""
    awaited_all: AwaitedAll | None = None
    """Summary of awaited pods, if there are more than can be listed."""
    ranks: Annotated[tuple[HeldRank, ...], Field(max_length=10_000)] = ()
    """Ranks that spares have taken over."""
    barrier_timeouts: int = 0
    """Number of times that the deadline of the barrier passed in this attempt."""
    deadline_time: Timestamp | None = None
    """Earliest time from which the next deadline of the barrier is counted; set when the last one passed."""
    observed_time: Timestamp = 0.0
    """Time of the last update of the summary: progress, ready, timings of the last incident."""
