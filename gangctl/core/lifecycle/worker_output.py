"""When what a worker printed is stored: with the next write, or else alone.

    alone at = phase_time + 10 s   while an attempt gathers: its start or its end is the next write
               phase_time + 2 s    while it runs: its processes start
               now                 where it has ended, or is held

The rule: it is told once. The write that settles the incident tells it with the cause; if that is over, an Event does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gangctl.api.names import pod_name
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.trace_context import trace_of
from gangctl.core.lifecycle.plan import Event, EventType, Plan
from gangctl.core.policy.cause import describe
from gangctl.words.decisions import attempt_ended

_PATIENCE: Final[Mapping[GangPhase, float]] = MappingProxyType(
    {GangPhase.PENDING: 10.0, GangPhase.GATHERING: 10.0, GangPhase.RUNNING: 2.0}
)
"""Seconds from the begin of a phase."""


def with_output(before: Gang, gang: Gang, plan: Plan) -> Plan:
    """The plan that also stores and tells what was read. ``gang``: the look ``before`` with it, or the same."""
    if gang is before:
        return plan
    last = gang.status.incidents[0]
    text = attempt_ended(last.attempt - 1, describe(last.cause))
    pod = pod_name(gang.job.metadata.name, last.cause.member, last.cause.incarnation)
    event = Event(EventType.NORMAL, Reason.WORKER_OUTPUT, text, last.cause.member, pod, trace_of(gang.job, last))
    events = (*plan.events, event) if last.settled and last.cause.printed else plan.events
    if plan.status is not None:
        return replace(plan, events=events)
    due = gang.status.phase_time + _PATIENCE.get(gang.status.phase, 0.0)
    if gang.now >= due:
        return replace(plan, because=text, status=gang.status, events=events)
    left = max(0.05, due - gang.now)
    return replace(plan, requeue_after=left if plan.requeue_after is None else min(left, plan.requeue_after))
