"""Decide: from the job and one look at the world to the next status, what to do after it is durable, and why.

The rule: decide is pure and total. The same inputs give the same plan, doing a plan twice does no harm, and a fresh
controller continues from the stored status, the pods and the members' reports alone. ``table.py`` is the lifecycle as a
table; what each phase decides is in the file of its name.

When what a worker printed is stored: with the next write, or else alone.

    alone at = phase_time + 10 s   while an attempt gathers: its start or its end is the next write
               phase_time + 2 s    while it runs: its processes start
               now                 where it has ended, or is held

The rule: it is told once. The write that settles the incident tells it with the cause; if that is over, an Event does.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.names import PodName
from gangctl.api.reasons import Reason
from gangctl.api.status import ENDED, GangPhase
from gangctl.core.facts.barrier import with_fencing
from gangctl.core.facts.gang import Gang, clamp_times, trace_of
from gangctl.core.facts.progress import has_succeeded
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle import resting
from gangctl.core.lifecycle.gathering import decide_gathering
from gangctl.core.lifecycle.plan import (
    Event,
    Plan,
    fail_at_deadline,
    plan_write,
    with_acceptance,
    with_finished,
    with_look_by,
)
from gangctl.core.lifecycle.running import decide_running
from gangctl.core.lifecycle.table import ACTIVE
from gangctl.core.policy import admission, quota
from gangctl.core.policy.admission import active_deadline
from gangctl.core.policy.cause import describe
from gangctl.core.record import conditions, incidents
from gangctl.core.record.conditions import with_size_limited, with_time_accounted
from gangctl.words.decisions import active_deadline_passed, attempt_ended

# Decide


def decide(now: float, job: GangJob, observed: Observed) -> Plan:
    """What to do about this gang now. ``now``: seconds since the epoch."""
    seen = clamp_times(Gang(now, job, observed))
    told = conditions.with_output_read(seen)
    gang = seen if told is seen.status else seen.with_status(told)
    plan = with_output(seen, gang, with_finished(gang, _decided(gang)))
    status = with_fencing(gang, gang.status if plan.status is None else plan.status)
    if plan.status is not None or status is not gang.status:
        plan = replace(plan, status=with_size_limited(with_time_accounted(gang, status)))
    query = conditions.output_query(gang, status)
    asked = admission.queue_actions(gang, status)
    if not asked and (gang.is_elastic or gang.observed.queue.more):
        asked = quota.queue_actions(gang, status)
    more = (*asked, *(() if query is None else (query,)))
    return replace(plan, actions=(*plan.actions, *more)) if more else plan


def _decided(gang: Gang) -> Plan:
    if gang.status.phase not in ENDED and has_succeeded(gang):
        return resting.plan_success(gang)
    deadline = active_deadline(gang)
    if deadline is not None and gang.now >= deadline:
        return _fail_at_deadline(gang)
    if gang.status.phase in ACTIVE and admission.is_to_be_suspended(gang):
        return resting.plan_suspension(gang)
    plan = with_acceptance(gang, _of_phase(gang))
    return plan if deadline is None else with_look_by(gang, plan, deadline)


def _of_phase(gang: Gang) -> Plan:
    match gang.status.phase:
        case GangPhase.NEW:
            return resting.new(gang)
        case GangPhase.SUSPENDED:
            return resting.decide_suspended(gang)
        case GangPhase.PENDING | GangPhase.GATHERING:
            return decide_gathering(gang)
        case GangPhase.RUNNING:
            return decide_running(gang)
        case GangPhase.HELD:
            return resting.decide_held(gang)
        case GangPhase.SUCCEEDED | GangPhase.FAILED:
            return resting.decide_finished(gang)


def _fail_at_deadline(gang: Gang) -> Plan:
    limit = gang.spec.active_deadline_seconds
    status = fail_at_deadline(gang, incidents.finish_incident(gang, gang.status, "Failed"))
    return plan_write(gang, status, Reason.DEADLINE_EXCEEDED, active_deadline_passed(limit))


# When what a worker printed is stored


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
    pod = PodName(gang.job.metadata.name, last.cause.member, last.cause.incarnation)
    event = Event(Reason.WORKER_OUTPUT, text, last.cause.member, pod, trace_of(gang.job, last))
    events = (*plan.events, event) if last.settled and last.cause.printed else plan.events
    if plan.status is not None:
        return replace(plan, events=events)
    due = gang.status.phase_time + _PATIENCE.get(gang.status.phase, 0.0)
    if gang.now >= due:
        return replace(plan, because=text, status=gang.status, events=events)
    return with_look_by(gang, plan, due)
