"""Plans: the next status, what to do after it is durable, and why.

The next status: one function for each row of the lifecycle's table.

The rule: these functions are the only writers of ``phase``, ``phase_time`` and ``attempt``. Where an attempt begins to
gather, and where it starts, the barrier's deadlines are counted anew. A transition must not be used from a phase that
its row doesn't name.

Builds plans: what every decision that writes, or that waits, has in common.

The rule: a plan that writes says why in its message, its conditions and its first event, all in the same words.

Hand-over: what was seen on a node is told to those who repair it, by an Event on the node.

The rule: a fault (``record/incidents.py``) is told in the plan that settles its incident, a slow rank when the gang's
status begins to tell of it. An Event changes nothing: the gang has left the node, or goes on there, and other pods may
come. It is in a namespace of others, so it must not have what a worker printed or
wrote.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gangctl.api.events import is_warning
from gangctl.api.model import changed
from gangctl.api.names import PodName
from gangctl.api.reasons import Reason
from gangctl.api.roles import roles_hash
from gangctl.api.status import (
    ENDED,
    GangPhase,
    HeldRank,
    Master,
    RecordedStep,
    RejectedStep,
    RestorePoint,
    Status,
    in_phase,
)
from gangctl.core.facts.gang import Gang, incarnation, trace_of
from gangctl.core.facts.printed import ReadOutput
from gangctl.core.facts.progress import Slow
from gangctl.core.lifecycle import table
from gangctl.core.lifecycle.table import Advance, Transition
from gangctl.core.policy import admission, checkpoints, pods, requests
from gangctl.core.policy.admission import TellQueue
from gangctl.core.policy.cause import describe
from gangctl.core.policy.checks import AskCheck
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.core.policy.size import started_anew
from gangctl.core.record import conditions
from gangctl.core.record.conditions import (
    Warned,
    update_summary,
    warned_of,
    with_conditions,
    with_message,
    with_new_message,
)
from gangctl.core.record.degraded import degraded
from gangctl.core.record.incidents import incident_of_message, node_faults, with_stacks
from gangctl.words import decisions, waits
from gangctl.words.message import Message
from gangsidecar.wire import Scan

# The plan that decide() returns


@dataclass(frozen=True, slots=True)
class DeleteGang:
    """Delete the gang itself, which has ended and was kept for long enough; its pods go with it."""


@dataclass(frozen=True, slots=True)
class AskScan:
    """Ask one member which complete checkpoint steps it sees: a stateless query."""

    pod: str
    scan: Scan


PlannedAction = CreatePod | DeletePod | DeleteGang | AskScan | AskCheck | TellQueue | ReadOutput


@dataclass(frozen=True, slots=True)
class Event:
    """Said to people after the status write has succeeded."""

    reason: str
    message: Message
    member: str = ""
    pod: PodName | str = ""
    """The pod that it is about, which may be gone by now; empty if it is about none."""
    trace_id: str = ""
    """The trace of the incident that it belongs to; empty if it belongs to none."""
    node: str = ""
    """Name of the node that it is about, rather than the gang; empty if it is about none."""
    warns: bool | None = None
    """Whether its type is Warning, for a reason that isn't in the table of reasons."""

    @property
    def type(self) -> str:
        """As in Kubernetes."""
        return "Warning" if (is_warning(self.reason) if self.warns is None else self.warns) else "Normal"


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision. ``status`` is absent if nothing durable changes."""

    because: Message
    status: Status | None = None
    actions: tuple[PlannedAction, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    """Seconds after which to decide again though nothing else happened."""


# The next status


def submit(gang: Gang, status: Status) -> Status:
    """Return the status of a new gang: pods are created for its first attempt."""
    return _moved(table.SUBMIT, gang, _seen(gang, status))


def submit_suspended(gang: Gang, status: Status) -> Status:
    """Return the status of a new gang that has no pods yet."""
    return _moved(table.SUBMIT_SUSPENDED, gang, _seen(gang, status))


def start(
    gang: Gang,
    status: Status,
    *,
    ranks: tuple[HeldRank, ...],
    masters: tuple[Master, ...],
    hosts: tuple[str, ...],
    restore_point: RestorePoint | None,
    rejected_steps: tuple[RejectedStep, ...],
    recorded_steps: tuple[RecordedStep, ...],
) -> Status:
    """Return the status of an attempt that starts: what is fixed here holds for the whole attempt."""
    step = None if restore_point is None else restore_point.step
    return _moved(
        table.START,
        gang,
        status,
        ranks=ranks,
        masters=masters,
        hosts=hosts,
        restore_point=restore_point,
        rejected_steps=rejected_steps,
        corrupt_since=None,
        recorded_steps=recorded_steps,
        completed_step=None,
        lineage=checkpoints.extended_lineage(status.lineage, status.attempt, step),
        restart_from=None,
        started_attempt=status.attempt,
        attempt_generation=gang.job.metadata.generation,
        start_time=status.start_time or gang.now,
    )


def restart(gang: Gang, status: Status) -> Status:
    """Return the status in which every worker stops for the next attempt."""
    return _moved(table.RESTART, gang, status)


def restart_with_new_pods(gang: Gang, status: Status) -> Status:
    """Return the status of the next attempt, for which every pod is replaced."""
    return _moved(table.RESTART_WITH_NEW_PODS, gang, status)


def recreate(gang: Gang, status: Status) -> Status:
    """Return the status of the same attempt, for which every pod is replaced."""
    return _moved(table.RECREATE, gang, status)


def succeed(gang: Gang, status: Status) -> Status:
    """Return the status of a gang that has ended as its success policy says."""
    return _moved(table.SUCCEED, gang, status, completion_time=gang.now)


def fail(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose incident, or whose wait, ends the job."""
    return _moved(table.FAIL, gang, status, completion_time=gang.now)


