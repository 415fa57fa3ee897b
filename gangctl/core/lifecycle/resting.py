"""Gangs that don't run and don't gather: new, suspended, held, ended.

The rule: suspending deletes the pods and keeps attempt, ledger and restore point; resuming is a new attempt that isn't
charged, and waits until the old pods are gone. Roles that changed act as suspended until then. Never is an end left.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles_hash import roles_hash
from gangctl.api.status import Cause, GangPhase, IncidentLevel, LedgerEntry, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle.drafting import moved, wait, write
from gangctl.core.lifecycle.plan import DeleteGang, Plan
from gangctl.core.lifecycle.running import progressed
from gangctl.core.policy import checkpoints, pods, replacement
from gangctl.core.record import incidents, timings


def begin(gang: Gang) -> Plan:
    """A gang that is seen for the first time."""
    spec = gang.spec
    status = changed(gang.status, roles_hash=roles_hash(spec.roles), observed_restart_token=spec.restart_token)
    if spec.suspend:
        return write(gang, moved(gang, status, GangPhase.SUSPENDED), Reason.SUSPENDED, "it was submitted suspended")
    status = moved(gang, status, GangPhase.PENDING, attempt=status.attempt + 1)
    return write(gang, status, Reason.SUBMITTED, f"{len(gang.members)} pods are created for attempt {status.attempt}")


def is_to_be_suspended(gang: Gang) -> bool:
    """Whether the user asks for it, or the roles aren't those that the pods were made of."""
    return gang.spec.suspend or roles_hash(gang.spec.roles) != gang.status.roles_hash


def suspend(gang: Gang) -> Plan:
    """Everything stops with the planned grace; pods go, attempt and restore point stay."""
    asked = "spec.suspend is true" if gang.spec.suspend else "the roles have changed"
    because = f"{asked}: every worker stops (with the planned grace), pods are deleted; attempt and restore point stay"
    return write(gang, _stopped(gang), Reason.SUSPENDED, because, requeue_after=1.0)


def give_back(gang: Gang, why: str) -> Plan:
    """Suspended though nobody asked for it: the devices go back until somebody wants the gang to go on."""
    because = f"suspended, its pods are deleted: {why}; change restartToken, or set suspend to true and back, to go on"
    status = changed(_stopped(gang), given_back=True)
    return write(gang, status, Reason.REPLACEMENT_TIMEOUT, because, requeue_after=1.0)


def _stopped(gang: Gang) -> Status:
    status = timings.timed(gang, gang.status, more=False)
    status = progressed(gang, incidents.finished(gang, status, "Suspended"))
    status = checkpoints.remembered(gang, status)
    there = [name for name in gang.members if gang.was_there(name)]
    entries = [entry for name in there if (entry := barrier.awaits(gang, name)) is not None]
    known = {entry.pod for entry in status.awaited}
    awaited = (*status.awaited, *(entry for entry in entries if entry.pod not in known))
    return moved(gang, barrier.bounded(status, awaited), GangPhase.SUSPENDED, start_time=None)


def suspended(gang: Gang) -> Plan:
    """Pods go; when they are gone and nobody asks for it any more, the gang resumes."""
    status = replacement.refreshed(gang, gang.status)
    if status is not gang.status:
        return write(gang, status, Reason.SUSPENDED, gang.status.message, requeue_after=1.0)
    if status.given_back and (is_to_be_suspended(gang) or gang.spec.restart_token != status.observed_restart_token):
        status = changed(status, given_back=False)
        return write(gang, status, Reason.SUSPENDED, "suspended; somebody wants it to go on", requeue_after=1.0)
    # The pod of a lost node stays in the cluster until the node is back; what may run in it is waited for below.
    left = any(not (pod.deleting and gang.on_lost_node(pod)) for pod in gang.observed.pods)
    gone = not left and not barrier.blocking(gang)
    if gang.spec.suspend or status.given_back or not gone:
        overdue = pods.overdue_at(gang, gang.spec.recovery.planned_stop_grace_period_seconds)
        times = [overdue if not gone and overdue > gang.now else None, barrier.next_release(gang)]
        because = "suspended" if gone else "suspended; old pods are waited for"
        deletions = tuple(
            action
            for action in pods.endings(gang, all_of_them=True)
            if not any(entry.pod == action.uid and _is_terminated(gang, entry.pod) for entry in gang.status.awaited)
        )
        return wait(gang, because, times, deletions)
    attempt = status.attempt + 1
    status = moved(
        gang,
        status,
        GangPhase.PENDING,
        attempt=attempt,
        base_incarnation=max([status.base_incarnation, *(entry.incarnation for entry in status.replaced)]) + 1
        if status.attempt
        else 0,
        replaced=(),
        ranks=(),
        masters=(),
        hosts=(),
        roles_hash=roles_hash(gang.spec.roles),
        observed_restart_token=gang.spec.restart_token,
        barrier_timeouts=0,
        deadline_time=None,
    )
    if attempt > 1:
        point = status.restore_point
        entry = LedgerEntry(
            time=gang.now, attempt=attempt, charged=False, restored_step=None if point is None else point.step
        )
        status = incidents.entered(gang, status, entry)
    return write(gang, status, Reason.RESUMED, f"resumed: new pods are created for attempt {attempt}")


def held(gang: Gang) -> Plan:
    """Workers are stopped, pods are kept for a look; a new restartToken is the way out, time the other."""
    recovery, status = gang.spec.recovery, gang.status
    if gang.spec.restart_token != status.observed_restart_token:
        cause = Cause(reason=Reason.RESTART_REQUESTED, message="restartToken was changed", time=gang.now)
        opened = incidents.opened(gang, cause, IncidentLevel.PROCESS, planned=True)
        status = moved(
            gang,
            status,
            GangPhase.GATHERING,
            attempt=status.attempt + 1,
            incidents=opened,
            observed_restart_token=gang.spec.restart_token,
            barrier_timeouts=0,
            deadline_time=None,
        )
        return write(gang, status, Reason.RESTARTING, f"restartToken was changed: attempt {status.attempt} gathers")
    end = None if recovery.hold_timeout_seconds is None else status.phase_time + recovery.hold_timeout_seconds
    if end is not None and gang.now >= end:
        status = moved(gang, status, GangPhase.FAILED, completion_time=gang.now)
        because = f"it was held for {recovery.hold_timeout_seconds} s and nobody came"
        return write(gang, status, Reason.HOLD_TIMEOUT, because)
    return wait(gang, status.message, [end], pods.actions(gang, status, create=False))


def finished(gang: Gang) -> Plan:
    """It has ended: supervisors finish by themselves; a pod that doesn't is deleted after its grace, then the gang."""
    ttl, ended = gang.spec.ttl_seconds_after_finished, gang.status.completion_time
    kept = None if ttl is None or ended is None else ended + ttl
    if kept is not None and gang.now >= kept:
        because = f"it ended {ttl} s ago and is deleted"
        return wait(gang, because, [], (*pods.endings(gang, all_of_them=False), DeleteGang()))
    overdue = pods.overdue_at(gang, gang.spec.recovery.stop_grace_period_seconds)
    left = any(not pod.terminated for pod in gang.observed.pods)
    times = [overdue if left and overdue > gang.now else None, kept]
    return wait(gang, gang.status.message, times, pods.endings(gang, all_of_them=False))


def _is_terminated(gang: Gang, uid: str) -> bool:
    return any(pod.uid == uid and pod.terminated for pod in gang.observed.pods)
