"""The status of a GangJob: all state that must survive a restart of the controller, and a summary for people.

Messages, and names from outside, are cut to their limits (see ``model.py``), so that a status can always be written.
Lists are not cut here, because a shorter list would change decisions; the code that fills a list keeps its limit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from gangctl.api.checkpoint_status import LineageEntry, RecordedStep, RejectedStep, RequestedStep, RestorePoint
from gangctl.api.fencing import Fencing
from gangctl.api.finished import Finished
from gangctl.api.incident import Incident, LedgerEntry
from gangctl.api.model import Label, Model, Name, Sentence, Timestamp
from gangctl.api.step_gaps import StepGaps


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


ENDED: Final = (GangPhase.SUCCEEDED, GangPhase.FAILED)
"""Nothing leads out of these phases."""


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


class Master(Model):
    """Address of rank 0 of a process group; fixed for the attempt."""

    process_group: Label
    """Name of the process group."""
    address: Name
    """Address of the pod that has rank 0."""
    port: int
    """Port that was free on this pod when the attempt started."""
    memory_port: int | None = None
    """Another one, where the ranks of a gang with a Peers tier find each other's memory. Absent without such a tier."""


class ProgressStatus(Model):
    """A step that a rank has reported."""

    attempt: int
    """Attempt in which the step was reported."""
    step: int
    """Number of the step."""
    time: Timestamp
    """Time of the report. Updated at most every 30 seconds."""


class FirstStep(Model):
    """The first step that a rank has made in an attempt."""

    attempt: int
    """Attempt in which it was made."""
    step: int | None = None
    """Number of the step; absent if steps are unknown (spec.progress.source is a File)."""
    time: Timestamp
    """Time at which it was made."""


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
    without_step: int = 0
    """Restarts in a row since the last training step, disruptions not counted. From the second on they wait."""


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
    since: Timestamp | None = None
    """Time of the first of the consecutive replacements; absent if this is the first."""
    avoid: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    """Nodes that the member's pod avoids."""
    required: bool = False
    """Whether avoiding the nodes is a requirement (evidence against the node) or a preference."""
    failures: int = 0
    """Number of consecutive replacements that failed before they were ready, for the back-off."""


class Recreated(Model):
    """The last time that the pods of all members were replaced at once."""

    time: Timestamp
    """Time of the replacement."""
    since: Timestamp
    """Time of the first of the consecutive ones."""
    failures: int = 0
    """Number of consecutive ones that failed before the attempt started, for the back-off."""


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


REVISION: Final = 1
"""Of the status. A release that adds a field which an older one must not lose raises it and writes it to
``readable_from``."""


class Status(Model):
    """Observed state of a gang. Only the controller writes it."""

    readable_from: int = 1
    """Revision of the status that a controller must know to act on this gang. One that doesn't leaves it alone."""
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
    resumed_attempt: int = 0
    """First attempt after the gang was last resumed, maybe with other roles: what earlier attempts finished does not
    count. 0 if it never was."""
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
    first_step: FirstStep | None = None
    """First training step that any rank has reported in the newest attempt that reported one."""
    step_gaps: StepGaps | None = None
    """Times between two reported steps. Absent without spec.progress.adaptive."""
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
    restart_wait_time: Timestamp | None = None
    """Time since which a restart by restartToken waits for the gangs of its group (`spec.rolling`); absent if none
    does."""
    restart_from_tokens: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=16)] = ()
    """Restart tokens whose restartFrom was taken, newest last. It is not taken again for them."""
    restart_from: RequestedStep | None = None
    """Restore point that was requested for the coming attempt; absent if it is the newest step."""
    roles_hash: Label = ""
    """Hash of the roles that the pods were made from."""
    rejected_steps: Annotated[tuple[RejectedStep, ...], Field(max_length=1000)] = ()
    """Checkpoint steps that cannot be used."""
    recorded_steps: Annotated[tuple[RecordedStep, ...], Field(max_length=16)] = ()
    """Newest steps of Shared tiers with source API that every rank has registered."""
    completed_step: RecordedStep | None = None
    """Newest step that every rank has registered in a tier with source API since the restore point, whether or not it
    can still be loaded. A gang with such a step, or with a restore point, does not start from the beginning by
    itself."""
    lineage: Annotated[tuple[LineageEntry, ...], Field(max_length=32)] = ()
    """Restarts that went back to a step. What earlier attempts had saved beyond that step no longer exists."""
    replaced: Annotated[tuple[Replaced, ...], Field(max_length=1000)] = ()
    """Members whose incarnation or nodes to avoid differ from the default."""
    recreated: Recreated | None = None
    """The last replacement of all pods at once; absent if the pods come from a start or a resume."""
    awaited: Annotated[tuple[Awaited, ...], Field(max_length=1000)] = ()
    """Pods of earlier incarnations that may still run a worker."""
    awaited_all: AwaitedAll | None = None
    """Summary of awaited pods, if there are more than can be listed."""
    fencing: Fencing | None = None
    """What supervisors are told to do without a controller. Absent until an attempt was made by a release that knows
    it: then no silent member is taken for stopped."""
    ranks: Annotated[tuple[HeldRank, ...], Field(max_length=10_000)] = ()
    """Ranks that spares have taken over."""
    finished: Finished | None = None
    """Members that have finished, in the newest attempt that was started. Written within a second, so that success does
    not depend on pods or reports that may be gone."""
    barrier_timeouts: int = 0
    """Number of times that the deadline of the barrier passed in this attempt."""
    deadline_time: Timestamp | None = None
    """Earliest time from which the next deadline of the barrier is counted; set when the last one passed."""
    observed_time: Timestamp = 0.0
    """Time of the last update of the summary: progress, ready, timings of the last incident."""
