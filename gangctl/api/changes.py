# Made by `python -m gangctl.api.change_types` from the models of gangctl/api. Change those, then `make generate`.
"""Changed copies of values, typed: mypy refuses a field that a model doesn't have, and a value of another type."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from gangctl.api.checkpoint import Checkpoint
from gangctl.api.checkpoint_status import LineageEntry, RecordedStep, RejectedStep, RequestedStep, RestorePoint
from gangctl.api.fencing import Fencing
from gangctl.api.finished import Finished
from gangctl.api.gang_scheduling import NoGangScheduling, PodGroupScheduling
from gangctl.api.gangjob import GangJob, Metadata, Spec
from gangctl.api.incident import (
    Cause,
    Incident,
    IncidentLevel,
    IncidentMember,
    KeptSignal,
    LedgerEntry,
    Output,
    PhaseMilliseconds,
    Stacks,
    WarmStart,
)
from gangctl.api.model import Model
from gangctl.api.placement import Network, NoPlacement, Placement
from gangctl.api.policy import Action, AllRoles, NeverSucceeds, PodFailurePolicy, Roles
from gangctl.api.progress import Progress
from gangctl.api.recovery import Recovery
from gangctl.api.restart import RestartFrom
from gangctl.api.roles import Role
from gangctl.api.rolling import Rolling
from gangctl.api.said import Said
from gangctl.api.snapshot import Endpoint, MemberSnapshot, Snapshot
from gangctl.api.status import (
    Awaited,
    AwaitedAll,
    Condition,
    FirstStep,
    GangPhase,
    HeldRank,
    Master,
    ProgressStatus,
    Recreated,
    Replaced,
    Restarts,
    RoleStatus,
    Spent,
    Status,
)
from gangctl.api.step_gaps import StepGaps

_M = TypeVar("_M", bound=Model)


class LineageEntryChanges(TypedDict, total=False):
    """Fields of LineageEntry."""

    attempt: int
    step: int | None


class RecordedStepChanges(TypedDict, total=False):
    """Fields of RecordedStep."""

    tier: str
    step: int
    path: str
    marker: str
    attempt: int


class RejectedStepChanges(TypedDict, total=False):
    """Fields of RejectedStep."""

    tier: str
    step: int
    marker: str


class RequestedStepChanges(TypedDict, total=False):
    """Fields of RequestedStep."""

    step: int | None


class RestorePointChanges(TypedDict, total=False):
    """Fields of RestorePoint."""

    step: int
    tier: str
    path: str


class GangJobChanges(TypedDict, total=False):
    """Fields of GangJob."""

    api_version: Literal["gangctl.io/v1alpha1"]
    kind: Literal["GangJob"]
    metadata: Metadata
    spec: Spec
    status: Status


class MetadataChanges(TypedDict, total=False):
    """Fields of Metadata."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    creation_timestamp: float
    deletion_timestamp: float | None


class SpecChanges(TypedDict, total=False):
    """Fields of Spec."""

    suspend: bool
    restart_token: str
    restart_from: RestartFrom
    rolling: Rolling | None
    roles: tuple[Role, ...]
    success_policy: AllRoles | Roles | NeverSucceeds
    pod_failure_policy: PodFailurePolicy
    recovery: Recovery
    checkpoint: Checkpoint | None
    progress: Progress
    placement: NoPlacement | Placement
    gang_scheduling: NoGangScheduling | PodGroupScheduling
    network: Network
    active_deadline_seconds: int | None
    ttl_seconds_after_finished: int | None


class CauseChanges(TypedDict, total=False):
    """Fields of Cause."""

    reason: str
    member: str
    incarnation: int
    rank: int | None
    exit_code: int | None
    signal: str | None
    device: str | None
    node: str | None
    rule: str | None
    action: Action | None
    why: str
    level: IncidentLevel
    message: str
    words: str
    said: Said | None
    printed: str
    time: float
    exact: bool
    tied: tuple[str, ...]
    alike: bool
    suspect: str


class IncidentChanges(TypedDict, total=False):
    """Fields of Incident."""

    attempt: int
    time: float
    cause: Cause
    level: IncidentLevel
    charged: bool
    settled: bool
    settled_time: float | None
    outcome: Literal["Open", "Restarted", "Failed", "Held", "Succeeded", "Suspended"]
    back_off_time: float | None
    planned: bool
    milliseconds: PhaseMilliseconds
    warm_start: WarmStart | None
    kept_signal: KeptSignal | None
    stacks: Stacks | None
    output: Output | None
    restored_step: int | None
    lost_steps: int | None
    lost_steps_at_most: int | None
    lost_seconds: float | None
    members: tuple[IncidentMember, ...]
    trace_id: str
    linked_trace_id: str


