"""The policies of success and failure: what counts as success, and which action each fault leads to."""

import re
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, Tag

from gangctl.api.model import Constraint, Model, Refused, RoleName, RuleName, kind
from gangctl.api.names import SIGNALS


class AllRoles(Model):
    """All processes have exited with 0."""

    type: Literal["AllRoles"] = "AllRoles"


class Roles(Model):
    """All processes of `roles` have exited with 0; the other roles are then stopped."""

    type: Literal["Roles"]
    roles: Annotated[tuple[RoleName, ...], Field(min_length=1, max_length=8)]
    """Roles that must succeed."""


class NeverSucceeds(Model):
    """The gang runs until it is deleted; an exit with 0 is a fault."""

    type: Literal["Never"]


SuccessPolicy = Annotated[
    Annotated[AllRoles, Tag("AllRoles")] | Annotated[Roles, Tag("Roles")] | Annotated[NeverSucceeds, Tag("Never")],
    kind("type", "AllRoles"),
]


class Action(StrEnum):
    """What a rule does about the fault that it matches."""

    FAIL_JOB = "FailJob"
    """The gang fails without another attempt."""
    IGNORE = "Ignore"
    """The gang recovers, and the budget isn't charged."""
    COUNT = "Count"
    """The gang recovers, and the budget is charged."""


class RuleLevel(StrEnum):
    """The minimum level of the restart when a rule matches."""

    PROCESS = "Process"
    POD = "Pod"
    GANG = "Gang"


class OnReason(StrEnum):
    """Values of `onReasons`: faults that are neither an exit code nor a signal."""

    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    STORAGE_EXCEEDED = "StorageExceeded"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    NODE_UNHEALTHY = "NodeUnhealthy"
    NODE_DRAINED = "NodeDrained"
    DEVICE_LOST = "DeviceLost"
    DEVICE_TAINTED = "DeviceTainted"
    START_FAILED = "StartFailed"
    DEVICE_DEGRADED = "DeviceDegraded"
    HANG = "Hang"
    REQUESTED = "Requested"
    CORRUPTION = "Corruption"
    CHECK_FAILED = "CheckFailed"


def _is_signal(name: str) -> str:
    if name not in SIGNALS:
        raise ValueError("not the name of a signal of Linux")
    return name


SignalName = Annotated[str, AfterValidator(_is_signal), Field(json_schema_extra={"enum": list(SIGNALS)})]


