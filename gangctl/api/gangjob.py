"""The GangJob: what a user writes below ``spec``. The status is in ``status.py``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from gangctl.api.model import Model, Seconds, Timestamp
from gangctl.api.status import Status

GROUP = "gangctl.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GangJob"

RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,14}$")]
RuleName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$")]
TierName = Annotated[str, Field(pattern=r"^[a-z][-a-z0-9]{0,14}$")]


class Launch(StrEnum):
    """How the worker container's command becomes processes."""

    COMMAND = "Command"
    PER_PROCESS = "PerProcess"
    TORCHRUN = "Torchrun"


class Action(StrEnum):
    """What a rule does with the fault it matches."""

    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"
    COUNT = "Count"


class RuleLevel(StrEnum):
    """The least that is thrown away when a rule acts."""

    PROCESS = "Process"
    POD = "Pod"
    GANG = "Gang"


class OnReason(StrEnum):
    """What `onReasons` can match: faults that are neither an exit code nor a signal."""

    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    DEVICE_LOST = "DeviceLost"
    UNSCHEDULABLE = "Unschedulable"
    START_FAILED = "StartFailed"
    HANG = "Hang"
    REQUESTED = "Requested"
    BARRIER_TIMEOUT = "BarrierTimeout"


class Container(Model):
    """The declared part of a container; everything else of Kubernetes' Container is kept as written."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=63)]
    command: Annotated[tuple[str, ...], Field(max_length=256)] = ()
    liveness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None


class PodSpec(Model):
    """The declared part of a pod's spec; everything else of Kubernetes' PodSpec is kept as written."""

    model_config = ConfigDict(extra="allow")

    containers: Annotated[tuple[Container, ...], Field(min_length=1, max_length=16)]
    restart_policy: Literal["Never", "OnFailure"] = "Never"


class Template(Model):
    """A PodTemplateSpec."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: PodSpec


class Role(Model):
    """A named group of equal members."""

    name: RoleName
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    spares: Annotated[int, Field(ge=0, le=1_000)] = 0
    process_group: Annotated[str, Field(pattern=r"^([a-z][a-z0-9]{0,14})?$")] | None = None
    processes_per_pod: Annotated[int, Field(ge=1, le=64)] = 1
    launch: Launch = Launch.COMMAND
    worker_container: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    template: Template

    @property
    def group(self) -> str:
        """The process group that this role's ranks are counted in; empty = no ranks."""
        return self.name if self.process_group is None else self.process_group

    @property
    def worker(self) -> Container:
        """The container whose command is the worker."""
        wanted = self.worker_container
        return next((c for c in self.template.spec.containers if c.name == wanted), self.template.spec.containers[0])


class AllRoles(Model):
    """The gang has succeeded when every process of every role has ended with 0."""

    type: Literal["AllRoles"] = "AllRoles"


class Roles(Model):
    """The gang has succeeded when every process of the named roles has ended with 0; the rest is stopped then."""

    type: Literal["Roles"]
    roles: Annotated[tuple[RoleName, ...], Field(min_length=1, max_length=8)]


class NeverSucceeds(Model):
    """The gang serves until it is deleted; an exit with 0 is a fault like any other."""

    type: Literal["Never"]


SuccessPolicy = Annotated[AllRoles | Roles | NeverSucceeds, Field(discriminator="type")]


class OnExitCodes(Model):
    """Matches the exit code of a worker's process; 128+n matches a process ended by signal n as well."""

    container_name: Annotated[str, Field(max_length=63)] | None = None
    operator: Literal["In", "NotIn"]
    values: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], Field(min_length=1, max_length=255)]


