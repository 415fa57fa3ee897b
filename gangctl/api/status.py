"""The status of a GangJob: all state that must survive a restart of the controller, and a summary for people."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gangctl.api.incident import CheckResult, Incident, LedgerEntry
from gangctl.api.model import ExactText, Label, Model, Name, Said, Sentence, Timestamp

# Condition types of a GangJob. Programs read conditions; ``status.phase`` is a summary for people.


class ConditionType(StrEnum):
    """Each is True, False or Unknown, with a reason from :class:`gangctl.api.reasons.Reason` and a message."""

    ACCEPTED = "Accepted"
    """The cluster admits the gang's pods."""
    READY = "Ready"
    """Every required member runs its worker."""
    PROGRESSING = "Progressing"
    """The gang runs or will run. If False, it has ended or waits for a user."""
    SUSPENDED = "Suspended"
    """The gang has no pods: `spec.suspend` is true, its queue does not admit it (reason Queued), or a replacement took
    too long."""
    RESTARTING = "Restarting"
    """A restart is in progress, from the fault until the last worker has started."""
    DEGRADED = "Degraded"
    """The gang runs but needs attention."""
    FINISHED = "Finished"
    """The gang has ended. Use this condition with `kubectl wait`."""
    SUCCEEDED = "Succeeded"
    """The success policy is satisfied."""
    FAILED = "Failed"
    """The gang has ended without success."""


# Fencing: what supervisors do without a controller, as the status keeps it.


class Fencing(Model):
    """When a supervisor without a controller has stopped its worker, by what it was told."""

    revision: int
    """Revision of these values; reports return it."""
    isolation_seconds: int | None = None
    """Seconds without a controller after which a supervisor stops its worker; absent for never."""
    stop_grace_seconds: int
    """Seconds that the worker has to stop."""
    longest_isolation_seconds: int | None = None
    """Longest isolation in seconds that a supervisor whose worker may run can still use; absent for no limit."""
    longest_stop_grace_seconds: int
    """Longest stop grace period in seconds that it can still use."""


# Finished members: ranges instead of names, so that 10,000 members have room.


class FinishedRole(Model):
    """Members of one role whose workers have finished."""

    name: Label
    """Name of the role."""
    indexes: Annotated[str, Field(max_length=32_768)]
    """Their indexes, such as 0-511,513."""


class Finished(Model):
    """Members whose workers ended with exit code 0 before any stop. A rank that a spare took counts for its member."""

    attempt: int
    """Attempt that they count for."""
    time: Timestamp
    """Time of the last change."""
    roles: Annotated[tuple[FinishedRole, ...], Field(max_length=8)] = ()
    """Roles with such members."""


# Roles that start after others.


class StartedRoles(Model):
    """Roles with dependsOn whose workers may start, because the roles that they wait for are ready."""

    attempt: int
    """Attempt that they count for."""
    time: Timestamp
    """Time of the last change."""
    roles: Annotated[tuple[Label, ...], Field(max_length=8)] = ()
    """Names of the roles."""


# Step gaps: times between steps, from which a deadline is computed.


class StepGaps(Model):
    """The times between two reported steps, from which spec.progress.adaptive computes its deadline."""

    attempt: int = 0
    """Newest attempt that has shown enough of them."""
    longest_milliseconds: int = 0
    """The longest time in milliseconds, updated when it has grown by more than 10 %."""
    reached_step: int | None = None
    """Highest step of earlier attempts. Until an attempt passes it, timeoutSeconds applies."""


# Checkpoints: which step is restored, which steps exist, and which don't exist any more.


class VerifiedStep(Model):
    """A step that the framework has verified."""

    step: int
    """The step."""
    attempt: int
    """Attempt in which it was verified."""


class LineageEntry(Model):
    """An attempt that went back to a step. Later steps of earlier attempts no longer count."""

    attempt: int
    """The attempt."""
    step: int | None = None
    """Step of its restore point; absent for the beginning."""