class IncidentMemberChanges(TypedDict, total=False):
    """Fields of IncidentMember."""

    member: str
    incarnation: int
    node: str
    device: str | None
    part: Literal["Cause", "Replaced", "Slowest"]
    phase: Literal["Stop", "Replace", "Start", "CheckpointLoad", "FirstStep"]
    begin_milliseconds: int
    milliseconds: int


class KeptSignalChanges(TypedDict, total=False):
    """Fields of KeptSignal."""

    member: str
    members: int
    milliseconds: int


class LedgerEntryChanges(TypedDict, total=False):
    """Fields of LedgerEntry."""

    time: float
    attempt: int
    member: str
    incarnation: int
    charged: bool
    failure: bool
    restored_step: int | None
    progressed: bool | None


class OutputChanges(TypedDict, total=False):
    """Fields of Output."""

    member: str
    text: str


class PhaseMillisecondsChanges(TypedDict, total=False):
    """Fields of PhaseMilliseconds."""

    detect: int | None
    stop: int | None
    replace: int | None
    back_off: int | None
    barrier: int | None
    start: int | None
    first_step: int | None


class StacksChanges(TypedDict, total=False):
    """Fields of Stacks."""

    member: str
    text: str


class WarmStartChanges(TypedDict, total=False):
    """Fields of WarmStart."""

    forked: int
    executed: int
    member: str
    obstacle: str
    template_bytes: int
    went_on: int


class EndpointChanges(TypedDict, total=False):
    """Fields of Endpoint."""

    url: str
    token: str


class MemberSnapshotChanges(TypedDict, total=False):
    """Fields of MemberSnapshot."""

    member: str
    role: str
    pod: str
    incarnation: int
    rank: int | None
    spare: bool
    connected: bool
    finished: bool
    terminated: bool
    phase: str
    attempt: int
    step: int | None
    restarts: int


class SnapshotChanges(TypedDict, total=False):
    """Fields of Snapshot."""

    name: str
    uid: str
    generation: int
    time: float
    status: Status
    members: tuple[MemberSnapshot, ...]
    unstored: str


class AwaitedChanges(TypedDict, total=False):
    """Fields of Awaited."""

    member: str
    incarnation: int
    pod: str
    node: str
    vanished_time: float | None


class AwaitedAllChanges(TypedDict, total=False):
    """Fields of AwaitedAll."""

    incarnation: int
    vanished_time: float | None


