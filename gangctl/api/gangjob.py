"""The GangJob: the fields that a user writes in ``spec``, and which of them have no effect in local mode."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from gangctl.api.model import Constraint, Model, RoleName, RuleName, Seconds, TierName, Timestamp, unique_names
from gangctl.api.names import (
    API_VERSION,
    GROUP,
    KIND,
    MAX_GANG_NAME,
    MAX_MEMBERS,
    MAX_POD_NAME,
    VERSION,
    longest_pod_name,
)
from gangctl.api.policy import (
    Action,
    AllRoles,
    NeverSucceeds,
    OnDeviceHealth,
    OnExitCodes,
    OnLog,
    OnPodCondition,
    OnReason,
    PodFailurePolicy,
    Roles,
    Rule,
    RuleLevel,
    SuccessPolicy,
)
from gangctl.api.recovery import (
    ApiProgress,
    ApiSource,
    Budget,
    BuiltinCheck,
    CheckpointSpec,
    CheckSpec,
    DirectorySource,
    FileProgress,
    LogProgress,
    ProgressSpec,
    Recovery,
    RestartFrom,
    Tier,
    Unlimited,
    Windowed,
)
from gangctl.api.roles import Container, Launch, PodSpec, Role, Template
from gangctl.api.scheduling import (
    GangScheduling,
    Network,
    NoGangScheduling,
    NoPlacement,
    Placement,
    PlacementPolicy,
    PodGroupScheduling,
    ReplicaGroup,
    Rolling,
)
from gangctl.api.status import Status


def _torchrun_groups_agree(spec: Spec) -> bool:
    by_group = attrgetter("group")
    for _, members in groupby(sorted(spec.roles, key=by_group), key=by_group):
        roles = list(members)
        if any(role.launch is Launch.TORCHRUN for role in roles):
            first = roles[0]
            if any((one.launch, one.processes_per_pod) != (first.launch, first.processes_per_pod) for one in roles):
                return False
    return True


def _depend_on_earlier(spec: Spec) -> bool:
    names = [role.name for role in spec.roles]
    return all({one.name for one in role.depends_on} <= set(names[:at]) for at, role in enumerate(spec.roles))


def _can_reshard(spec: Spec) -> bool:
    shared = [one for one in (spec.checkpoint.tiers if spec.checkpoint else ()) if one.scope == "Shared"]
    is_elastic = any(role.min_replicas is not None for role in spec.roles)
    return not is_elastic or (bool(shared) and all(one.reshardable for one in shared))


_EACH = [*range(8)]
"""The places of roles."""
_GROUP_OF = "(has({0}.processGroup) ? {0}.processGroup : {0}.name)"


class Spec(Model):
    """Desired state of the gang. Every field except roles has a default."""

    constraints = (
        unique_names("roles"),
        Constraint(
            f"all roles together may have at most {MAX_MEMBERS} members, spares included",
            lambda spec: sum(role.replicas + role.spares for role in spec.roles) <= MAX_MEMBERS,
            f"self.roles.map(r, r.replicas + r.spares).sum() <= {MAX_MEMBERS}",
            ("roles",),
        ),
        Constraint(
            "all roles of a process group must have launch Torchrun if one has, with the same processesPerPod, "
            "because torchrun has one number of processes for all nodes",
            _torchrun_groups_agree,
            f"self.roles.all(a, a.launch != 'Torchrun' || self.roles.all(b, {_GROUP_OF.format('a')} != "
            f"{_GROUP_OF.format('b')} || (b.launch == 'Torchrun' && b.processesPerPod == a.processesPerPod)))",
            ("roles",),
        ),
        Constraint(
            "dependsOn must name roles that come before in spec.roles, so that no two wait for each other",
            _depend_on_earlier,
            f"{_EACH}.all(i, i >= size(self.roles) || !has(self.roles[i].dependsOn) || "
            f"self.roles[i].dependsOn.all(d, {_EACH}.exists(j, j < i && self.roles[j].name == d.name)))",
            ("roles",),
        ),
        Constraint(
            "successPolicy.roles must name roles of this gang",
            lambda spec: (
                not isinstance(spec.success_policy, Roles)
                or set(spec.success_policy.roles) <= {role.name for role in spec.roles}
            ),
            "!has(self.successPolicy.roles) || self.successPolicy.roles.all(n, self.roles.exists(r, r.name == n))",
            ("successPolicy.roles", "roles"),
        ),
        Constraint(
            "the roles of a rule must name roles of this gang",
            lambda spec: all(
                set(rule.roles) <= {role.name for role in spec.roles} for rule in spec.pod_failure_policy.rules
            ),
            "self.podFailurePolicy.rules.all(p, p.roles.all(n, self.roles.exists(r, r.name == n)))",
            ("podFailurePolicy.rules", "roles"),
        ),
        Constraint(
            "minReplicas needs a checkpoint tier with scope Shared, and reshardable: true on each of these, because "
            "another number of ranks must be able to load what was saved, as with torch.distributed.checkpoint, Orbax "
            "or a single file",
            _can_reshard,
            "self.roles.all(r, !has(r.minReplicas)) || (has(self.checkpoint) && self.checkpoint.tiers.exists(t, "
            "t.scope == 'Shared') && self.checkpoint.tiers.all(t, t.scope != 'Shared' || t.reshardable))",
            ("roles", "checkpoint.tiers"),
        ),
        Constraint(
            "restartFrom type Step needs checkpoint, because the step is looked for in its tiers",
            lambda spec: spec.restart_from.type != "Step" or spec.checkpoint is not None,
            "self.restartFrom.type != 'Step' || has(self.checkpoint)",
            ("restartFrom.type", "checkpoint"),
        ),
        Constraint(
            "gangScheduling type PodGroup takes spares or minReplicas only in a gang with one role, because a PodGroup "
            "counts pods, and a pod of one role can't stand in for a member of another",
            lambda spec: (
                spec.gang_scheduling.type != "PodGroup"
                or len(spec.roles) == 1
                or not any(role.spares or role.min_replicas for role in spec.roles)
            ),
            "self.gangScheduling.type != 'PodGroup' || self.roles.size() == 1 || "
            "self.roles.all(r, r.spares == 0 && !has(r.minReplicas))",
            ("gangScheduling.type", "roles"),
        ),
        Constraint(
            "rolling needs replicaGroup, because that names the gangs that take turns",
            lambda spec: spec.rolling is None or spec.replica_group is not None,
            "!has(self.rolling) || has(self.replicaGroup)",
            ("rolling", "replicaGroup"),
        ),
    )
    suspend: bool = False
    """If true, the pods are deleted; attempt and restore point are kept. Setting it back to false starts an uncharged
    attempt. Kueue does not change it. Roles can change only while it is true."""
    restart_token: Annotated[str, Field(max_length=253)] = ""
    """Any text. A change starts an uncharged attempt or releases a held gang. With `rolling`, it waits for its turn."""
    restart_from: RestartFrom = Field(default_factory=RestartFrom)
    """Restore point of a requested restart. `gangctl restart --from-step` and `--from-beginning` set it."""
    replica_group: ReplicaGroup | None = None
    """Links gangs that are replicas of one model, each with its own attempts, faults and budget. If absent, the gang
    stands alone."""
    rolling: Rolling | None = None
    """Makes the gangs of the replicaGroup take turns at restarts by restartToken. If absent, no restart waits."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1, max_length=8)]
    """Groups of equal members. Ranks follow their order."""
    success_policy: SuccessPolicy = Field(default_factory=AllRoles)
    """When the gang has succeeded. Processes that gangctl stopped do not count."""
    pod_failure_policy: PodFailurePolicy = Field(default_factory=PodFailurePolicy)
    """Which fault leads to which action, as in a Job's podFailurePolicy."""
    recovery: Recovery = Field(default_factory=Recovery)
    """Deadlines, grace periods and the restart budget."""
    checkpoint: CheckpointSpec | None = None
    """Where checkpoints are stored. If absent, the framework alone manages them."""
    progress: ProgressSpec = Field(default_factory=ProgressSpec)
    """How progress is measured, and when a gang counts as hung."""
    placement: PlacementPolicy = Field(default_factory=NoPlacement)
    """Whether pods are packed or spread, in addition to the template. No effect in local mode."""
    gang_scheduling: GangScheduling = Field(default_factory=NoGangScheduling)
    """Whether required members are scheduled together or not at all. Immutable. No effect in local mode."""
    network: Network = Field(default_factory=Network)
    """Ports for the rendezvous."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Seconds after its start after which the gang fails, without suspended time, as in a Job. If absent, there is no
    limit."""
    ttl_seconds_after_finished: Seconds | None = None
    """Seconds after its end after which the gang is deleted, as in a Job. If absent, it is kept."""


