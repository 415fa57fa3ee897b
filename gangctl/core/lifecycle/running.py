"""Running: what opens the next attempt, and what is only noted.

The rule: the first evidence of a fault is write 1: the attempt is raised and all workers stop, at once and for any
reason. Write 2 settles what the cause was. Roles that wait for others start by one more write (``facts/order.py``).
Progress must not cost one write per step.
"""

from collections.abc import Mapping
from typing import Final

from gangctl.api.incident import IncidentLevel
from gangctl.api.model import changed
from gangctl.api.names import PodName
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.facts import order, progress
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.faults import faults, start_deadline
from gangctl.core.facts.fitness import Defect, next_loss
from gangctl.core.facts.gang import Gang, asks_for_restart, trace_of
from gangctl.core.lifecycle import plan
from gangctl.core.lifecycle.plan import Event, Plan, plan_write, wait
from gangctl.core.policy import admission, checkpoints, growth, hangs, pods, quota, requests
from gangctl.core.policy.cause import (
    StrongestEvidence,
    describe,
    first_cause,
    manual_cause,
    planned_cause,
    settle_cause,
)
from gangctl.core.policy.recovery import is_gentle, level_of
from gangctl.core.record import incidents, timings
from gangctl.core.record.conditions import record_progress, update_summary, warned_of, with_conditions, with_new_message
from gangctl.core.record.degraded import degraded, is_news, next_silence
from gangctl.core.record.waiting import due_at
from gangctl.words import decisions
from gangctl.words.faults import more_are_ready, token_changed
from gangctl.words.message import Message
from gangctl.words.waits import roles_wait, turn_dropped

SUMMARY_SECONDS: Final = 30.0
"""The summary (progress, ready) is written at most this often. A first step ends an incident: it is written at once."""
SUMMARIES: Final = 25
"""So many summaries a second are written at most for all gangs of the controller."""


def decide_running(gang: Gang) -> Plan:
    """Decide for a gang whose attempt runs."""
    found = faults(gang)
    hung = hangs.hang(gang)
    if hung is not None and gang.spec.progress.on_hang == "Restart":
        found = (*found, hung)
    if not found and (slow := pods.slow_rank_to_move(gang)) is not None:
        found = (slow,)
    if found:
        return plan_restart(gang, found)
    if asks_for_restart(gang.spec, gang.status) and not requests.waits_for(gang):
        return restart_by_hand(gang)
    if gang.is_smaller and growth.grows(gang):
        return _grow(gang)
    if gang.is_elastic and (plan := _follow_queue(gang)) is not None:
        return plan
    if (turn := _turn(gang)) is not None:
        return turn
    unfit = {name: why for name, why in pods.unfit(gang).items() if name not in gang.holding}
    if spares := pods.with_room(gang.status, unfit):
        status = pods.replace_members(gang, gang.status, spares)
        return plan_write(gang, status, Reason.POD_REPLACED, decisions.spares_get_new_pods(_replaced(spares)))
    status = pods.forget_gone_pods(gang, gang.status)
    if status is not gang.status:
        return plan_write(gang, status, Reason.RUNNING, decisions.earlier_pod_gone())
    if roles := order.roles_to_start(gang):
        return _start_roles(gang, roles)
    return note(gang, hung)


def plan_restart(gang: Gang, found: tuple[Fault, ...]) -> Plan:
    """Write 1: the next attempt. All workers stop; members whose pods can't go on are replaced now."""
    first = found[0]
    cause = first_cause(gang, found)
    better = incidents.correct_cause(gang, gang.status, first)
    events = () if better is gang.status else (_correction(gang, better),)
    status = checkpoints.remember_steps(gang, record_progress(gang, timings.set_timings(gang, better, more=False)))
    gentle = all(is_gentle(gang, fault) for fault in found)
    opened = incidents.open_incident(gang.with_status(status), cause, level_of(gang, cause), planned=gentle)
    status = changed(status, incidents=opened)
    return _gathering(gang, status, found, describe(cause), events)