def hold(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose workers stay stopped and whose pods stay."""
    return _moved(table.HOLD, gang, status)


def fail_at_deadline(gang: Gang, status: Status) -> Status:
    """Return the status of a gang that was active for too long."""
    return _moved(table.FAIL_AT_DEADLINE, gang, status, completion_time=gang.now)


def suspend(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose pods go because its spec says so."""
    return _moved(table.SUSPEND, gang, status, start_time=None)


def give_back(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose pods go because one of them could not be replaced."""
    return _moved(table.GIVE_BACK, gang, status, start_time=None, given_back=True)


def resume(gang: Gang, status: Status, base_incarnation: int) -> Status:
    """Return the status of a gang that gets new pods, all of ``base_incarnation``, for the next attempt."""
    return _moved(
        table.RESUME,
        gang,
        _seen(gang, status),
        resumed_attempt=status.attempt + 1,
        finished=None,
        base_incarnation=base_incarnation,
        replaced=(),
        recreated=None,
        ranks=(),
        masters=(),
        hosts=(),
        size=started_anew(status),
    )


def restart_held(gang: Gang, status: Status) -> Status:
    """Return the status of a held gang whose next attempt was asked for."""
    return _moved(table.RESTART_HELD, gang, requests.take_request(gang.spec, status))


def fail_held(gang: Gang, status: Status) -> Status:
    """Return the status of a gang that was held for too long."""
    return _moved(table.FAIL_HELD, gang, status, completion_time=gang.now)


def _seen(gang: Gang, status: Status) -> Status:
    """The status that goes by the roles and the restart token of the spec as it is now."""
    return changed(requests.take_request(gang.spec, status), roles_hash=roles_hash(gang.spec.roles))


def _moved(row: Transition, gang: Gang, status: Status, **changes: Any) -> Status:
    assert status.phase in row.sources, f"{row.name} does not lead out of {status.phase}"
    attempt = status.attempt + (row.attempt is Advance.NEXT)
    if row.attempt is Advance.NEXT or row.target is GangPhase.RUNNING:
        status = changed(status, barrier_timeouts=0, deadline_time=None)
    if status.restart_wait_time is not None:
        status = changed(status, restart_wait_time=None)
    return in_phase(status, row.target, gang.now, attempt, **changes)


# Builds plans


def plan_write(
    gang: Gang,
    status: Status,
    reason: Reason,
    because: Message,
    *,
    events: Iterable[Event] = (),
    create: bool = True,
    requeue_after: float | None = None,
) -> Plan:
    """The plan that stores ``status``, says why, and brings the pods to it."""
    if status.phase is not GangPhase.RUNNING:  # Each write may lose the pod that has reported it.
        status = checkpoints.note_corruption(gang, status)
    refused = admission.refusal(gang, status)
    if refused is not None and status.phase is GangPhase.PENDING and not admission.creates(gang, status):
        reason, because = Reason.TEMPLATE_REFUSED, refused
    status = with_stacks(gang, update_summary(gang, with_message(status, because)))
    generation = gang.job.metadata.generation
    sized = gang if status.size == gang.status.size else gang.with_status(status)  # Of most, all is known by now.
    warned = degraded(sized, status.phase)
    status = with_conditions(gang.job, status, gang.now, reason, warned, refused=refused)
    status = changed(status, observed_generation=generation)
    event = Event(reason, because)
    return Plan(
        because=because,
        status=status,
        actions=pods.actions(gang, status, create=create),
        events=(
            *(_completed(gang, status, one) for one in (event, *events)),
            *begun(gang, warned),
            *handed_over(gang, status),
        ),
        requeue_after=requeue_after,
    )


def begun(gang: Gang, warned: Warned | None) -> tuple[Event, ...]:
    """The Event of a warning that the status doesn't have yet."""
    return () if warned is None or warned[0] == warned_of(gang.status) else (Event(*warned),)


def _completed(gang: Gang, status: Status, event: Event) -> Event:
    """The event with its trace and its pod, where they are not set yet.

    The trace is that of the incident that this write opens, settles or finds open. The incident is about the pod of its
    cause, also when the member has a new pod by now.
    """
    incident = incident_of_message(status)
    before = gang.status.incidents[0] if gang.status.incidents else None
    if before is not None and incident is not None and before.attempt == incident.attempt and before.settled:
        incident = None
    if incident is not None and not event.trace_id:
        event = replace(event, trace_id=trace_of(gang.job, incident))
        cause = incident.cause
        if not event.pod and cause.member and event.member in {"", cause.member}:
            event = replace(event, pod=PodName(gang.job.metadata.name, cause.member, cause.incarnation))
    if event.member and not event.pod:
        number = incarnation(status, event.member)
        event = replace(event, pod=PodName(gang.job.metadata.name, event.member, number))
    return event


def wait(gang: Gang, because: Message, times: Iterable[float | None], actions: Iterable[PlannedAction] = ()) -> Plan:
    """The plan that changes nothing durable, and looks again at the first of ``times``."""
    known = [time for time in times if time is not None and time > gang.now]  # What has passed is decided on now.
    plan = Plan(because=because, actions=tuple(actions))
    return with_look_by(gang, plan, min(known)) if known else plan


def with_look_by(gang: Gang, plan: Plan, time: float) -> Plan:
    """The plan that decides again at this time at the latest."""
    left = max(0.05, time - gang.now)
    return replace(plan, requeue_after=left if plan.requeue_after is None else min(left, plan.requeue_after))


def with_finished(gang: Gang, plan: Plan) -> Plan:
    """The plan that also records who has finished: with what it writes, else at once, but at most once a second."""
    if plan.status is not None:
        return replace(plan, status=conditions.with_finished_members(gang, plan.status))
    status = conditions.with_finished_members(gang, gang.status)
    if status is gang.status or status.phase in ENDED:
        return plan
    due = conditions.finished_due_at(gang)
    if gang.now >= due:
        return replace(plan, status=update_summary(gang, status))
    return with_look_by(gang, plan, due)


def with_acceptance(gang: Gang, plan: Plan) -> Plan:
    """The plan that also says whether the cluster takes the gang's pods, if it writes nothing else and that is news."""
    status, refused = gang.status, admission.refusal(gang, gang.status)
    if plan.status is not None or status.phase in ENDED or gang.observed.refused is None:
        return plan
    if refused.is_same(status.refusal) if refused is not None else not admission.is_stored_as_refused(status):
        return plan
    reason = Reason.TEMPLATE_ACCEPTED if refused is None else Reason.TEMPLATE_REFUSED
    because = waits.pods_accepted() if refused is None else refused
    pending = status.phase is GangPhase.PENDING
    if pending:
        status = with_new_message(status, refused or plan.because)
    kept = Reason.QUEUED if admission.is_told_waiting(gang.status) else None
    shown = reason if refused is not None and pending else kept
    status = with_conditions(gang.job, status, gang.now, shown, refused=refused)
    event = Event(reason, because)
    return replace(plan, because=because, status=status, events=(*plan.events, event))


# Hand-over


def handed_over(gang: Gang, status: Status) -> Iterator[Event]:
    """The Events of faults that ``status`` settles."""
    for node, incident in node_faults(gang.status, status):
        cause, job = incident.cause, gang.job
        pod = PodName(job.metadata.name, cause.member, cause.incarnation)
        seen = describe(changed(cause, printed="", words=""))  # Those who read a node's Events need not read these.
        message = decisions.node_at_fault(job.metadata.namespace, job.metadata.name, seen)
        yield Event(Reason.NODE_AT_FAULT, message, cause.member, pod, trace_of(job, incident), node)


def slow_rank_events(gang: Gang, found: list[Slow]) -> Iterator[Event]:
    """The Events of slow ranks."""
    namespace, name = gang.job.metadata.namespace, gang.job.metadata.name
    for rank in found:
        pod = gang.pods[rank.member]
        message = decisions.rank_slow_on_node(namespace, name, rank.member, rank.rank, rank.excess)
        yield Event(Reason.NODE_AT_FAULT, message, rank.member, pod.name, node=pod.node)
