"""Rolling: planned restarts of gangs that are replicas of one service go in turn.

    waits(g)  = restartToken has changed, g may serve, and at least maxUnavailable others of its group are unavailable
    may serve = its attempt runs and each required pod is ready, however short a time

Only a restart by hand waits. Faults, drains and evictions never do, nor a suspension: they count as unavailable. A gang
that doesn't serve anyway restarts at once, so gangs never all wait for each other. One that never gets ready again
stops the others' restarts, which is what maxUnavailable is for: the condition Degraded says so.

What must not happen: a planned restart begins while maxUnavailable other gangs of the group are unavailable.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.core.facts import group
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.world import Replica
from gangctl.core.policy import requests
from gangctl.words.message import Message
from gangctl.words.waits import replica, turn_awaited, turn_overdue


def asks(job: GangJob) -> bool:
    """Whether the next decision about the gang needs to know of the others of its group."""
    running = job.status.phase is GangPhase.RUNNING
    return job.spec.rolling is not None and running and requests.is_new(job.spec, job.status)


@once
def waits_for(gang: Gang) -> tuple[Replica, ...]:
    """The gangs that are unavailable, if the restart that `spec.restartToken` asks for waits for them; else none."""
    rolling = gang.spec.rolling
    if rolling is None or not asks(gang.job) or group.available_at(gang) is None:
        return ()
    away = tuple(one for one in gang.observed.group if one.available_at is None or gang.now < one.available_at)
    return away if len(away) >= rolling.max_unavailable else ()


def turn(gang: Gang) -> Message:
    """Return for which gangs the restart waits."""
    rolling = gang.spec.rolling
    assert rolling is not None
    return turn_awaited(_who(waits_for(gang)), rolling.max_unavailable, rolling.group, gang.status.attempt)


def stalled(gang: Gang) -> Message | None:
    """Return that the restart has waited for too long; None if it hasn't, or waits for no gang."""
    rolling, due, away = gang.spec.rolling, stalls_at(gang), waits_for(gang)
    if rolling is None or due is None or gang.now < due or not away:
        return None
    return turn_overdue(_who(away), rolling.progress_deadline_seconds, rolling.group)


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