class RequestedStep(Model):
    """The restore point that a user has requested for the coming attempt."""

    step: int | None = None
    """The step; absent for the beginning."""


class RestorePoint(Model):
    """The checkpoint that every rank of the attempt loads."""

    step: int
    """Step of the checkpoint."""
    tier: Label
    """Tier of the checkpoint."""
    path: ExactText = ""
    """Path in a Shared tier; empty for other tiers."""


class RejectedStep(Model):
    """A step of a Shared tier that is ignored until its completion marker changes."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    marker: ExactText = ""
    """Identity of its completion marker at the rejection."""


class RecordedStep(Model):
    """A step of a Shared tier that every rank has registered."""

    tier: Label
    """Tier of the step."""
    step: int
    """The step."""
    path: ExactText = ""
    """Path of the checkpoint, if reported."""
    marker: ExactText = ""
    """Identity of the registration."""
    attempt: int = 0
    """Newest attempt in which a rank wrote it."""


# The status of a GangJob: all state that must survive a restart of the controller, and a summary for people.
#
# Messages, and names from outside, are cut to their limits (see ``model.py``), so that a status can always be written.
# Lists are not cut here, because a shorter list would change decisions; the code that fills a list keeps its limit.


class GangPhase(StrEnum):
    """Phase of a gang: a summary for people. Programs read conditions."""

    NEW = ""
    """No controller has seen the gang yet."""
    SUSPENDED = "Suspended"
    """The gang is suspended, or a replacement took too long. It has no pods."""
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
    """Type of the condition, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition."""
    reason: Label
    """Reason of the last transition."""
    message: Sentence = ""
    """What was seen, what happens next and what to do."""
    observed_generation: int = 0
    """Generation that the condition was set for."""
    last_transition_time: Timestamp
    """Time of the last change of status."""


class RoleStatus(Model):
    """Member counts of one role."""

    name: Label
    """Name of the role."""
    desired: int
    """Number of required members."""
    ready: int = 0
    """Members that are ready for the attempt or run it."""
    succeeded: int = 0
    """Members that exited with 0."""


class Master(Model):
    """Address of rank 0 of a process group; fixed for the attempt."""

    process_group: Label
    """Name of the process group."""
    address: Name
    """Address of the pod with rank 0."""
    port: int
    """Port of the rendezvous on this pod."""
    memory_port: int | None = None
    """Port by which ranks find each other's memory. Absent without a Peers tier."""


class ProgressStatus(Model):
    """A step that a rank has reported."""

    attempt: int
    """Attempt of the step."""
    step: int
    """Number of the step."""
    time: Timestamp
    """Time of the report, updated at most every 30 seconds."""


class FirstStep(Model):
    """The first step that a rank has made in an attempt."""

    attempt: int
    """Attempt of the step."""
    step: int | None = None
    """Number of the step; absent if unknown."""
    time: Timestamp
    """Time of the step."""


class Spent(Model):
    """What the gang's time was spent on, in seconds. A gang that never reports a step has no goodput."""

    training: float = 0.0
    """From an attempt's first step to its end."""
    lost_progress: float = 0.0
    """Part of training that was repeated."""
    missing_members: float = 0.0
    """Part of training that missing members would have done."""
    start_up: float = 0.0
    """From gathering to the first step, without an incident before."""
    recovery: float = 0.0
    """From a fault to the first step."""
    suspended: float = 0.0
    """Suspended, including the end of the pods."""
    pending: float = 0.0
    """Waiting for pods to be scheduled and started."""
    held: float = 0.0
    """Held for inspection."""


class RestartCounts(Model):
    """Counts of the attempts after the first."""

    counted: int = 0
    """Charged restarts."""
    uncounted: int = 0
    """Restarts that were not charged."""
    in_window: int = 0
    """Charged restarts within the budget's window."""
    without_step: int = 0
    """Restarts in a row without a step, except disruptions. From the second on they wait."""


