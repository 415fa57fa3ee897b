"""The policies that users write: pod failure policy and success policy.

The pod failure policy: which rule catches a fault.

The rule: rules are tried in order, all matchers of a rule must hold, the first match wins; no match means Count. A rule
must see all of a fault: 128+n matches a process that signal n ended, as users of shells expect. A line of the log never
matches by itself: it says more of an end that has happened.

The success policy: when a gang has succeeded.

The rule: it has succeeded once every member that the policy counts has finished (``facts/progress.py``), in whatever
phase that shows, whatever its teardown looked like and whatever became of its pods. The roles must be those that ran.
"""

from __future__ import annotations

from dataclasses import dataclass

from gangctl.api.gangjob import Action, OnDeviceHealth, Roles, Rule, RuleLevel, Spec
from gangctl.api.names import signal_name
from gangctl.api.reasons import Reason
from gangctl.api.roles import roles_hash
from gangctl.core.facts.evidence import Fault, default
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.printed import mask_secrets
from gangctl.core.facts.progress import finished_places
from gangctl.words import faults
from gangsidecar.wire import LOG_LINE

# The pod failure policy


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of one fault."""

    action: Action
    level: RuleLevel = RuleLevel.PROCESS
    rule: str | None = None
    """Its name, or ``rules[3]``; absent = no rule matched."""
    why: str = ""


def verdict(spec: Spec, fault: Fault) -> Verdict:
    """The first rule that matches, and what it says."""
    for at, rule in enumerate(spec.pod_failure_policy.rules):
        why = matches(spec, rule, fault)
        if why is not None:
            return Verdict(rule.action, rule.level, rule.name or f"rules[{at}]", why)
    action = default_action(fault.reason)
    if action is Action.IGNORE:
        grows, by_hand = fault.reason is Reason.GROWING, fault.reason is Reason.RESTART_REQUESTED
        return Verdict(action, why=faults.not_charged("" if by_hand or grows else str(fault.reason), grows))
    return Verdict(action, why=faults.counts())


def default_action(reason: str) -> Action:
    """What happens where no rule matches."""
    return Action.COUNT if default(reason).charged else Action.IGNORE


def matches(spec: Spec, rule: Rule, fault: Fault) -> str | None:
    """Why the rule matches the fault, in words; None if it doesn't."""
    role_name = fault.member.rpartition("-")[0]
    if rule.roles and role_name not in rule.roles:
        return None
    reasons: list[str] = []
    codes = rule.on_exit_codes
    if codes is not None:
        worker = next((role.worker.name for role in spec.roles if role.name == role_name), None)
        code = _code(fault)
        if code is None or (codes.container_name is not None and codes.container_name != worker):
            return None
        if (code in codes.values) is (codes.operator == "NotIn"):
            return None
        reasons.append(faults.code_matches(code, codes.values, codes.operator == "In"))
    if rule.on_signals:
        if fault.signal is None or signal_name(fault.signal) not in rule.on_signals:
            return None
        reasons.append(faults.signal_matches(signal_name(fault.signal)))
    if rule.on_reasons:
        if str(fault.reason) not in {str(reason) for reason in rule.on_reasons}:
            return None
        reasons.append(faults.reason_matches(str(fault.reason)))
    if rule.on_pod_conditions:
        wanted = {(condition.type, condition.status) for condition in rule.on_pod_conditions}
        seen = next((kind for kind, state, _ in fault.conditions if (kind, state) in wanted), None)
        if seen is None:
            return None
        reasons.append(faults.condition_matches(seen))
    if rule.on_device_health is not None:
        if not _is_of(rule.on_device_health, fault):
            return None
        reasons.append(faults.device_matches(fault.device, fault.health))
    if rule.on_log is not None:
        found = next((one for one in fault.lines if one.pattern == rule.on_log.pattern), None)
        if found is None:
            return None
        reasons.append(faults.log_matches(mask_secrets(found.line)[:LOG_LINE], found.pattern))
    return faults.rule_matches(reasons) if reasons else None


def _is_of(health: OnDeviceHealth, fault: Fault) -> bool:
    of_resource = not health.resource_names or fault.resource in health.resource_names
    return fault.health in health.health and of_resource


def log_patterns(spec: Spec, role: str) -> tuple[str, ...]:
    """What is searched for in the output of this role's workers, each pattern once."""
    rules = [rule for rule in spec.pod_failure_policy.rules if not rule.roles or role in rule.roles]
    return tuple(dict.fromkeys(rule.on_log.pattern for rule in rules if rule.on_log is not None))


def _code(fault: Fault) -> int | None:
    if fault.exit_code is not None:
        return fault.exit_code
    return None if fault.signal is None else 128 + fault.signal


# The success policy


def has_succeeded(gang: Gang) -> bool:
    """Whether every member that the policy counts has finished in the newest attempt that had workers."""
    policy = gang.spec.success_policy
    if not finished_places(gang):
        return False
    counting = [
        place
        for place, member in gang.places.items()
        if not isinstance(policy, Roles) or member.role.name in policy.roles
    ]
    done = bool(counting) and finished_places(gang).issuperset(counting)
    return done and roles_hash(gang.spec.roles) == gang.status.roles_hash
