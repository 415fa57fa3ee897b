"""From a new status to a plan: what every decision that changes something has in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Unpack

from gangctl.api.changes import StatusChanges, changed, in_phase
from gangctl.api.events import is_warning
from gangctl.api.model import sentence
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, RoleStatus, Status
from gangctl.core.facts.gang import Gang, holders
from gangctl.core.facts.trace_context import trace_of
from gangctl.core.lifecycle.plan import Action, Event, EventType, Plan
from gangctl.core.policy import admission, pods
from gangctl.core.policy.success import has_finished
from gangctl.core.record.conditions import conditions
from gangctl.core.record.degraded import degraded
from gangctl.core.record.incidents import told_of


def moved(
    gang: Gang, status: Status, phase: GangPhase, attempt: int | None = None, **changes: Unpack[StatusChanges]
) -> Status:
    """The status in another phase, from now on."""
    return in_phase(status, phase, gang.now, status.attempt if attempt is None else attempt, **changes)


def write(
    gang: Gang,
    status: Status,
    reason: Reason,
    because: str,
    *,
    extra: Iterable[Action] = (),
    events: Iterable[Event] = (),
    create: bool = True,
    requeue_after: float | None = None,
) -> Plan:
    """The plan that stores ``status``, says why, and brings the pods to it."""
    because = sentence(because)
    refused = admission.refusal(gang, status)
    if refused and status.phase is GangPhase.PENDING and not admission.creates(gang, status):
        reason, because = Reason.TEMPLATE_REFUSED, refused
    status = summarised(gang, changed(status, message=because))
    generation = gang.job.metadata.generation
    warned = degraded(gang, None) if status.phase is GangPhase.RUNNING else None
    told = conditions(gang.job, status, gang.now, reason, warned, refused=refused)
    status = changed(status, conditions=told, observed_generation=generation)
    event = Event(EventType.WARNING if is_warning(reason) else EventType.NORMAL, reason, because)
    trace = _trace(gang, status)
    return Plan(
        because=because,
        status=status,
        actions=(*pods.actions(gang, status, create=create), *extra),
        events=tuple(replace(one, trace_id=one.trace_id or trace) for one in (event, *events)),
        requeue_after=requeue_after,
    )


def _trace(gang: Gang, status: Status) -> str:
    """The trace of the incident that this write opens, settles or finds open; empty if there is none."""
    incident = told_of(status)
    before = gang.status.incidents[0] if gang.status.incidents else None
    if incident is None or (before is not None and before.attempt == incident.attempt and before.settled):
        return ""
    return trace_of(gang.job, incident)


def wait(gang: Gang, because: str, times: Iterable[float | None], actions: Iterable[Action] = ()) -> Plan:
    """The plan that changes nothing durable, and looks again at the first of ``times``."""
    known = [time for time in times if time is not None]
    after = max(0.05, min(known) - gang.now) if known else None
    return Plan(because=sentence(because), actions=tuple(actions), requeue_after=after)


def summarised(gang: Gang, status: Status) -> Status:
    """The status with the counts for people brought up to date."""
    ready: Counter[str] = Counter()
    done: Counter[str] = Counter()
    held = holders(gang.spec, status)
    for place, member in gang.places.items():
        ready[member.role.name] += gang.connected(held[place])
        done[member.role.name] += has_finished(gang, place)
    roles = tuple(
        RoleStatus(name=role.name, desired=role.replicas, ready=ready[role.name], succeeded=done[role.name])
        for role in gang.spec.roles
    )
    total = sum(role.replicas for role in gang.spec.roles)
    return changed(status, roles=roles, ready=f"{sum(ready.values())}/{total}", observed_time=gang.now)
