"""Requests: restarts that a user asks for, and what the gangs of a replica group need to know of each other.

Requests: a restart that a user asks for, and the restore point that it names.

The rule: each change of ``restartToken`` is a restart. ``restartFrom`` counts for the token that it names, the first
time that this token comes, and for the one attempt that the token leads to; the status keeps it until that attempt has
started. A request that is left in the spec must not be repeated by a later restart, nor by a token that comes back, as
when a manifest is applied again: it would throw away training unasked.

Groups: the first attempt of a gang, also the first after a suspension, waits until minCount gangs of its group have
started or have all their pods. Later ones never wait, so a fault stops one replica alone.

Rolling: planned restarts of gangs that are replicas of one service go in turn.

    waits(g)  = restartToken has changed, g may serve, and at least maxUnavailable others of its group are unavailable
    may serve = its attempt runs and each required pod is ready, however short a time

Only a restart by hand waits. Faults, drains and evictions never do, nor a suspension: they count as unavailable. A gang
that doesn't serve anyway restarts at once, so gangs never all wait for each other. One that never gets ready again
stops the others' restarts, which is what maxUnavailable is for: the condition Degraded says so.

What must not happen: a planned restart begins while maxUnavailable other gangs of the group are unavailable.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.model import changed
from gangctl.api.status import GangPhase, RequestedStep, Status
from gangctl.core.facts.gang import (
    Gang,
    asks_for_restart,
    clamp_times,
    has_started,
    may_start_since,
    once,
    waiting_roles,
)
from gangctl.core.facts.progress import finished_places
from gangctl.core.facts.world import Observed, Pod, Replica
from gangctl.core.policy import size
from gangctl.words.decisions import from_newest_step, from_step
from gangctl.words.message import Message
from gangctl.words.waits import group_awaited, replica, turn_awaited, turn_overdue

# Requests


MAX_TOKENS: Final = 16
"""So many tokens whose ``restartFrom`` was taken."""


def take_request(spec: Spec, status: Status) -> Status:
    """The status that has taken the request, if there is a new one."""
    if not asks_for_restart(spec, status):
        return status
    token, known, wanted = spec.restart_token, status.restart_from_tokens, None
    if _names_this(spec) and token not in known:
        wanted, known = RequestedStep(step=spec.restart_from.step), (*known, token)[-MAX_TOKENS:]
    return changed(status, observed_restart_token=token, restart_from=wanted, restart_from_tokens=known)


def describe_request(spec: Spec, before: Status, after: Status) -> str:
    """Return what was asked for, as ``from step 300``, or why that isn't done; empty if it is the newest."""
    if after.restart_from is not None:
        return from_step(after.restart_from.step)
    if not asks_for_restart(spec, before) or not _names_this(spec):
        return ""
    return from_newest_step(from_step(spec.restart_from.step))


def _names_this(spec: Spec) -> bool:
    asked = spec.restart_from
    return asked.type != "Newest" and asked.restart_token == spec.restart_token


# Groups


class GroupKey(NamedTuple):
    """What the gangs of one group have in common."""

    namespace: str
    name: str


def group_key(job: GangJob) -> GroupKey | None:
    """The group of the gang; None if it has none."""
    group = job.spec.replica_group
    return None if group is None else GroupKey(job.metadata.namespace, group.name)


def needs_group(job: GangJob) -> bool:
    """Whether the next decision about the gang needs to know of the others of its group."""
    group, phase = job.spec.replica_group, job.status.phase
    if group is None or phase is GangPhase.RUNNING:
        may_grow = job.spec.rolling is not None and job.status.size is not None and bool(job.status.size.roles)
        return asks_for_turn(job) or may_grow
    return phase in GATHERS and (group.budget is not None or (group.min_count or 0) > 1)


GATHERS: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING})


def replica_state(
    now: float, job: GangJob, pods: tuple[Pod, ...], listening_since: float, decided: Status | None
) -> Replica:
    """What other gangs of its group need to know of this one. ``decided``: the status that is about to be stored."""
    look = clamp_times(Gang(now, job, Observed(pods, listening_since=listening_since)))
    after = look.status if decided is None else decided
    takes_turns = job.spec.rolling is not None and after.phase is not GangPhase.SUCCEEDED
    leaves = after.phase is not GangPhase.RUNNING
    available = 0.0 if not takes_turns else None if leaves else available_at(look)
    charged = tuple(entry.time for entry in after.ledger if entry.charged)
    return Replica(job.metadata.name, look.status.phase, available, _has_pods(look), charged)