class OnExitCodes(Model):
    """Matches the exit code of a worker process. The value 128+n also matches a process that signal n ended."""

    constraints = (
        Constraint(
            "with operator In, values must not contain 0, because 0 is no failure (as in a Job)",
            lambda codes: codes.operator != "In" or 0 not in codes.values,
            "self.operator != 'In' || !(0 in self.values)",
            ("values", "operator"),
        ),
        Constraint(
            "the values must be sorted and without duplicates (as in a Job)",
            lambda codes: codes.values == tuple(sorted(set(codes.values))),
            "self.values.isSorted()",
            ("values",),
        ),
    )

    container_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Container. Only the worker container can match. If absent, the worker container."""
    operator: Literal["In", "NotIn"]
    """In: the exit code is one of the values. NotIn: it isn't."""
    values: Annotated[
        tuple[Annotated[int, Field(ge=0, le=255)], ...],
        Field(min_length=1, max_length=255, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Exit codes."""


class OnPodCondition(Model):
    """Matches a pod condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Type of the condition, such as DisruptionTarget."""
    status: Literal["True", "False", "Unknown"] = "True"
    """Status of the condition."""


class OnDeviceHealth(Model):
    """Matches the health of a device of the pod (`allocatedResourcesStatus`)."""

    resource_names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=316)], ...], Field(max_length=16)
    ] = ()
    """Resources such as nvidia.com/gpu, or claim:NAME/REQUEST (claim:NAME without a request) for devices of a resource
    claim. If empty, all."""
    health: Annotated[tuple[Literal["Unhealthy", "Unknown"], ...], Field(min_length=1, max_length=2)] = ("Unhealthy",)
    """Health that matches. Unknown: the device plugin or DRA driver does not respond or reports no health."""


MAX_RULES: Final = 20
MAX_LOG_RULES: Final = 8


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


class OnLog(Model):
    """Matches a line that the worker has printed in the attempt, when one of its processes ends."""

    constraints = (
        Constraint(
            r"the pattern must be a Python regular expression, such as NVRM: Xid .*: (48|79)\b",
            lambda log: _compiles(log.pattern),
            "",
            ("pattern",),
            only_submitted=True,
        ),
    )

    pattern: Annotated[str, Field(min_length=1, max_length=256)]
    """Python regular expression, searched in the first 4096 bytes of each line of the pod's standard output and
    standard error. A carriage return also ends a line."""


_MATCHERS = "a rule needs at least one of onExitCodes, onSignals, onPodConditions, onDeviceHealth, onReasons, onLog"


class Rule(Model):
    """One rule. All of its matchers must match."""

    constraints = (
        Constraint(
            f"{_MATCHERS}, because it would never match without",
            lambda rule: bool(
                rule.on_exit_codes
                or rule.on_signals
                or rule.on_pod_conditions
                or rule.on_device_health
                or rule.on_reasons
                or rule.on_log
            ),
            "has(self.onExitCodes) || has(self.onDeviceHealth) || has(self.onLog) || size(self.onSignals) > 0 || "
            "size(self.onPodConditions) > 0 || size(self.onReasons) > 0",
            ("", "onExitCodes", "onSignals", "onPodConditions", "onDeviceHealth", "onReasons", "onLog"),
        ),
    )

    name: RuleName | None = None
    """Name in incidents, events and spans. If absent, the rule's index, such as rules[3]."""
    action: Annotated[
        Action,
        Refused(
            {
                "FailIndex": "the members of a gang run together or not at all, so no index can fail alone; "
                "use FailJob to end the gang, or level Pod to replace the pod of the member"
            }
        ),
    ]
    """FailJob: the gang fails. Ignore: it recovers, and the budget isn't charged. Count: it recovers, and the budget is
    charged."""
    level: RuleLevel = RuleLevel.PROCESS
    """Minimum level of the restart; repeated faults raise it. Process: workers restart in their pods. Pod: the pod of
    the member at fault is also replaced. Gang: all pods are replaced."""
    roles: Annotated[tuple[RoleName, ...], Field(max_length=8)] = ()
    """Roles that the rule applies to. If empty, all."""
    on_exit_codes: OnExitCodes | None = None
    """Matches the exit code of a worker process, as in a Job. 128+n also matches an end by signal n."""
    on_signals: Annotated[tuple[SignalName, ...], Field(max_length=31)] = ()
    """Matches the signal that ended a worker process, unless gangctl sent it."""
    on_pod_conditions: Annotated[tuple[OnPodCondition, ...], Field(max_length=20)] = ()
    """Matches a condition of the pod at fault, as in a Job."""
    on_device_health: OnDeviceHealth | None = None
    """Matches the health of a device of the pod at fault."""
    on_reasons: Annotated[tuple[OnReason, ...], Field(max_length=16)] = ()
    """Matches the reason of a fault that is neither an exit code nor a signal. DeviceDegraded is a fault only for such
    a rule: the slow rank's pod is replaced once, after a last checkpoint."""
    on_log: OnLog | None = None
    """Matches the end of a worker process if a line of its pod's output in this attempt matches. Sets
    PYTHONUNBUFFERED=1 unless the worker sets it; gangclient.run then keeps no process. A change applies from the next
    attempt."""


class PodFailurePolicy(Model):
    """Ordered rules. The first rule that matches decides; if no rule matches, the fault is counted."""

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
        Constraint(
            f"at most {MAX_LOG_RULES} rules may have onLog, because each pattern is searched in each line",
            lambda policy: sum(one.on_log is not None for one in policy.rules) <= MAX_LOG_RULES,
            f"!has(self.rules) || self.rules.filter(r, has(r.onLog)).size() <= {MAX_LOG_RULES}",
            ("rules",),
        ),
    )

    rules: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] = ()
    """The first rule whose matchers all match decides. If none does, the default for the reason applies (`gangctl
    classify --explain-defaults`). The rules of a Job can be used."""