class Replaced(Model):
    """A member whose incarnation or nodes to avoid differ from the default."""

    member: Label
    """Name of the member."""
    incarnation: int
    """Incarnation of its current pod."""
    attempt: int = 0
    """First attempt that the current pod can run."""
    time: Timestamp
    """Time of the last replacement."""
    since: Timestamp | None = None
    """Time of the first consecutive replacement; absent if this is the first."""
    avoid: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    """Nodes that the pod avoids."""
    required: bool = False
    """Whether the pod must avoid the nodes."""
    failures: int = 0
    """Number of consecutive replacements that failed, for the back-off."""
    without_quota: bool | None = None
    """True if it has no pod because its queue gives no quota for it, or has it back; else absent."""


class Recreated(Model):
    """The last time that the pods of all members were replaced at once."""

    time: Timestamp
    """Time of the replacement."""
    since: Timestamp
    """Time of the first consecutive replacement."""
    failures: int = 0
    """Number of consecutive replacements that failed, for the back-off."""


class Awaited(Model):
    """A pod of an earlier incarnation that may still run a worker. No worker starts until it is gone."""

    member: Label
    """Member of the pod."""
    incarnation: int
    """Incarnation of the pod."""
    pod: Label
    """UID of the pod."""
    node: Name = ""
    """Node of the pod."""
    vanished_time: Timestamp | None = None
    """Time when the pod was first missing without a seen end."""


class AwaitedAll(Model):
    """More pods than can be listed. No worker starts until lostPodGraceSeconds after the last is gone."""

    incarnation: int
    """Newest incarnation of these pods. Current pods are excluded."""
    vanished_time: Timestamp | None = None
    """Time since which none of them was seen to run a worker."""


class HeldRank(Model):
    """A rank that a spare has taken over."""

    place: Label
    """Member that has the rank by default."""
    member: Label
    """Spare that has the rank."""


class RoleSize(Model):
    """Size of a role that has fewer members than are wanted."""

    name: Label
    """Name of the role."""
    members: int
    """Members of the attempt."""


class Size(Model):
    """Size of the newest attempt, where roles have minReplicas."""

    attempt: int = 0
    """First attempt of this size."""
    time: Timestamp = 0.0
    """Time when it started."""
    roles: Annotated[tuple[RoleSize, ...], Field(max_length=8)] = ()
    """Roles with fewer members than wanted."""
    reason: Sentence = ""
    """Why they have fewer."""
    growing_attempt: int = 0
    """Newest attempt that was stopped to grow."""
    due_attempt: int = 0
    """Attempt that is stopped to grow after its next checkpoint; 0 if no members wait for it."""
    due_step: int = 0
    """Newest step that was saved when they were ready."""
    stops: Annotated[tuple[Timestamp, ...], Field(max_length=8)] = ()
    """Times within the last hour of such stops, and of quota that was not used."""
    asked_time: Timestamp = 0.0
    """Time when the queue was asked for quota to grow; 0 if it isn't."""

    @property
    def members(self) -> dict[str, int]:
        """Members of the attempt, by role, of those with fewer than wanted."""
        return {one.name: one.members for one in self.roles}

    given_time: Timestamp = 0.0
    """Time when it gave quota that no attempt uses yet; 0 if none."""


class Checks(Model):
    """The checks before an attempt."""

    attempt: int
    """The attempt."""
    turn: int = 0
    """Newest turn of a check."""
    check: Label = ""
    """Name of the check that runs, if any."""
    first_turn: int = 0
    """Its first turn."""
    judged_turn: int = 0
    """Newest turn whose results were acted on."""
    time: Timestamp = 0.0
    """Start of the check."""
    turn_time: Timestamp = 0.0
    """Start of the turn."""
    sessions: Label = ""
    """Hash of the supervisors' sessions. Others begin the check again."""
    results: Annotated[tuple[CheckResult, ...], Field(max_length=8)] = ()
    """The newest 8 results, newest last."""