def _has_pods(gang: Gang) -> bool:
    phase = gang.status.phase
    if phase not in GATHERS:
        return phase in {GangPhase.RUNNING, GangPhase.SUCCEEDED}
    there = [
        name for name, pod in gang.pods.items() if pod.started_at is not None and not (pod.deleting or pod.terminated)
    ]
    return has_started(gang.status) or size.could_start(gang, there)


def awaited_group(gang: Gang) -> Message | None:
    """Return that the attempt, which could start, waits for other gangs of its group; None if it needn't."""
    group = gang.spec.replica_group
    if group is None or group.min_count is None or has_started(gang.status):
        return None
    lacking = [replica(one.name, one.phase) for one in gang.observed.group if not one.has_pods]
    have = 1 + sum(one.has_pods for one in gang.observed.group)
    if have >= group.min_count:
        return None
    return group_awaited(gang.status.attempt, group.name, group.min_count, have, lacking)


# Rolling


def available_at(gang: Gang) -> float | None:
    """When the gang became available, or will if nothing changes; None while it isn't, and that can't be told."""
    rolling = gang.spec.rolling
    if rolling is None or gang.status.phase is not GangPhase.RUNNING:
        return None
    done = finished_places(gang)
    needed = (gang.pods.get(holder) for place, holder in gang.holders.items() if place not in done)
    if waiting_roles(gang.spec, gang.status) or not all(pod is not None and pod.is_ready for pod in needed):
        return None
    return may_start_since(gang.status) + rolling.min_ready_seconds


def asks_for_turn(job: GangJob) -> bool:
    """Whether the gang asks for a planned restart, which may have to wait."""
    running = job.status.phase is GangPhase.RUNNING
    return job.spec.rolling is not None and running and asks_for_restart(job.spec, job.status)


def waits_for(gang: Gang) -> tuple[Replica, ...]:
    """The gangs that are unavailable, if the restart that `spec.restartToken` asks for waits for them; else none."""
    return away(gang) if asks_for_turn(gang.job) else ()


@once
def away(gang: Gang) -> tuple[Replica, ...]:
    """The gangs that are unavailable, if a planned restart has to wait for them; else none."""
    rolling = gang.spec.rolling
    if rolling is None or available_at(gang) is None:
        return ()
    away = tuple(one for one in gang.observed.group if one.available_at is None or gang.now < one.available_at)
    return away if len(away) >= rolling.max_unavailable else ()


def turn(gang: Gang) -> Message:
    """Return for which gangs the restart waits."""
    rolling, group = gang.spec.rolling, gang.spec.replica_group
    assert rolling is not None
    assert group is not None
    return turn_awaited(_who(waits_for(gang)), rolling.max_unavailable, group.name, gang.status.attempt)


def stalled(gang: Gang) -> Message | None:
    """Return that the restart has waited for too long; None if it hasn't, or waits for no gang."""
    rolling, group, due, away = gang.spec.rolling, gang.spec.replica_group, stalls_at(gang), waits_for(gang)
    if rolling is None or group is None or due is None or gang.now < due or not away:
        return None
    return turn_overdue(_who(away), rolling.progress_deadline_seconds, group.name)


def stalls_at(gang: Gang) -> float | None:
    """When the restart has waited for too long; None if none waits."""
    rolling, since = gang.spec.rolling, gang.status.restart_wait_time
    return None if rolling is None or since is None else since + rolling.progress_deadline_seconds


def looks_again_at(gang: Gang) -> list[float]:
    """When what is decided may change though nothing happens."""
    times = [one.available_at for one in waits_for(gang) if one.available_at is not None]
    due = stalls_at(gang)
    return times if due is None or due <= gang.now else [*times, due]


def _who(away: Sequence[Replica]) -> list[Message]:
    """The gangs that are away, and what each does; one that runs isn't ready yet, or not for long enough."""
    return [replica(each.name, str(each.phase)) for each in away]
