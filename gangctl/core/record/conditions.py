"""Conditions and summary: what programs and people read of the status, and how it stays small.

Conditions: what machines read of the status. A condition's time changes only when its state does.

The summary in a status: how many members are ready or have finished, and the highest step.

The rule: a summary decides nothing; it is brought up to date with each write, and now and then without another reason.

Who has finished, as the status remembers it.

The rule: each write of the status records who has finished by then; where nothing else is to be written, that alone is,
at most once a second. So success doesn't depend on a report that a hub may forget, or on a pod that may vanish. What is
recorded must not be taken back within its attempt, and must not count for another.

The worker's own words: what the worker at fault printed last goes into the incident that its end led to.

The rule: it is read once for each cause that is the end of a process or of a container, when the write that opens the
incident is stored. The newest two incidents that have it keep the lines, and each keeps the line that tells most. A
process that SIGKILL ended could not say why, so of that one only an exception is a word about its end. No decision may
depend on it, and no restart waits for it.

Goodput: what a gang's time went to, added up at each write of its status, so it is right across controllers.

The rule: the time since the last write belongs to what the gang was doing then: before the first step of an attempt to
its start-up, or to the recovery if an incident had led to it; from that step's own moment on to training, until the
fault that ended it. While a hang is known, and only observed, it belongs to recovery. A second must not count twice,
and no bucket may go down, whatever clocks do: time that a clock repeats is not counted again.

A gang that never reports a step has no goodput: all its attempts would be start-up.

Fitting: a status is small enough to be stored, whatever happened.

    size(status) <= LARGEST

The rule: each list has its own bound where it is filled. Should all of them be full at once, the status gives up first
what it only tells, then what only helps: stacks, the output of workers, earlier incidents, sentences that are told
twice, host files, the names of the pods that are waited for (they are waited for as one then), the uncharged past,
nodes to avoid. Rejected steps come last, the lowest first: the newest step that isn't rejected is what a restart tries.
What the barrier, the budget and the incarnations need is never given up.
"""

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, Output
from gangctl.api.model import changed, sentence
from gangctl.api.names import signal_name
from gangctl.api.reasons import Reason
from gangctl.api.roles import layout
from gangctl.api.status import ENDED, Condition, ConditionType, GangPhase, RoleStatus, Spent, Status
from gangctl.core.facts.barrier import awaiting_as_one
from gangctl.core.facts.gang import Gang, roles_of, trace_of, waiting_roles
from gangctl.core.facts.printed import ReadOutput
from gangctl.core.facts.progress import (
    attempt_with_workers,
    finished_places,
    finished_record,
    first_step,
    highest_step,
    recorded_places,
)
from gangctl.core.policy.hangs import step_gaps
from gangctl.core.policy.restore import highest_steps
from gangctl.core.record.incidents import incident_of_message
from gangctl.words.message import Message, said_again

# Conditions


ConditionStatus = Literal["True", "False", "Unknown"]
Warned = tuple[Reason, Message]
"""The thing that a user should look at, in one word and in a sentence."""

PHASE_REASONS = {
    GangPhase.PENDING: Reason.PENDING,
    GangPhase.GATHERING: Reason.GATHERING,
    GangPhase.RUNNING: Reason.RUNNING,
    GangPhase.SUSPENDED: Reason.SUSPENDED,
    GangPhase.HELD: Reason.HELD,
    GangPhase.SUCCEEDED: Reason.SUCCEEDED,
    GangPhase.FAILED: Reason.BUDGET_EXHAUSTED,
}


def with_message(status: Status, message: Message) -> Status:
    return changed(status, message=str(message), said=message.said())


def stored_message(status: Status) -> Message:
    return Message.stored(status.message, status.said)


def with_new_message(status: Status, message: Message) -> Status:
    """Return the status with this message; the same object if it says that already, in whatever words."""
    return status if message.is_same(status.said) else with_message(status, message)