REVISION: Final = 1
"""The revision of the status. A release that adds a field which an older one must not lose raises it and writes it to
``readable_from``."""


class Status(Model):
    """Observed state of a gang. Only the controller writes it."""

    readable_from: int = 1
    """Revision that a controller must know to act on the gang."""
    observed_generation: int = 0
    """Generation that the controller last acted on."""
    phase: GangPhase = GangPhase.NEW
    """Summary for people. Programs read conditions."""
    phase_time: Timestamp = 0.0
    """Time of the last change of phase or attempt."""
    message: Sentence = ""
    """Reason for the last decision."""
    said: Said | None = None
    """The message as a value."""
    warning: Said | None = None
    """Message of Degraded as a value, while it is True."""
    refusal: Said | None = None
    """Message of Accepted as a value, while it is False."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """The conditions listed below."""
    attempt: int = 0
    """Number of the current attempt. It never decreases."""
    started_attempt: int = 0
    """Newest attempt that was started; 0 if none."""
    resumed_attempt: int = 0
    """First attempt since the gang was resumed; 0 if it never was."""
    attempt_generation: int = 0
    """Generation whose roles this attempt runs."""
    start_time: Timestamp | None = None
    """Time when the gang last became active."""
    completion_time: Timestamp | None = None
    """Time when the gang ended."""
    ready: Label = ""
    """Ready or running members of the required members, such as 7/8."""
    roles: Annotated[tuple[RoleStatus, ...], Field(max_length=8)] = ()
    """Member counts of the roles."""
    restore_point: RestorePoint | None = None
    """Checkpoint that every rank of the attempt loads; absent for the beginning."""
    masters: Annotated[tuple[Master, ...], Field(max_length=8)] = ()
    """Address of rank 0 of each process group, fixed for the attempt."""
    hosts: Annotated[tuple[Name, ...], Field(max_length=512)] = ()
    """Addresses of members in the order of roles and indexes. Empty above 512 required members."""
    progress: ProgressStatus | None = None
    """Highest step that a rank has reported in this attempt."""
    first_step: FirstStep | None = None
    """First reported step of the newest attempt with any."""
    step_gaps: StepGaps | None = None
    """Times between reported steps, for spec.progress.adaptive."""
    spent: Spent = Field(default_factory=Spent)
    """Seconds until accountedTime by what they were spent on."""
    accounted_time: Timestamp = 0.0
    """End of the time that spent counts."""
    restarts: RestartCounts = Field(default_factory=RestartCounts)
    """Counts of restarts."""
    incidents: Annotated[tuple[Incident, ...], Field(max_length=10)] = ()
    """The last 10 incidents, newest first."""
    ledger: Annotated[tuple[LedgerEntry, ...], Field(max_length=1000)] = ()
    """Settled incidents for the budget and the ladder."""
    base_incarnation: int = 0
    """Incarnation of pods that are not in replaced."""
    given_back: bool = False
    """Whether the gang is suspended because a replacement took too long. A new restartToken, or suspend set to true and
    back, continues it."""
    observed_restart_token: Annotated[str, Field(max_length=253)] = ""
    """Last restartToken that was acted on."""
    restart_wait_time: Timestamp | None = None
    """Time since which a restart waits for its group (`spec.rolling`)."""
    restart_from_tokens: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=16)] = ()
    """Restart tokens whose restartFrom was used, newest last."""
    restart_from: RequestedStep | None = None
    """Requested restore point of the coming attempt; absent for the newest."""
    roles_hash: Label = ""
    """Hash of the roles that the pods have."""
    rejected_steps: Annotated[tuple[RejectedStep, ...], Field(max_length=1000)] = ()
    """Steps of Shared tiers that are ignored until their completion marker changes."""
    corrupt_since: int | None = None
    """First step that the coming attempt does not restore because of corruption."""
    recorded_steps: Annotated[tuple[RecordedStep, ...], Field(max_length=16)] = ()
    """Newest steps of Shared API tiers that every rank has registered."""
    completed_step: RecordedStep | None = None
    """Newest step since the restore point that every rank has registered in an API tier."""
    verified_steps: Annotated[tuple[VerifiedStep, ...], Field(max_length=16)] = ()
    """Steps that the framework has verified, newest first."""
    checked_step: int | None = None
    """Newest step that checks have verified, or that the first attempt restored."""
    lineage: Annotated[tuple[LineageEntry, ...], Field(max_length=32)] = ()
    """Attempts that went back to a step."""
    replaced: Annotated[tuple[Replaced, ...], Field(max_length=1000)] = ()
    """Members with another incarnation, or with nodes to avoid."""
    recreated: Recreated | None = None
    """Last replacement of all pods at once, since the start or resume."""
    awaited: Annotated[tuple[Awaited, ...], Field(max_length=1000)] = ()
    """Pods of earlier incarnations that may still run a worker."""
    awaited_all: AwaitedAll | None = None
    """Summary of awaited pods that are too many to list."""
    fencing: Fencing | None = None
    """What supervisors do without a controller. If absent, no silent member counts as stopped."""
    checks: Checks | None = None
    """Newest checks before an attempt."""
    size: Size | None = None
    """Size of the newest attempt; absent while the gang has had all members."""
    ranks: Annotated[tuple[HeldRank, ...], Field(max_length=10_000)] = ()
    """Ranks that spares have taken over."""
    started_roles: StartedRoles | None = None
    """Roles with dependsOn whose workers may start."""
    finished: Finished | None = None
    """Members that finished in the newest started attempt."""
    barrier_timeouts: int = 0
    """Barrier deadlines that passed in this attempt."""
    deadline_time: Timestamp | None = None
    """Earliest start of the next barrier deadline."""
    observed_time: Timestamp = 0.0
    """Last update of progress, ready and the last incident's timings."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return the condition of this type; None if it isn't stored."""
        return next((one for one in self.conditions if one.type == kind), None)


def in_phase(status: Status, phase: GangPhase, phase_time: float, attempt: int, **changes: Any) -> Status:
    """Return a copy of the status in another phase or attempt. Only ``core/lifecycle/plan.py`` may use it."""
    return status.model_copy(update={"phase": phase, "phase_time": phase_time, "attempt": attempt, **changes})


# A snapshot: what the controller knows of a gang this moment, beyond what is worth a status write.
#
# The controller answers with it, and the CLI shows it. Steps are reported many times a second and stored every half
# minute; a reader who watches wants to see them move.


class Endpoint(Model):
    """Address of the controller's live endpoint, and the token for ``Authorization: Bearer TOKEN``."""

    url: str
    token: str


class MemberSnapshot(Model):
    """One member, according to the last report of its supervisor."""

    member: str
    role: str
    pod: str = ""
    """Name of the current pod; empty if there is none."""
    incarnation: int
    rank: int | None = None
    """First of its ranks; absent for spares and roles without ranks."""
    spare: bool = False
    """Whether the member is a spare now."""
    connected: bool = False
    finished: bool = False
    """Whether its work in this attempt is done: it needs no pod any more."""
    terminated: bool = False
    phase: str = ""
    """Phase of the supervisor, or Ended if a process of its worker has; empty before its first report."""
    attempt: int = 0
    step: int | None = None
    """Newest step that the member reported in this attempt."""
    restarts: int = 0
    """Number of restarts of its supervisor."""
    pod_status: str = ""
    """Status of the pod, as `kubectl get pods` shows it, where only pods were read; empty where supervisors report."""


class Snapshot(Model):
    """The snapshot of one gang."""

    name: str
    uid: str
    generation: int
    time: Timestamp
    """Time of the snapshot."""
    status: Status
    """The stored status, with current progress and timings of the last incident."""
    members: tuple[MemberSnapshot, ...]
    unstored: str = ""
    """Why the controller can't store the status, as its message has it; empty if it can."""
