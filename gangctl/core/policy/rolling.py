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
from gangctl.core.facts.text import counted, listed
from gangctl.core.facts.world import Replica
from gangctl.core.policy import requests


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


def told(gang: Gang) -> str:
    """For whom the restart waits, in a sentence without an end."""
    rolling, away = gang.spec.rolling, waits_for(gang)
    assert rolling is not None
    most = f"at most {counted(rolling.max_unavailable, 'gang')} of group {rolling.group}"
    return (
        f"the restart that restartToken asks for waits for {_who(away)} to be available, because {most} may be "
        "unavailable at once; attempt "
        f"{gang.status.attempt} runs on"
    )


def stalled(gang: Gang) -> str:
    """What is said if the restart has waited for too long; empty if it hasn't, or waits for none."""
    rolling, due, away = gang.spec.rolling, stalls_at(gang), waits_for(gang)
    if rolling is None or due is None or gang.now < due or not away:
        return ""
    return (
        f"the restart that restartToken asks for has waited for {rolling.progress_deadline_seconds} s and waits on: "
        f"{_who(away)} of group {rolling.group} {'is' if len(away) == 1 else 'are'} not available; mend or delete "
        f"{'it' if len(away) == 1 else 'them'}, or remove spec.rolling of this gang to restart it now"
    )


def stalls_at(gang: Gang) -> float | None:
    """When the restart has waited for too long; None if none waits."""
    rolling, since = gang.spec.rolling, gang.status.restart_wait_time
    return None if rolling is None or since is None else since + rolling.progress_deadline_seconds


def looks_again_at(gang: Gang) -> list[float]:
    """When what is decided may change though nothing happens."""
    times = [one.available_at for one in waits_for(gang) if one.available_at is not None]
    due = stalls_at(gang)
    return times if due is None or due <= gang.now else [*times, due]


def _who(away: Sequence[Replica]) -> str:
    """Which gangs are away, and what each does; one that runs isn't ready yet, or not for long enough."""
    return listed([f"{one.name} ({one.phase})" for one in away])