def restart_by_hand(gang: Gang) -> Plan:
    """Write 1 because `spec.restartToken` was changed: planned, and not charged."""
    status = checkpoints.remember_steps(gang, record_progress(gang, timings.set_timings(gang, gang.status, more=False)))
    opened = incidents.open_incident(gang.with_status(status), manual_cause(gang), IncidentLevel.PROCESS, planned=True)
    status = requests.take_request(gang.spec, changed(status, incidents=opened))
    where = requests.describe_request(gang.spec, gang.status, status)
    return _gathering(gang, status, (), token_changed(), where=where)


def _grow(gang: Gang) -> Plan:
    """Write 1 because more members are ready: planned, and not charged."""
    return _stop_as_planned(gang, growth.stopped_to_grow(gang, gang.status), Reason.GROWING, more_are_ready())


def _stop_as_planned(gang: Gang, status: Status, reason: Reason, why: Message) -> Plan:
    """Write 1 though nothing has failed: planned, and not charged."""
    status = checkpoints.remember_steps(gang, record_progress(gang, timings.set_timings(gang, status, more=False)))
    opened = incidents.open_incident(
        gang.with_status(status), planned_cause(gang, reason, why), IncidentLevel.PROCESS, planned=True
    )
    return _gathering(gang, changed(status, incidents=opened), (), why)


def _follow_queue(gang: Gang) -> Plan | None:
    """The plan that goes by the quota of an elastic gang; None if that is as the status has it."""
    if quota.must_stop(gang):
        return _stop_as_planned(gang, gang.status, Reason.QUOTA_RECLAIMED, quota.quota_reclaimed(gang))
    change = quota.taken(gang) or quota.changes(gang)
    return None if change is None else plan_write(gang, change.status, Reason.QUOTA_CHANGED, change.because)


def _turn(gang: Gang) -> Plan | None:
    """The plan that says that a planned restart waits for its turn, or doesn't any more; None if that is said."""
    waits, since = bool(requests.waits_for(gang)), gang.status.restart_wait_time
    if waits and since is None:
        status = changed(gang.status, restart_wait_time=gang.now)
        return plan_write(gang, status, Reason.RESTART_WAITS, requests.turn(gang), requeue_after=1.0)
    if not waits and since is not None:
        because = turn_dropped(gang.status.attempt)
        return plan_write(gang, changed(gang.status, restart_wait_time=None), Reason.RUNNING, because)
    return None


def _start_roles(gang: Gang, roles: tuple[str, ...]) -> Plan:
    """The plan that lets the workers of these roles start."""
    ready = {one.name: None for role in gang.spec.roles if role.name in roles for one in role.depends_on}
    because = decisions.roles_start(gang.status.attempt, roles, tuple(ready))
    return plan_write(gang, order.with_started(gang, roles), Reason.RUNNING, because, requeue_after=1.0)


