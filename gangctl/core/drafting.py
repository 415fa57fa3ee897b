"""From a new status to a plan: what every decision that changes something has in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, RoleStatus, Status
from gangctl.core import acceptance, pods
from gangctl.core.conditions import conditions
from gangctl.core.degraded import degraded
from gangctl.core.gang import Gang, holders
from gangctl.core.plan import Action, Event, EventType, Plan
from gangctl.core.success import has_finished

LONGEST: Final = 1024
"""Characters of a message: an API server refuses a status with a longer one."""
_WARNINGS = frozenset(
    {
        Reason.RESTARTING,
        Reason.HELD,
        Reason.HANG,
        Reason.NO_RESTORE_POINT,
        Reason.GANG_RECREATED,
        Reason.TEMPLATE_REFUSED,
        Reason.REPLACEMENT_TIMEOUT,
    }
)


def moved(gang: Gang, status: Status, phase: GangPhase, **update: Any) -> Status:
    """The status in another phase, from now on."""
    return status.model_copy(update={"phase": phase, "phase_time": gang.now, **update})


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
    because = because if len(because) <= LONGEST else f"{because[: LONGEST - 1]}…"
    refused = acceptance.refusal(gang, status)
    if refused and status.phase is GangPhase.PENDING and not acceptance.creates(gang, status):
        reason, because = Reason.TEMPLATE_REFUSED, refused
    status = summarised(gang, status.model_copy(update={"message": because}))
    generation = gang.job.metadata.generation
    warned = degraded(gang, None) if status.phase is GangPhase.RUNNING else None
    told = conditions(status, generation, gang.now, reason, warned, refused=refused)
    status = status.model_copy(update={"conditions": told, "observed_generation": generation})
    bad = status.phase is GangPhase.FAILED or reason in _WARNINGS
    event = Event(EventType.WARNING if bad else EventType.NORMAL, reason, because)
    return Plan(
        because=because,
        status=status,
        actions=(*pods.actions(gang, status, create=create), *extra),
        events=(event, *events),
        requeue_after=requeue_after,
    )


def wait(gang: Gang, because: str, times: Iterable[float | None], actions: Iterable[Action] = ()) -> Plan:
    """The plan that changes nothing durable, and looks again at the first of ``times``."""
    known = [time for time in times if time is not None]
    after = max(0.05, min(known) - gang.now) if known else None
    return Plan(because=because, actions=tuple(actions), requeue_after=after)


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
    return status.model_copy(
        update={"roles": roles, "ready": f"{sum(ready.values())}/{total}", "observed_time": gang.now}
    )
