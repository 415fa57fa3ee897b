"""What another rule of the failure policy would have done about an incident: a dry run, as `gangctl classify` makes it.

The rule: a rule that matches exactly this cause is put before the others, and the policy is asked with the controller's
own functions. What would have come to the same is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Cause, Incident, IncidentLevel
from gangctl.api.policy import Action, OnReason, PodFailurePolicy, Rule
from gangctl.api.reasons import Reason
from gangctl.api.signals import SIGNALS
from gangctl.core.facts.evidence import Fault
from gangctl.explain.judging import judge
from gangsidecar.wire import Level

_OTHERS: Final[tuple[dict[str, str], ...]] = (
    {"action": "Count", "level": "Process"},
    {"action": "Count", "level": "Pod"},
    {"action": "Ignore", "level": "Process"},
    {"action": "FailJob"},
)
_MOST_BEFORE: Final = 19
"""A policy has at most 20 rules."""
_REASONS: Final = frozenset(Reason)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another rule, and what it would have done."""

    rule: str
    """In one line of YAML, for podFailurePolicy.rules."""
    action: str
    level: str
    charged: bool
    outcome: str


def alternatives(job: GangJob, incident: Incident) -> tuple[Alternative, ...]:
    """What other rules would have done about the incident's cause; none if no rule can match it."""
    cause = incident.cause
    matcher = _matcher(cause)
    if matcher is None or cause.reason not in _REASONS or not incident.settled:
        return ()
    fault = _fault(cause)
    happened = (cause.action or Action.COUNT, incident.level)
    return tuple(_tried(job, fault, matcher, happened))


def _tried(
    job: GangJob, fault: Fault, matcher: dict[str, Any], happened: tuple[Action, IncidentLevel]
) -> Iterator[Alternative]:
    before, seen = job.spec.pod_failure_policy.rules, {happened}
    for other in _OTHERS:
        written = {**other, **matcher}
        policy = PodFailurePolicy(rules=(Rule.model_validate(written), *before[:_MOST_BEFORE]))
        spec = changed(job.spec, pod_failure_policy=policy)
        said, level = judge(changed(job, spec=spec), fault)
        if (said.action, level) in seen:
            continue
        seen.add((said.action, level))
        yield Alternative(
            json.dumps(written).replace('"', ""),
            str(said.action),
            str(level),
            said.action is Action.COUNT,
            _outcome(said.action, level, fault.member, job.spec.recovery.evidence_window_seconds),
        )


def _outcome(action: Action, level: IncidentLevel, member: str, window: int) -> str:
    if action is Action.FAIL_JOB:
        return f"the gang would have failed{f', {window} s later if no stronger evidence came' if window else ''}"
    charged = "charged" if action is Action.COUNT else "not charged"
    match level:
        case IncidentLevel.GANG:
            return f"every pod would have been replaced, {charged}"
        case IncidentLevel.POD:
            return f"the pod of {member or 'the member'} would have been replaced, {charged}"
        case _:
            return f"every worker would have restarted inside its pod, {charged}"


def _matcher(cause: Cause) -> dict[str, Any] | None:
    """A matcher for exactly this cause."""
    if cause.reason in set(OnReason):
        return {"onReasons": [cause.reason]}
    if cause.exit_code:
        return {"onExitCodes": {"operator": "In", "values": [cause.exit_code]}}
    if cause.signal in SIGNALS:
        return {"onSignals": [cause.signal]}
    return None


def _fault(cause: Cause) -> Fault:
    """The fault that became this cause."""
    return Fault(
        Reason(cause.reason),
        cause.member,
        cause.time,
        incarnation=cause.incarnation,
        rank=cause.rank,
        exit_code=cause.exit_code,
        signal=None if cause.signal is None else SIGNALS.get(cause.signal),
        device=cause.device,
        node=cause.node,
        level=Level.CONTAINER if cause.level is IncidentLevel.CONTAINER else Level.PROCESS,
        message=cause.message,
    )
