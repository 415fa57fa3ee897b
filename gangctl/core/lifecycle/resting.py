"""Phases in which no worker runs: new, suspended, held and ended gangs.

New: a gang that the controller sees for the first time.

The rule: its pods are created at once, unless it was submitted suspended, or names a queue that has not admitted it.

Suspended: the gang has no pods.

The rule: suspending deletes the pods and keeps attempt, ledger and restore point; resuming is a new attempt that isn't
charged, and waits until the old pods are gone. A gang that names a queue resumes when the queue admits it. Roles that
have changed suspend a gang until its old pods are gone. A worker of the new attempt must not start while one of the old
may run.

Held: workers are stopped, and pods stay for a look.

The rule: a new ``restartToken`` is the way out, also to another restore point (``restartFrom``); ``holdTimeoutSeconds``
is the other. A gang that is held must not lose or get a pod: a person can still undo the hold. Only its queue takes
pods, with their quota.

Succeeded and Failed: the gang has ended.

The rule: supervisors finish by themselves; a pod that hasn't ended after its grace is deleted, and the gang after
``ttlSecondsAfterFinished``. An end must not be left again, and no pod is created for it.
"""

from gangctl.api.incident import IncidentLevel, LedgerEntry
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import roles_hash
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.barrier import await_pods
from gangctl.core.facts.fitness import on_lost_node
from gangctl.core.facts.gang import Gang, asks_for_restart
from gangctl.core.lifecycle import plan
from gangctl.core.lifecycle.plan import DeleteGang, Event, Plan, plan_write, wait
from gangctl.core.policy import admission, checkpoints, pods, quota, requests
from gangctl.core.policy.admission import hold_timeout
from gangctl.core.policy.cause import manual_cause
from gangctl.core.record import incidents, timings
from gangctl.core.record.conditions import record_progress, stored_message
from gangctl.words import decisions, waits
from gangctl.words.message import Message

# New


def new(gang: Gang) -> Plan:
    """Decide for a gang without a status."""
    if gang.spec.suspend:
        status = plan.submit_suspended(gang, gang.status)
        return plan_write(gang, status, Reason.SUSPENDED, decisions.submitted_suspended())
    if not admission.is_admitted(gang):
        status = plan.submit_suspended(gang, gang.status)
        return plan_write(gang, status, Reason.QUEUED, admission.queue_wait(gang))
    status = quota.admitted(gang, plan.submit(gang, gang.status))
    pods_needed = len(gang.members) - sum(one.without_quota is True for one in status.replaced)
    return plan_write(gang, status, Reason.SUBMITTED, decisions.submitted(status.attempt, pods_needed))


# Suspended


def plan_suspension(gang: Gang) -> Plan:
    """Stop everything with the planned grace; pods go, attempt and restore point stay."""
    reason, was_held = Reason.SUSPENDED, False
    if gang.spec.suspend:
        asked = decisions.spec_suspends()
    elif roles_hash(gang.spec.roles) != gang.status.roles_hash:
        asked = decisions.roles_changed()
    else:
        asked = admission.called_back(gang)
        was_held = (
            gang.status.phase is GangPhase.HELD
        )  # It must not go on by itself, only because its quota comes back.
        reason = Reason.SUSPENDED if was_held else Reason.QUEUED
    status = plan.suspend(gang, _stopped(gang))
    status = changed(status, given_back=True) if was_held else status
    return plan_write(gang, status, reason, decisions.suspended(asked, was_held), requeue_after=1.0)


def plan_give_back(gang: Gang, why: Message) -> Plan:
    """Suspend a gang whose replacement took too long: its devices are free until its spec changes."""
    status = plan.give_back(gang, _stopped(gang))
    return plan_write(gang, status, Reason.REPLACEMENT_TIMEOUT, decisions.given_back(why), requeue_after=1.0)


def _stopped(gang: Gang) -> Status:
    status = timings.set_timings(gang, gang.status, more=False)
    status = record_progress(gang, incidents.finish_incident(gang, status, "Suspended"))
    status = checkpoints.remember_steps(gang, status)
    there = [name for name in gang.members if gang.was_there(name)]
    return await_pods(status, [barrier.awaits(gang, name) for name in there])


