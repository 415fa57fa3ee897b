"""Decide: from the job and one look at the world to the next status, what to do after it is durable, and why.

The rule: decide is pure and total. The same inputs give the same plan, doing a plan twice does no harm, and a fresh
controller continues from the stored status, the pods and the members' reports alone. ``table.py`` is the lifecycle as a
table; what each phase decides is in the file of its name.
"""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import ENDED, GangPhase
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.stored_times import believed
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle import transitions
from gangctl.core.lifecycle.finished import finished, succeed
from gangctl.core.lifecycle.gathering import gathering
from gangctl.core.lifecycle.held import held
from gangctl.core.lifecycle.new import new
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.lifecycle.plan_builder import with_acceptance, with_finished, write
from gangctl.core.lifecycle.running import running
from gangctl.core.lifecycle.suspended import is_to_be_suspended, suspend, suspended
from gangctl.core.lifecycle.table import ACTIVE
from gangctl.core.lifecycle.worker_output import with_output
from gangctl.core.policy import fencing, queueing
from gangctl.core.policy.deadlines import active_deadline
from gangctl.core.policy.success import has_succeeded
from gangctl.core.record import incidents, output
from gangctl.core.record.fitting import fitted
from gangctl.core.record.goodput import accounted
from gangctl.words.decisions import active_deadline_passed


def decide(now: float, job: GangJob, observed: Observed) -> Plan:
    """What to do about this gang now. ``now``: seconds since the epoch."""
    seen = believed(Gang(now, job, observed))
    told = output.informed(seen)
    gang = seen if told is seen.status else seen.with_status(told)
    plan = with_output(seen, gang, with_finished(gang, _decided(gang)))
    status = fencing.told(gang, gang.status if plan.status is None else plan.status)
    if plan.status is not None or status is not gang.status:
        plan = replace(plan, status=fitted(accounted(gang, status)))
    query = output.wanted(gang, status)
    more = (*queueing.actions(gang, status), *(() if query is None else (query,)))
    return replace(plan, actions=(*plan.actions, *more)) if more else plan


def _decided(gang: Gang) -> Plan:
    if gang.status.phase not in ENDED and has_succeeded(gang):
        return succeed(gang)
    deadline = active_deadline(gang)
    if deadline is not None and gang.now >= deadline:
        return _fail_at_deadline(gang)
    if gang.status.phase in ACTIVE and is_to_be_suspended(gang):
        return suspend(gang)
    plan = with_acceptance(gang, _of_phase(gang))
    if deadline is None:
        return plan
    left = max(0.05, deadline - gang.now)
    return replace(plan, requeue_after=left if plan.requeue_after is None else min(left, plan.requeue_after))


def _of_phase(gang: Gang) -> Plan:
    match gang.status.phase:
        case GangPhase.NEW:
            return new(gang)
        case GangPhase.SUSPENDED:
            return suspended(gang)
        case GangPhase.PENDING | GangPhase.GATHERING:
            return gathering(gang)
        case GangPhase.RUNNING:
            return running(gang)
        case GangPhase.HELD:
            return held(gang)
        case GangPhase.SUCCEEDED | GangPhase.FAILED:
            return finished(gang)


def _fail_at_deadline(gang: Gang) -> Plan:
    limit = gang.spec.active_deadline_seconds
    status = transitions.fail_at_deadline(gang, incidents.finished(gang, gang.status, "Failed"))
    return write(gang, status, Reason.DEADLINE_EXCEEDED, active_deadline_passed(limit))