def with_message_again(gang: Gang, status: Status) -> Status:
    """Return the status whose message and conditions have what the worker at fault for its newest incident printed."""
    cause = status.incidents[0].cause

    def update(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        is_cause = name == "cause" and (given.get("member"), given.get("rank")) == (cause.member, cause.rank)
        return {"printed": cause.printed} if is_cause else {}

    again = None if status.said is None else said_again(status.said, update)
    if again is None:
        return status
    text = _with_trace(gang.job, again, incident_of_message(status))
    kept = {ConditionType.ACCEPTED, *([ConditionType.DEGRADED] if warning(status) else [])}
    told = (each if each.type in kept else changed(each, message=text) for each in status.conditions)
    return with_message(changed(status, conditions=tuple(told)), again)


def with_conditions(
    job: GangJob,
    status: Status,
    now: float,
    reason: Reason | None = None,
    degraded: Warned | None = None,
    *,
    refused: Message | None = None,
) -> Status:
    """Return the status with all conditions, in a fixed order. Where they are about an incident, they name its trace.

    ``reason`` is more exact than the phase's; ``degraded`` says what a user should look at, ``refused`` why the cluster
    takes no pods of the gang.
    """
    return changed(
        status,
        conditions=_conditions(job, status, now, reason, degraded, refused=refused or ""),
        warning=None if degraded is None else degraded[1].said(),
        refusal=None if refused is None else refused.said(),
    )


def _conditions(
    job: GangJob, status: Status, now: float, reason: Reason | None, degraded: Warned | None, *, refused: str
) -> tuple[Condition, ...]:
    phase, generation = status.phase, job.metadata.generation
    text = _with_trace(job, status.message, incident_of_message(status))
    why = reason or PHASE_REASONS.get(phase, Reason.SUBMITTED)
    restarting = phase is GangPhase.GATHERING or (phase is GangPhase.PENDING and status.attempt > 1)
    progressing = phase in {GangPhase.GATHERING, GangPhase.RUNNING} or (phase is GangPhase.PENDING and not refused)
    states: list[tuple[ConditionType, bool]] = [
        (ConditionType.READY, phase is GangPhase.RUNNING and not waiting_roles(job.spec, status)),
        (ConditionType.PROGRESSING, progressing),
        (ConditionType.SUSPENDED, phase is GangPhase.SUSPENDED),
        (ConditionType.RESTARTING, restarting),
        (ConditionType.FINISHED, phase in ENDED),
        (ConditionType.SUCCEEDED, phase is GangPhase.SUCCEEDED),
        (ConditionType.FAILED, phase is GangPhase.FAILED),
    ]
    old = {condition.type: condition for condition in status.conditions}
    accepted = _accepted(old.get(ConditionType.ACCEPTED), why, status.message, refused, at=(generation, now))
    rest = (
        _condition(old.get(kind), kind, state="True" if holds else "False", why=why, text=text, at=(generation, now))
        for kind, holds in states
    )
    found = (accepted, *rest)
    seen = old.get(ConditionType.DEGRADED)
    if not degraded and seen is None:
        return found
    looking = _condition(
        seen,
        ConditionType.DEGRADED,
        state="True" if degraded else "False",
        why=degraded[0] if degraded else why,
        text=degraded[1] if degraded else text,
        at=(generation, now),
    )
    return (*found, looking)


def _with_trace(job: GangJob, message: str, incident: Incident | None) -> str:
    return sentence(message, "" if incident is None else f" (trace {trace_of(job, incident)})")


def warning(status: Status) -> Condition | None:
    """The condition Degraded; None if it doesn't hold."""
    found = status.condition(ConditionType.DEGRADED)
    return found if found is not None and found.status == "True" else None


def warned_of(status: Status) -> str:
    """The reason of the condition Degraded; empty if it doesn't hold."""
    found = warning(status)
    return "" if found is None else found.reason


def hangs(status: Status) -> bool:
    """Whether the gang runs, and hangs, and nothing is restarted because of it."""
    return status.phase is GangPhase.RUNNING and warned_of(status) == Reason.HANG


def _condition(
    old: Condition | None, kind: ConditionType, *, state: ConditionStatus, why: Reason, text: str, at: tuple[int, float]
) -> Condition:
    return Condition(
        type=kind,
        status=state,
        reason=why,
        message=text,
        observed_generation=at[0],
        last_transition_time=old.last_transition_time if old is not None and old.status == state else at[1],
    )


def _accepted(old: Condition | None, why: Reason, text: str, refused: str, at: tuple[int, float]) -> Condition:
    """An accepted gang keeps its condition: it does not change with each decision."""
    if refused:
        return _condition(old, ConditionType.ACCEPTED, state="False", why=Reason.TEMPLATE_REFUSED, text=refused, at=at)
    if old is not None and old.status == "True":
        return old
    reason = why if old is None else Reason.TEMPLATE_ACCEPTED
    return _condition(old, ConditionType.ACCEPTED, state="True", why=reason, text=text, at=at)


# The summary in a status


def update_summary(gang: Gang, status: Status) -> Status:
    """The status with the counts for people brought up to date."""
    held, done = {entry.place: entry.member for entry in status.ranks}, finished_places(gang)
    wanted = {role.name: role.replicas for role in gang.spec.roles}
    roles = tuple(
        RoleStatus(
            name=role,
            desired=wanted[role],
            ready=len(gang.speaking & places.difference(held).union(held[place] for place in held if place in places)),
            succeeded=len(done & places),
        )
        for role, places in layout(roles_of(gang.spec, status)).places_of.items()
    )
    ready, total = sum(role.ready for role in roles), sum(role.desired for role in roles)
    return changed(status, roles=roles, ready=f"{ready}/{total}", observed_time=gang.now)


def record_progress(gang: Gang, status: Status) -> Status:
    """The status with the highest step that any rank has reported in this attempt, its first one, and the gaps."""
    best, first = highest_step(gang, gang.status.attempt) or status.progress, first_step(gang)
    seen = step_gaps(gang)
    if (best, first, seen) == (status.progress, status.first_step, status.step_gaps):
        return status
    return changed(status, progress=best, first_step=first, step_gaps=seen)


# Who has finished, as the status remembers it


RECORD_SECONDS: Final = 1.0
"""From one write that only records who has finished to the next: 10,000 members finish within moments of each other."""


def with_finished_members(gang: Gang, status: Status) -> Status:
    """The status with all that have finished by now; the same object if that is no news. A new attempt has none."""
    attempt = attempt_with_workers(status)
    if attempt != attempt_with_workers(gang.status):
        return status if status.finished is None else changed(status, finished=None)
    news = finished_places(gang) - recorded_places(status, attempt)
    return changed(status, finished=finished_record(gang)) if news else status


def finished_due_at(gang: Gang) -> float:
    """When the next write that only records it may be made."""
    last = gang.status.finished
    return 0.0 if last is None or last.time > gang.now else last.time + RECORD_SECONDS


# The worker's own words


EARLIER: Final = 1
"""So many of an earlier incident are kept beside the newest."""
OUTPUT_SECONDS: Final = 60.0
"""After the begin of the incident, a new leader does not look for it any more."""
_KILLED: Final = signal_name(signal.SIGKILL)
_ENDS: Final = frozenset(
    {
        Reason.EXIT_CODE,
        Reason.EXIT_CODE_HIDDEN,
        Reason.SIGNAL,
        Reason.OOM_KILLED,
        Reason.CONTAINER_RESTARTED,
        Reason.START_FAILED,
    }
)


def output_query(gang: Gang, status: Status) -> ReadOutput | None:
    """What is to be read once ``status`` is stored; None if it is known, or the cause is no end of a process."""
    last = _newest(status)
    if last is None or gang.now > last.time + OUTPUT_SECONDS or last.cause.reason not in _ENDS:
        return None
    query, answer = _query(last), gang.observed.output
    if not query.member or _is_known(last) or (answer is not None and answer.query == query):
        return None
    return query


def with_output_read(gang: Gang) -> Status:
    """Return the status with what was read of its newest incident, in its message too; the same object if not new."""
    status, answer = gang.status, gang.observed.output
    last = _newest(status)
    if last is None or answer is None or answer.query != _query(last) or not answer.printed.lines or _is_known(last):
        return status
    says_why = answer.printed.is_error or last.cause.signal != _KILLED
    told = changed(
        last,
        cause=changed(last.cause, printed=answer.printed.line if says_why else ""),
        output=Output(member=last.cause.member, text="\n".join(answer.printed.lines)),
    )
    earlier, left = [], EARLIER
    for one in status.incidents[1:]:
        earlier.append(changed(one, output=None) if one.output is not None and left <= 0 else one)
        left -= one.output is not None
    return with_message_again(gang, changed(status, incidents=(told, *earlier)))


def _newest(status: Status) -> Incident | None:
    last = status.incidents[0] if status.incidents else None
    return None if last is None or last.attempt != status.attempt else last


def _query(incident: Incident) -> ReadOutput:
    cause = incident.cause
    return ReadOutput(cause.member, cause.incarnation, incident.attempt - 1, cause.rank)


def _is_known(incident: Incident) -> bool:
    """Whether it is stored, of the cause as it is by now."""
    told = incident.output
    return bool(incident.cause.printed) or (told is not None and told.member == incident.cause.member)


# Goodput


_MILLISECONDS = 1000
_RESTING = {
    GangPhase.SUSPENDED: "suspended",
    GangPhase.PENDING: "pending",
    GangPhase.HELD: "held",
}


def with_time_accounted(gang: Gang, after: Status) -> Status:
    """The status that is to be written, with the time until now accounted for. Every write goes through here."""
    before = gang.status
    first, spent, until = first_step(gang), after.spent, after.accounted_time
    if before.phase is GangPhase.NEW or not before.accounted_time:
        until = max(gang.now, until)  # It is seen for the first time, by a version that accounts.
    elif before.phase not in ENDED:
        known = changed(before, first_step=first)
        spent, until = _added(known, spent, max(gang.now, before.accounted_time), _fault(before, after))
    # What is lost is reckoned from the pace, and can't be more than is accounted for.
    spent = changed(spent, lost_progress=min(spent.lost_progress, spent.training - spent.missing_members))
    return changed(after, first_step=first, spent=spent, accounted_time=until)


def spent_until(status: Status, now: float) -> Spent:
    """What the time until now went to, as far as the stored status tells it. ``now``: seconds since the epoch.

    A first step, and a fault, that no write has recorded yet still count as what was before them.
    """
    if status.phase is GangPhase.NEW or status.phase in ENDED or not status.accounted_time:
        return status.spent
    return _added(status, status.spent, max(now, status.accounted_time), None)[0]


def total(spent: Spent) -> float:
    """All that is accounted for, in seconds. What was lost, or missing, is a part of training, so it isn't added."""
    return spent.training + spent.start_up + spent.recovery + spent.suspended + spent.pending + spent.held


def goodput(spent: Spent) -> float | None:
    """The part of the time that went to training which counts, 0 to 1; None for a gang that never reported a step.

    Training with half of the members that are wanted counts half.
    """
    counts = spent.training - spent.lost_progress - spent.missing_members
    return counts / total(spent) if spent.training > 0 else None


def _added(before: Status, spent: Spent, until: float, fault: float | None) -> tuple[Spent, float]:
    """What is spent with the time from ``before``'s account until then, and until when that is, in whole milliseconds.

    ``fault``: when the fault happened that ended its attempt, if one did.
    """
    since = before.accounted_time
    span = int((until - since) * _MILLISECONDS)
    shares: Counter[str] = Counter()
    if before.phase in _RESTING:
        shares[_RESTING[before.phase]] = span
    elif hangs(before):
        shares["recovery"] = span
    else:
        first = before.first_step
        begins = span
        if before.phase is GangPhase.RUNNING and first is not None and first.attempt == before.attempt:
            begins = _clamped((first.time - since) * _MILLISECONDS, 0, span)
        ends = span if fault is None else _clamped((fault - since) * _MILLISECONDS, begins, span)
        recovers = bool(before.incidents) and before.incidents[0].attempt == before.attempt
        shares["recovery" if recovers else "start_up"] = begins
        shares["training"] = ends - begins
        shares["recovery"] += span - ends
    added = changed(
        spent,
        training=_sum(spent.training, shares["training"]),
        missing_members=_sum(spent.missing_members, int(shares["training"] * missing_share(before))),
        start_up=_sum(spent.start_up, shares["start_up"]),
        recovery=_sum(spent.recovery, shares["recovery"]),
        suspended=_sum(spent.suspended, shares["suspended"]),
        pending=_sum(spent.pending, shares["pending"]),
        held=_sum(spent.held, shares["held"]),
    )
    # Rounded as a Timestamp is: copies aren't validated.
    return added, round(since + span / _MILLISECONDS, 6)


def missing_share(status: Status) -> float:
    """The part of the members that are wanted which the newest attempt doesn't have."""
    smaller = {} if status.size is None else status.size.members
    wanted = {role.name: role.desired for role in status.roles}
    missing = sum(max(0, wanted.get(name, 0) - members) for name, members in smaller.items())
    return missing / sum(wanted.values()) if missing else 0.0


def _fault(before: Status, after: Status) -> float | None:
    """When the fault happened for which this write opens an incident."""
    if before.phase is not GangPhase.RUNNING or after.attempt == before.attempt or not after.incidents:
        return None
    newest = after.incidents[0]
    return newest.cause.time if newest.attempt == after.attempt else None


def _clamped(value: float, least: int, most: int) -> int:
    return int(min(max(value, least), most))


def _sum(seconds: float, milliseconds: int) -> float:
    return round(seconds + milliseconds / _MILLISECONDS, 3) if milliseconds else seconds


# Fitting


LARGEST: Final = 96 * 1024
"""Bytes of JSON from which on a status gives up something. The last resort leaves it below 128 KiB."""
RECENT: Final = 2
"""Incidents that decisions read, newest first."""
SHORT: Final = 120
"""Characters of a sentence of an earlier incident."""
REMEMBERED: Final = 8
"""Uncharged entries of the ledger and replaced members with nodes to avoid, the newest of each."""
REJECTED_COUNTS: Final = (128, 64, 32, 16, 8)
"""So many rejected steps are kept, one after the other until the status is small enough."""


def with_size_limited(status: Status) -> Status:
    """The status, without what it can do without if it would be too large."""
    for smaller in _STEPS:
        if size(status) <= LARGEST:
            break
        status = smaller(status)
    return status


def size(status: Status) -> int:
    """Bytes of its JSON, as it is stored."""
    return len(status.model_dump_json(by_alias=True, exclude_none=True).encode())


def _without_stacks(one: Incident) -> Incident:
    return changed(one, stacks=None)


def _without_output(one: Incident) -> Incident:
    return changed(one, output=None)


def _without_members(one: Incident) -> Incident:
    return changed(one, members=())


def _in_short(one: Incident) -> Incident:
    cause = changed(one.cause, message=one.cause.message[:SHORT], why=one.cause.why[:SHORT], said=None, printed="")
    return changed(one, cause=cause, warm_start=None)


def _earlier(recent: int, smaller: Callable[[Incident], Incident], status: Status) -> Status:
    """Make all incidents smaller but so many of the newest."""
    new, old = status.incidents[:recent], status.incidents[recent:]
    return changed(status, incidents=(*new, *map(smaller, old)))


def _conditions_in_short(status: Status) -> Status:
    """The message of the status says the same in full."""
    told = (ConditionType.ACCEPTED, ConditionType.DEGRADED)
    conditions = (one if one.type in told else changed(one, message=one.message[:SHORT]) for one in status.conditions)
    return changed(status, conditions=tuple(conditions))


def _charged(status: Status) -> Status:
    left = sum(not entry.charged for entry in status.ledger) - REMEMBERED
    kept = []
    for entry in status.ledger:
        if entry.charged or left <= 0:
            kept.append(entry)
        left -= not entry.charged
    return changed(status, ledger=tuple(kept))


def _rejecting(count: int, status: Status) -> Status:
    return changed(status, rejected_steps=highest_steps(status.rejected_steps, count))


def _avoiding_few(status: Status) -> Status:
    old, new = status.replaced[:-REMEMBERED], status.replaced[-REMEMBERED:]
    return changed(status, replaced=(*(changed(entry, avoid=(), required=False) for entry in old), *new))


_STEPS: Final[tuple[Callable[[Status], Status], ...]] = (
    partial(_earlier, 1, _without_stacks),
    partial(_earlier, 0, _without_stacks),
    partial(_earlier, 0, _without_output),
    partial(_earlier, RECENT, _without_members),
    partial(_earlier, RECENT, _in_short),
    lambda status: changed(status, incidents=status.incidents[: 2 * RECENT]),
    _conditions_in_short,
    lambda status: changed(status, hosts=()),
    awaiting_as_one,
    _charged,
    _avoiding_few,
    *(partial(_rejecting, count) for count in REJECTED_COUNTS),
)
"""What is given up, one after the other."""