def decide_suspended(gang: Gang) -> Plan:
    """Decide for a suspended gang: its pods go; when they are gone and nothing keeps it, it resumes."""
    status = checkpoints.remember_steps(gang, pods.forget_gone_pods(gang, gang.status))
    if status is not gang.status:
        reason = Reason.QUEUED if admission.is_told_waiting(gang.status) else Reason.SUSPENDED
        return plan_write(gang, status, reason, stored_message(gang.status), requeue_after=1.0)
    if status.given_back and (admission.suspends(gang) or asks_for_restart(gang.spec, status)):
        status = changed(status, given_back=False)
        return plan_write(gang, status, Reason.SUSPENDED, decisions.goes_on(), requeue_after=1.0)
    # The pod of a lost node stays in the cluster until the node is back; what may run in it is waited for below.
    left = any(not (pod.deleting and on_lost_node(gang, pod)) for pod in gang.observed.pods)
    gone = not left and not barrier.blocking_pods(gang)
    if gone and (news := _news(gang)) is not None:
        return plan_write(gang, status, *news, requeue_after=1.0)
    if gang.spec.suspend or status.given_back or not gone or not admission.is_admitted(gang):
        overdue = pods.overdue_at(gang, gang.spec.recovery.planned_stop_grace_period_seconds)
        times = [overdue if not gone and overdue > gang.now else None, barrier.next_release(gang)]
        because = decisions.still_suspended(pods_left=not gone)
        deletions = tuple(
            action
            for action in pods.endings(gang, all_of_them=True)
            if not any(entry.pod == action.uid and _is_terminated(gang, entry.pod) for entry in gang.status.awaited)
        )
        return wait(gang, because, times, deletions)
    newest = max([status.base_incarnation, *(entry.incarnation for entry in status.replaced)])
    status = plan.resume(gang, status, base_incarnation=newest + 1 if status.attempt else 0)
    status = quota.admitted(gang, status)
    attempt = status.attempt
    if attempt > 1:
        point = status.restore_point
        entry = LedgerEntry(
            time=gang.now, attempt=attempt, charged=False, restored_step=None if point is None else point.step
        )
        status = incidents.enter_ledger(gang, status, entry, in_a_row=0)
    return plan_write(gang, status, Reason.RESUMED, decisions.resumed(attempt))


def _news(gang: Gang) -> tuple[Reason, Message] | None:
    """What is said of a gang without pods, if that isn't stored: what it waits for in the queue, or that it doesn't."""
    if gang.spec.suspend or gang.status.given_back:
        told = admission.is_told_waiting(gang.status)
        return (Reason.SUSPENDED, waits.queue_left()) if told else None
    if admission.is_admitted(gang):
        return None
    because = admission.queue_wait(gang)
    return None if because.is_same(gang.status.said) else (Reason.QUEUED, because)


def _is_terminated(gang: Gang, uid: str) -> bool:
    return any(pod.uid == uid and pod.terminated for pod in gang.observed.pods)


# Held


def plan_hold(gang: Gang, status: Status, reason: Reason, because: Message, out: str = "") -> Plan:
    """Return the plan that holds a gang. ``status``: its incident is settled or finished. ``out``: what leads on."""
    return plan_write(gang, plan.hold(gang, status), reason, decisions.held(because, out), create=False)


def decide_held(gang: Gang) -> Plan:
    status = gang.status
    if asks_for_restart(gang.spec, status):
        opened = incidents.open_incident(gang, manual_cause(gang), IncidentLevel.PROCESS, planned=True)
        status = plan.restart_held(gang, changed(status, incidents=opened))
        where = requests.describe_request(gang.spec, gang.status, status)
        because = decisions.token_accepted(decisions.attempt_gathers(status.attempt, where))
        return plan_write(gang, status, Reason.RESTARTING, because)
    end = hold_timeout(gang)
    if end is not None and gang.now >= end:
        because = decisions.hold_timeout_passed(gang.spec.recovery.hold_timeout_seconds or 0)
        return plan_write(gang, plan.fail_held(gang, status), Reason.HOLD_TIMEOUT, because)
    if gang.is_elastic and (change := quota.taken(gang)) is not None:  # The message keeps the way out.
        event = Event(Reason.QUOTA_CHANGED, change.because)
        return Plan(change.because, change.status, pods.actions(gang, change.status, create=False), (event,))
    return wait(gang, stored_message(status), [end], pods.actions(gang, status, create=False))


# Succeeded and Failed


def plan_success(gang: Gang) -> Plan:
    """End a gang as its success policy says, whatever its members are ordered meanwhile."""
    status = gang.status
    runs = status.phase is GangPhase.RUNNING
    if runs:
        status = record_progress(gang, timings.set_timings(gang, status, more=False))
    status = plan.succeed(gang, incidents.finish_incident(gang, status, "Succeeded"))
    return plan_write(gang, status, Reason.SUCCEEDED, decisions.succeeded(before_stop=not runs))


def plan_failure(gang: Gang, status: Status, reason: Reason, because: Message) -> Plan:
    """The plan that fails a gang. ``status``: its incident is settled or finished."""
    return plan_write(gang, plan.fail(gang, status), reason, because, create=False)


def decide_finished(gang: Gang) -> Plan:
    ttl, ended = gang.spec.ttl_seconds_after_finished, gang.status.completion_time
    kept = None if ttl is None or ended is None else ended + ttl
    if kept is not None and gang.now >= kept:
        return wait(gang, decisions.kept_long_enough(ttl), [], (*pods.endings(gang, all_of_them=False), DeleteGang()))
    overdue = pods.overdue_at(gang, gang.spec.recovery.stop_grace_period_seconds)
    left = any(not pod.terminated for pod in gang.observed.pods)
    times = [overdue if left and overdue > gang.now else None, kept]
    return wait(gang, stored_message(gang.status), times, pods.endings(gang, all_of_them=False))