class Metadata(Model):
    """The part of the Kubernetes ObjectMeta that gangctl reads; all other fields are kept."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(pattern=rf"^[a-z0-9]([-a-z0-9]{{0,{MAX_GANG_NAME - 2}}}[a-z0-9])?$")]
    """Name of the gang: at most 42 lower-case letters, digits and dashes, because it is the prefix of pod names."""
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"
    """Namespace of the gang."""
    uid: str = ""
    """Assigned by the API server."""
    generation: int = 1
    """Incremented by the API server with each change of the spec."""
    resource_version: str = ""
    """For optimistic locking."""
    creation_timestamp: Timestamp = 0.0
    """Time at which the gang was created."""
    deletion_timestamp: Timestamp | None = None
    """Time at which deletion was requested; absent if it was not."""


def controllers(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Kind and name of the object that the GangJob was made from, if any."""
    return [(one["kind"], one["name"]) for one in metadata.get("ownerReferences") or () if one.get("controller")]


class GangJob(Model):
    """A gang of pods that run together or not at all.

    If one of them fails, all workers restart together from a checkpoint, inside the pods that are still healthy.
    """

    constraints = (
        Constraint(
            f"metadata.name must have at most {MAX_GANG_NAME} characters and no dots, "
            "because it is the prefix of pod names",
            lambda job: len(job.metadata.name) <= MAX_GANG_NAME and "." not in job.metadata.name,
            f"size(self.metadata.name) <= {MAX_GANG_NAME} && !self.metadata.name.contains('.')",
            ("metadata.name",),
        ),
        Constraint(
            f"metadata.name and the name of the role are too long together: a pod name "
            f"(GANG-ROLE-INDEX-INCARNATION, with five digits at the end) has at most {MAX_POD_NAME} characters",
            lambda job: all(
                longest_pod_name(job.metadata.name, role.name, role.replicas + role.spares) <= MAX_POD_NAME
                for role in job.spec.roles
            ),
            "self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + "
            f"size(string(r.replicas + r.spares - 1)) + 8 <= {MAX_POD_NAME})",
            ("metadata.name", "spec.roles"),
        ),
    )

    model_config = ConfigDict(defer_build=False)  # built here, not by whichever thread validates first
    api_version: Literal["gangctl.io/v1alpha1"]
    """API version of this schema."""
    kind: Literal["GangJob"]
    """Kind of this object."""
    metadata: Metadata
    """Standard Kubernetes metadata."""
    spec: Spec
    """Desired state of the gang."""
    status: Status = Field(default_factory=Status)
    """Observed state of the gang. Only the controller writes it."""


# Fields that have no effect in local mode: the only list of them.
#
# The sentences are appended to the descriptions of the fields, in the CRD and in the reference. Nothing may be added (a
# test checks this): a field without effect must not get into the API any more.


NOT_IN_LOCAL_MODE: Final = MappingProxyType(
    {
        "spec.podFailurePolicy.rules[].onPodConditions": "No effect in local mode.",
        "spec.podFailurePolicy.rules[].onDeviceHealth": "No effect in local mode.",
        "spec.recovery.schedulingTimeoutSeconds": "No effect in local mode.",
        "spec.ttlSecondsAfterFinished": "No effect in local mode.",
        "spec.recovery.avoidNodeSeconds": "No effect in local mode.",
    }
)
"""Path of a field to what its description says about local mode."""


def caveats(path: str) -> tuple[str, ...]:
    """The sentences to append to the description of the field at ``path``, such as ``spec.roles[].name``."""
    return (NOT_IN_LOCAL_MODE[path],) if path in NOT_IN_LOCAL_MODE else ()
