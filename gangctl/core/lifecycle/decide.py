"""Decide: from the job and one look at the world to the next status, what to do after it is durable, and why.

Pure and total: the same inputs give the same plan, doing a plan twice does no harm, and a fresh controller continues
from the stored status, the pods and the members' reports alone. What each phase decides is in the file of its name.
"""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.drafting import moved, write
from gangctl.core.lifecycle.gathering import gathering
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.lifecycle.resting import begin, finished, held, is_to_be_suspended, suspend, suspended
from gangctl.core.lifecycle.running import progressed, running
from gangctl.core.policy import admission
from gangctl.core.policy.success import has_succeeded
from gangctl.core.record import incidents, timings
from gangctl.core.record.goodput import accounted

_ACTIVE = frozenset({GangPhase.PENDING, GangPhase.GATHERING, GangPhase.RUNNING, GangPhase.HELD})


def decide(now: float, job: GangJob, observed: Observed) -> Plan:
    """What to do about this gang now. ``now``: seconds since the epoch."""
    gang = Gang(now, job, observed)
    return accounted(gang, _decided(gang))


def _decided(gang: Gang) -> Plan:
    now, job, status = gang.now, gang.job, gang.status
    if job.metadata.deletion_timestamp is not None:
        return Plan("the gang is being deleted, and its pods go with it")
    if status.phase is GangPhase.RUNNING and has_succeeded(gang):
        done = progressed(gang, timings.timed(gang, status, more=False))
        done = moved(gang, done, GangPhase.SUCCEEDED, completion_time=now)
        return write(gang, done, Reason.SUCCEEDED, "every worker that counts has ended with 0")
    if status.phase in _ACTIVE:
        limit = job.spec.active_deadline_seconds
        if limit is not None and status.start_time is not None and now >= status.start_time + limit:
            failed = moved(gang, incidents.finished(gang, status, "Failed"), GangPhase.FAILED, completion_time=now)
            return write(gang, failed, Reason.DEADLINE_EXCEEDED, f"the gang was active for longer than {limit} s")
        if is_to_be_suspended(gang):
            return suspend(gang)
    plan = admission.shown(gang, _of_phase(gang))
    limit = job.spec.active_deadline_seconds
    if status.phase in _ACTIVE and limit is not None and status.start_time is not None:
        left = max(0.05, status.start_time + limit - now)
        after = left if plan.requeue_after is None else min(left, plan.requeue_after)
        return Plan(plan.because, plan.status, plan.actions, plan.events, after)
    return plan


def _of_phase(gang: Gang) -> Plan:
    match gang.status.phase:
        case GangPhase.NEW:
            return begin(gang)
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
