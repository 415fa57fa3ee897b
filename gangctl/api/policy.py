"""What counts as success, and which fault leads to what action."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag

from gangctl.api.model import Constraint, Model, Refused, RoleName, RuleName, kind
from gangctl.api.signals import SIGNALS


class AllRoles(Model):
    """Every process of every role has ended with 0."""

    type: Literal["AllRoles"] = "AllRoles"


class Roles(Model):
    """Every process of the roles named in `roles` has ended with 0; the rest is stopped then."""

    type: Literal["Roles"]
    roles: Annotated[tuple[RoleName, ...], Field(min_length=1, max_length=8)]
    """Names of the roles whose end is the gang's success: from 1 to 8."""


class NeverSucceeds(Model):
    """The gang serves until it is deleted; an exit with 0 is a fault like any other."""

    type: Literal["Never"]


SuccessPolicy = Annotated[
    Annotated[AllRoles, Tag("AllRoles")] | Annotated[Roles, Tag("Roles")] | Annotated[NeverSucceeds, Tag("Never")],
    kind("type", "AllRoles"),
]


class Action(StrEnum):
    """What a rule does with the fault it matches."""

    FAIL_JOB = "FailJob"
    """The gang fails, without another attempt."""
    IGNORE = "Ignore"
    """The gang recovers, and the budget isn't charged."""
    COUNT = "Count"
    """The gang recovers, and the budget is charged."""


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


def _is_signal(name: str) -> str:
    if name not in SIGNALS:
        raise ValueError("not the name of a signal of Linux")
    return name


SignalName = Annotated[str, AfterValidator(_is_signal), Field(json_schema_extra={"enum": list(SIGNALS)})]


class OnExitCodes(Model):
    """Matches the exit code of a worker's process; 128+n matches a process ended by signal n as well."""

    constraints = (
        Constraint(
            "with operator In the values may not contain 0, which is no failure (as in a Job)",
            lambda codes: codes.operator != "In" or 0 not in codes.values,
            "self.operator != 'In' || !(0 in self.values)",
            ("values", "operator"),
        ),
        Constraint(
            "the values must be sorted and each stand there once (as in a Job)",
            lambda codes: codes.values == tuple(sorted(set(codes.values))),
            "self.values.isSorted()",
            ("values",),
        ),
    )

    container_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The rule matches only if this is the role's worker container. Absent (the default) = whatever its name is.
    Other containers' exit codes are not looked at."""
    operator: Literal["In", "NotIn"]
    """In: the exit code is one of the values. NotIn: it is none of them."""
    values: Annotated[
        tuple[Annotated[int, Field(ge=0, le=255)], ...],
        Field(min_length=1, max_length=255, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Exit codes from 0 to 255, sorted and each once, at most 255 of them; no 0 with In."""


class OnPodCondition(Model):
    """Matches a condition of the pod."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Type of the condition, such as DisruptionTarget."""
    status: Literal["True", "False", "Unknown"] = "True"
    """Status that the condition must have."""


class OnDeviceHealth(Model):
    """Matches the health of a device that the pod was given (`allocatedResourcesStatus`)."""

    resource_names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=316)], ...], Field(max_length=16)
    ] = ()
    """Resources whose devices are looked at, such as nvidia.com/gpu: at most 16. Empty = all."""
    health: Annotated[tuple[Literal["Unhealthy", "Unknown"], ...], Field(min_length=1, max_length=2)] = ("Unhealthy",)
    """Which health matches. Unknown only says that the device's plugin is silent, which often passes by itself."""


_MATCHERS = "a rule needs at least one of onExitCodes, onSignals, onPodConditions, onDeviceHealth, onReasons"


class Rule(Model):
    """One entry of the policy. All matchers of it must hold."""

    constraints = (
        Constraint(
            f"{_MATCHERS}: without any it would never match",
            lambda rule: bool(
                rule.on_exit_codes
                or rule.on_signals
                or rule.on_pod_conditions
                or rule.on_device_health
                or rule.on_reasons
            ),
            "has(self.onExitCodes) || has(self.onDeviceHealth) || size(self.onSignals) > 0 || "
            "size(self.onPodConditions) > 0 || size(self.onReasons) > 0",
            ("", "onExitCodes", "onSignals", "onPodConditions", "onDeviceHealth", "onReasons"),
        ),
    )

    name: RuleName | None = None
    """Name of the rule, shown in incidents, events and spans wherever it acts. Absent = it is shown by its place,
    as rules[3]."""
    action: Annotated[
        Action,
        Refused(
            {
                "FailIndex": "the members of a gang run together or not at all, so no index can fail alone; "
                "use FailJob to end the gang, or level Pod to replace the member's pod"
            }
        ),
    ]
    """What the fault leads to. FailJob: the gang fails. Ignore: it recovers and the budget isn't charged. Count: it
    recovers and the budget is charged. A Job's FailIndex is refused."""
    level: RuleLevel = RuleLevel.PROCESS
    """The least that is thrown away. Process: all workers start again inside their pods. Pod: the pod of the member at
    fault is replaced as well. Gang: all pods are. Repeated faults raise it by themselves."""
    roles: Annotated[tuple[RoleName, ...], Field(max_length=8)] = ()
    """The rule looks only at faults of members of these roles: at most 8. Empty = all roles."""
    on_exit_codes: OnExitCodes | None = None
    """Matches the exit code of a worker's process. Written as in a Job; 128+n matches a process that signal n ended
    as well."""
    on_signals: Annotated[tuple[SignalName, ...], Field(max_length=31)] = ()
    """Matches the signal that ended a worker's process, by Linux' names: SIGKILL, SIGSEGV, SIGBUS and so on. Signals
    that gangctl itself sent never match."""
    on_pod_conditions: Annotated[tuple[OnPodCondition, ...], Field(max_length=20)] = ()
    """Matches a condition of the pod of the member at fault: one of these, at most 20. Written as in a Job."""
    on_device_health: OnDeviceHealth | None = None
    """Matches the health of a device of the pod."""
    on_reasons: Annotated[tuple[OnReason, ...], Field(max_length=10)] = ()
    """Matches what is neither an exit code nor a signal, by the reason that the incident shows."""


class PodFailurePolicy(Model):
    """Rules in order. The first one that matches wins; if none does, the fault is counted."""

    constraints = (
        Constraint(
            "two rules have the same name",
            lambda policy: (
                len({one.name for one in policy.rules if one.name}) == len([one for one in policy.rules if one.name])
            ),
            "!has(self.rules) || self.rules.all(r, !has(r.name) || "
            "self.rules.exists_one(o, has(o.name) && o.name == r.name))",
            ("rules",),
        ),
    )

    rules: Annotated[tuple[Rule, ...], Field(max_length=20)] = ()
    """The rules, at most 20. All matchers of a rule must hold; the first rule that matches wins; no match = Count
    (disruptions such as a preemption are not charged then either). A Job's rules can be pasted here."""