def note(gang: Gang, hung: Fault | None) -> Plan:
    """Nothing is wrong: the summary is written now and then; a hang that is only observed is reported once."""
    status = checkpoints.remember_steps(gang, record_progress(gang, timings.set_timings(gang, gang.status, more=True)))
    reason, text = Reason.RUNNING, decisions.attempt_runs(status.attempt)
    if requests.waits_for(gang):  # The gangs that it waits for may change often: that is written with the summary.
        reason, text = Reason.RESTART_WAITS, requests.turn(gang)
        status = with_new_message(status, text)
    waits, due = order.awaited(gang), gang.status.observed_time + summary_seconds(gang)
    if waits is not None:
        reason, text = Reason.ROLES_WAIT, roles_wait(status.attempt, waits.roles, waits.starts, waits.probes)
        due = due if text.is_same(status.said) else due_at(gang)
        status = with_new_message(status, text)
    warned = degraded(gang, gang.status.phase, hung)
    if warned is not None and warned[0] is Reason.HANG:
        status = with_new_message(status, warned[1])
    elif warned_of(gang.status) == Reason.HANG:
        status = with_new_message(status, text)
    if gang.is_smaller:
        status = growth.noted(gang, status)
    told = update_summary(gang, status)
    is_new = changed(told, observed_time=gang.status.observed_time) != gang.status
    events = plan.begun(gang, warned)
    news = events != ()
    gaps = told.step_gaps != gang.status.step_gaps  # Rare, and a new controller must not go by shorter ones.
    trains = timings.has_first_step(told) and not timings.has_first_step(gang.status)
    grows = told.size is not gang.status.size
    if is_news(gang, warned) or gaps or trains or grows or (is_new and gang.now >= due):
        generation = gang.job.metadata.generation
        told = changed(told, observed_generation=generation)
        refused = admission.refusal(gang, told)
        told = with_conditions(gang.job, told, gang.now, reason, warned, refused=refused)
        if news and warned is not None and warned[0] is Reason.DEVICE_DEGRADED:
            events += tuple(plan.slow_rank_events(gang, progress.slow_members(gang)))
        if waits is not None and (gang.status.said is None or gang.status.said.name != text.name):
            events += (Event(Reason.ROLES_WAIT, text),)
        because = warned[1] if warned is not None and news else text
        return Plan(because, told, pods.actions(gang, told), events, summary_seconds(gang))
    times = [
        due if is_new else None,
        None if hung is not None else hangs.hangs_at(gang),
        _start_deadline(gang),
        next_loss(gang),
        next_silence(gang, warned),
        timings.heard_out_at(gang, status),
        None if waits is None else waits.until,
        pods.next_creation(gang, status),
        *requests.looks_again_at(gang),
        growth.looks_at(gang) if gang.is_smaller else None,
        quota.looks_at(gang) if gang.without_quota or gang.is_smaller else None,
    ]
    scan = growth.scan_due(gang) if gang.is_smaller else None
    return wait(gang, text, times, (*pods.actions(gang, status), *(() if scan is None else (plan.AskScan(*scan),))))


def summary_seconds(gang: Gang) -> float:
    """Seconds between two summaries of this gang: each is a request, and the loop must have time for restarts."""
    return max(SUMMARY_SECONDS, gang.observed.gangs / SUMMARIES)


def _gathering(
    gang: Gang, status: Status, found: tuple[Fault, ...], what: Message, events: tuple[Event, ...] = (), where: str = ""
) -> Plan:
    unfit, then = pods.unfit(gang), ""
    if pods.needs_recreation(gang, unfit):
        status = plan.restart_with_new_pods(gang, pods.recreate_members(gang, status, unfit))
        then = decisions.all_replaced("Most")
    else:
        status = plan.restart(gang, pods.replace_members(gang, status, unfit))
        if unfit:
            then = decisions.get_new_pods(_replaced(unfit, known=status.incidents[0].cause.member))
    gathers = decisions.attempt_gathers(status.attempt, where)
    because = decisions.attempt_ends(gang.status.attempt, what, gathers, then)
    evidence = StrongestEvidence(status.incidents[0].cause, status.incidents[0].level, found)
    # A provisional end creates no pods.
    goes_on = settle_cause(gang.with_status(status), evidence).outcome == "Restarted"
    return plan_write(gang, status, Reason.RESTARTING, because, events=events, create=goes_on, requeue_after=1.0)


def _replaced(members: Mapping[str, Defect], known: str = "") -> list[str]:
    """Each member, and what is wrong with its pod. ``known``: the member of which the message says so already."""
    return [
        name if name == known else decisions.member_replaced(name, why.message) for name, why in sorted(members.items())
    ]


def _correction(gang: Gang, status: Status) -> Event:
    last = status.incidents[0]
    text = decisions.cause_corrected(last.attempt, describe(last.cause), last.charged)
    member, trace = last.cause.member, trace_of(gang.job, last)
    pod = PodName(gang.job.metadata.name, member, last.cause.incarnation) if member else ""
    return Event(Reason.CAUSE_CORRECTED, text, member, pod, trace)


def _start_deadline(gang: Gang) -> float | None:
    """When the next member that hasn't reported Started becomes a fault; looked at once, then reports wake us."""
    pods_of = (gang.pods.get(holder) for holder in gang.holding & gang.conspicuous)
    times = (start_deadline(gang, pod, gang.heard.get(pod.uid)) for pod in pods_of if pod is not None)
    return min((time for time in times if time is not None and time > gang.now), default=None)