class ConditionChanges(TypedDict, total=False):
    """Fields of Condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    observed_generation: int
    last_transition_time: float


class FirstStepChanges(TypedDict, total=False):
    """Fields of FirstStep."""

    attempt: int
    step: int | None
    time: float


class HeldRankChanges(TypedDict, total=False):
    """Fields of HeldRank."""

    place: str
    member: str


class MasterChanges(TypedDict, total=False):
    """Fields of Master."""

    process_group: str
    address: str
    port: int
    memory_port: int | None


class ProgressStatusChanges(TypedDict, total=False):
    """Fields of ProgressStatus."""

    attempt: int
    step: int
    time: float


class RecreatedChanges(TypedDict, total=False):
    """Fields of Recreated."""

    time: float
    since: float
    failures: int


class ReplacedChanges(TypedDict, total=False):
    """Fields of Replaced."""

    member: str
    incarnation: int
    attempt: int
    time: float
    since: float | None
    avoid: tuple[str, ...]
    required: bool
    failures: int


class RestartsChanges(TypedDict, total=False):
    """Fields of Restarts."""

    counted: int
    uncounted: int
    in_window: int
    without_step: int


class RoleStatusChanges(TypedDict, total=False):
    """Fields of RoleStatus."""

    name: str
    desired: int
    ready: int
    succeeded: int


class SpentChanges(TypedDict, total=False):
    """Fields of Spent."""

    training: float
    lost_progress: float
    start_up: float
    recovery: float
    suspended: float
    pending: float
    held: float


class StatusChanges(TypedDict, total=False):
    """Fields of Status."""

    readable_from: int
    observed_generation: int
    message: str
    said: Said | None
    warning: Said | None
    refusal: Said | None
    conditions: tuple[Condition, ...]
    started_attempt: int
    resumed_attempt: int
    attempt_generation: int
    start_time: float | None
    completion_time: float | None
    ready: str
    roles: tuple[RoleStatus, ...]
    restore_point: RestorePoint | None
    masters: tuple[Master, ...]
    hosts: tuple[str, ...]
    progress: ProgressStatus | None
    first_step: FirstStep | None
    step_gaps: StepGaps | None
    spent: Spent
    accounted_time: float
    restarts: Restarts
    incidents: tuple[Incident, ...]
    ledger: tuple[LedgerEntry, ...]
    base_incarnation: int
    given_back: bool
    observed_restart_token: str
    restart_wait_time: float | None
    restart_from_tokens: tuple[str, ...]
    restart_from: RequestedStep | None
    roles_hash: str
    rejected_steps: tuple[RejectedStep, ...]
    recorded_steps: tuple[RecordedStep, ...]
    completed_step: RecordedStep | None
    lineage: tuple[LineageEntry, ...]
    replaced: tuple[Replaced, ...]
    recreated: Recreated | None
    awaited: tuple[Awaited, ...]
    awaited_all: AwaitedAll | None
    fencing: Fencing | None
    ranks: tuple[HeldRank, ...]
    finished: Finished | None
    barrier_timeouts: int
    deadline_time: float | None
    observed_time: float


@overload
def changed(value: LineageEntry, **changes: Unpack[LineageEntryChanges]) -> LineageEntry: ...


@overload
def changed(value: RecordedStep, **changes: Unpack[RecordedStepChanges]) -> RecordedStep: ...


@overload
def changed(value: RejectedStep, **changes: Unpack[RejectedStepChanges]) -> RejectedStep: ...


@overload
def changed(value: RequestedStep, **changes: Unpack[RequestedStepChanges]) -> RequestedStep: ...


@overload
def changed(value: RestorePoint, **changes: Unpack[RestorePointChanges]) -> RestorePoint: ...


@overload
def changed(value: GangJob, **changes: Unpack[GangJobChanges]) -> GangJob: ...


@overload
def changed(value: Metadata, **changes: Unpack[MetadataChanges]) -> Metadata: ...


@overload
def changed(value: Spec, **changes: Unpack[SpecChanges]) -> Spec: ...


@overload
def changed(value: Cause, **changes: Unpack[CauseChanges]) -> Cause: ...


@overload
def changed(value: Incident, **changes: Unpack[IncidentChanges]) -> Incident: ...


@overload
def changed(value: IncidentMember, **changes: Unpack[IncidentMemberChanges]) -> IncidentMember: ...


@overload
def changed(value: KeptSignal, **changes: Unpack[KeptSignalChanges]) -> KeptSignal: ...


@overload
def changed(value: LedgerEntry, **changes: Unpack[LedgerEntryChanges]) -> LedgerEntry: ...


@overload
def changed(value: Output, **changes: Unpack[OutputChanges]) -> Output: ...


@overload
def changed(value: PhaseMilliseconds, **changes: Unpack[PhaseMillisecondsChanges]) -> PhaseMilliseconds: ...


@overload
def changed(value: Stacks, **changes: Unpack[StacksChanges]) -> Stacks: ...


@overload
def changed(value: WarmStart, **changes: Unpack[WarmStartChanges]) -> WarmStart: ...


@overload
def changed(value: Endpoint, **changes: Unpack[EndpointChanges]) -> Endpoint: ...


@overload
def changed(value: MemberSnapshot, **changes: Unpack[MemberSnapshotChanges]) -> MemberSnapshot: ...


@overload
def changed(value: Snapshot, **changes: Unpack[SnapshotChanges]) -> Snapshot: ...


@overload
def changed(value: Awaited, **changes: Unpack[AwaitedChanges]) -> Awaited: ...


@overload
def changed(value: AwaitedAll, **changes: Unpack[AwaitedAllChanges]) -> AwaitedAll: ...


@overload
def changed(value: Condition, **changes: Unpack[ConditionChanges]) -> Condition: ...


@overload
def changed(value: FirstStep, **changes: Unpack[FirstStepChanges]) -> FirstStep: ...


@overload
def changed(value: HeldRank, **changes: Unpack[HeldRankChanges]) -> HeldRank: ...


@overload
def changed(value: Master, **changes: Unpack[MasterChanges]) -> Master: ...


@overload
def changed(value: ProgressStatus, **changes: Unpack[ProgressStatusChanges]) -> ProgressStatus: ...


@overload
def changed(value: Recreated, **changes: Unpack[RecreatedChanges]) -> Recreated: ...


@overload
def changed(value: Replaced, **changes: Unpack[ReplacedChanges]) -> Replaced: ...


@overload
def changed(value: Restarts, **changes: Unpack[RestartsChanges]) -> Restarts: ...


@overload
def changed(value: RoleStatus, **changes: Unpack[RoleStatusChanges]) -> RoleStatus: ...


@overload
def changed(value: Spent, **changes: Unpack[SpentChanges]) -> Spent: ...


@overload
def changed(value: Status, **changes: Unpack[StatusChanges]) -> Status: ...
def changed(value: _M, **changes: Any) -> _M:
    """Return a copy of the value with these fields changed."""
    return value.model_copy(update=changes)


def in_phase(
    status: Status, phase: GangPhase, phase_time: float, attempt: int, **changes: Unpack[StatusChanges]
) -> Status:
    """Return a copy of the status in another phase or attempt. Only ``core/lifecycle/transitions.py`` may use it."""
    return status.model_copy(update={"phase": phase, "phase_time": phase_time, "attempt": attempt, **changes})
