"""Succeeded and Failed: the gang has ended.

The rule: supervisors finish by themselves; a pod that hasn't ended after its grace is deleted, and the gang after
``ttlSecondsAfterFinished``. An end must not be left again, and no pod is created for it.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle import transitions
from gangctl.core.lifecycle.plan import DeleteGang, Plan
from gangctl.core.lifecycle.plan_builder import wait, write
from gangctl.core.policy import pods
from gangctl.core.record import incidents, timings
from gangctl.core.record.summary import progressed
from gangctl.words import decisions
from gangctl.words.message import Message


def succeed(gang: Gang) -> Plan:
    """The gang has ended as its success policy says, whatever is told to its members meanwhile."""
    status = gang.status
    runs = status.phase is GangPhase.RUNNING
    if runs:
        status = progressed(gang, timings.timed(gang, status, more=False))
    status = transitions.succeed(gang, incidents.finished(gang, status, "Succeeded"))
    return write(gang, status, Reason.SUCCEEDED, decisions.succeeded(before_stop=not runs))


def fail(gang: Gang, status: Status, reason: Reason, because: Message) -> Plan:
    """The plan that fails a gang. ``status``: its incident is settled or finished."""
    return write(gang, transitions.fail(gang, status), reason, because, create=False)


def finished(gang: Gang) -> Plan:
    """Decide for a gang that has ended."""
    ttl, ended = gang.spec.ttl_seconds_after_finished, gang.status.completion_time
    kept = None if ttl is None or ended is None else ended + ttl
    if kept is not None and gang.now >= kept:
        return wait(gang, decisions.kept_long_enough(ttl), [], (*pods.endings(gang, all_of_them=False), DeleteGang()))
    overdue = pods.overdue_at(gang, gang.spec.recovery.stop_grace_period_seconds)
    left = any(not pod.terminated for pod in gang.observed.pods)
    times = [overdue if left and overdue > gang.now else None, kept]
    return wait(gang, decisions.as_stored(gang.status.message), times, pods.endings(gang, all_of_them=False))