class OnPodCondition(Model):
    """Matches a condition of the pod."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"] = "True"


class OnDeviceHealth(Model):
    """Matches the health of a device that the pod was given (`allocatedResourcesStatus`)."""

    resource_names: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    health: Annotated[tuple[Literal["Unhealthy", "Unknown"], ...], Field(min_length=1, max_length=2)] = ("Unhealthy",)


class Rule(Model):
    """One entry of the pod failure policy: what fault leads to what action."""

    name: RuleName | None = None
    action: Action
    level: RuleLevel = RuleLevel.PROCESS
    roles: Annotated[tuple[RoleName, ...], Field(max_length=8)] = ()
    on_exit_codes: OnExitCodes | None = None
    on_signals: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    on_pod_conditions: Annotated[tuple[OnPodCondition, ...], Field(max_length=20)] = ()
    on_device_health: OnDeviceHealth | None = None
    on_reasons: Annotated[tuple[OnReason, ...], Field(max_length=10)] = ()


class PodFailurePolicy(Model):
    """Rules in order: all matchers of a rule must hold, the first match wins, no match = Count."""

    rules: Annotated[tuple[Rule, ...], Field(max_length=20)] = ()


class Windowed(Model):
    """At most so many charged restarts in a sliding window."""

    type: Literal["Windowed"] = "Windowed"
    max_restarts: Annotated[int, Field(ge=0, le=200)] = 10
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600


class Unlimited(Model):
    """Restarts are counted and never run out."""

    type: Literal["Unlimited"]


Budget = Annotated[Windowed | Unlimited, Field(discriminator="type")]


class Recovery(Model):
    """Deadlines, graces and budgets of a recovery."""

    budget: Budget = Field(default_factory=Windowed)
    evidence_window_seconds: Seconds = 5
    stop_grace_period_seconds: Seconds = 15
    planned_stop_grace_period_seconds: Seconds = 120
    barrier_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 600
    pod_start_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 1800
    scheduling_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = None
    replacement_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 1800
    on_replacement_timeout: Literal["Hold", "Suspend", "Fail"] = "Hold"
    lost_pod_grace_seconds: Seconds = 30
    isolation_timeout_seconds: Annotated[int, Field(ge=10, le=31_536_000)] | None = None
    orphan_timeout_seconds: Annotated[int, Field(ge=5, le=31_536_000)] = 600
    replace_after: Annotated[int, Field(ge=1, le=100)] = 2
    avoid_node_seconds: Seconds = 3600
    on_exhausted: Literal["Fail", "Hold"] = "Fail"
    hold_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = None


class DirectorySource(Model):
    """A step is a folder; what marks it complete is the layout's."""

    type: Literal["Directory"]
    directory: Annotated[str, Field(min_length=1, max_length=1024)]
    layout: Literal["TorchDCP", "HuggingFace", "Megatron", "Orbax", "Pattern"]
    pattern: Annotated[str, Field(max_length=255)] | None = None
    complete: Annotated[str, Field(max_length=255)] | None = None


class ApiSource(Model):
    """Ranks register their checkpoints at the sidecar's API."""

    type: Literal["API"]


class Tier(Model):
    """One place that checkpoints are kept in."""

    name: TierName
    scope: Literal["Shared", "Member"]
    source: Annotated[DirectorySource | ApiSource, Field(discriminator="type")]


class Checkpoint(Model):
    """Where checkpoints are and when to fall back to an older one."""

    fallback_after: Annotated[int, Field(ge=1, le=100)] = 3
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1, max_length=4)]


class ApiProgress(Model):
    """Ranks report progress at the sidecar's API."""

    type: Literal["API"] = "API"


class LogProgress(Model):
    """A regular expression with a group `step` finds progress in the worker's output."""

    type: Literal["Log"]
    pattern: Annotated[str, Field(min_length=1, max_length=1024)]


class FileProgress(Model):
    """The modification time of a file is the progress."""

    type: Literal["File"]
    path: Annotated[str, Field(min_length=1, max_length=1024)]


class Progress(Model):
    """How progress is seen and when its absence is a hang."""

    source: Annotated[ApiProgress | LogProgress | FileProgress, Field(discriminator="type")] = Field(
        default_factory=ApiProgress
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = None
    startup_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 1800
    checkpoint_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 1800
    evaluation_timeout_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    on_hang: Literal["Observe", "Restart"] = "Observe"


class NoPlacement(Model):
    """Pods are placed as their template says."""

    strategy: Literal["None"] = "None"


class Placement(Model):
    """Pods are packed into one topology domain or spread over several."""

    strategy: Literal["Pack", "Spread"]
    mode: Literal["Preferred", "Required"] = "Preferred"
    topology_key: Annotated[str, Field(min_length=1, max_length=316)] = "kubernetes.io/hostname"


class Network(Model):
    """Where rank 0's supervisor looks for a free MASTER_PORT at each attempt."""

    base_port: Annotated[int, Field(ge=1024, le=65_000)] = 29_400
    port_count: Annotated[int, Field(ge=1, le=1024)] = 64


class Spec(Model):
    """What the user wants."""

    suspend: bool = False
    restart_token: Annotated[str, Field(max_length=253)] = ""
    roles: Annotated[tuple[Role, ...], Field(min_length=1, max_length=8)]
    success_policy: SuccessPolicy = Field(default_factory=AllRoles)
    pod_failure_policy: PodFailurePolicy = Field(default_factory=PodFailurePolicy)
    recovery: Recovery = Field(default_factory=Recovery)
    checkpoint: Checkpoint | None = None
    progress: Progress = Field(default_factory=Progress)
    placement: Annotated[NoPlacement | Placement, Field(discriminator="strategy")] = Field(default_factory=NoPlacement)
    network: Network = Field(default_factory=Network)
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    ttl_seconds_after_finished: Seconds | None = None


class Metadata(Model):
    """The part of Kubernetes' ObjectMeta that gangctl reads; the rest is kept."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$")]
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    creation_timestamp: Timestamp = 0.0
    deletion_timestamp: Timestamp | None = None


class GangJob(Model):
    """All members of a gang run together or not at all."""

    api_version: Literal["gangctl.io/v1alpha1"]
    kind: Literal["GangJob"]
    metadata: Metadata
    spec: Spec
    status: Status = Field(default_factory=Status)
