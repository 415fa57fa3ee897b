"""Incidents: from the first fault to the first training step after it, as the status tells it.

The rule: one attempt, one incident, whatever the number of faults. Write 1 opens it, write 2 settles it, and the next
write of the status takes in its timings. A duration must not be negative, whatever the clocks do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from gangctl.api.changes import changed
from gangctl.api.checkpoint_status import RestorePoint
from gangctl.api.incident import Cause, Incident, IncidentLevel, LedgerEntry, PhaseMilliseconds
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.facts.defaults import Strength
from gangctl.core.facts.evidence import Fault, strength
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.progress import first_step
from gangctl.core.facts.ranks import assign
from gangctl.core.facts.trace_context import follows_at_once, trace_id, trace_of
from gangctl.core.policy import budget, ladder, restart_backoff
from gangctl.core.policy.cause import Settlement, describe, judged
from gangctl.core.record import loss, stragglers, timings
from gangctl.core.record.kept_signal import kept_signal
from gangctl.words.decisions import incident_summary
from gangctl.words.message import Message

KEPT: Final = 10
"""Incidents in the status, newest first."""


def opened(gang: Gang, cause: Cause, level: IncidentLevel, *, planned: bool = False) -> tuple[Incident, ...]:
    """The incidents with a new one for the next attempt."""
    attempt = gang.status.attempt + 1
    incident = Incident(
        attempt=attempt,
        time=gang.now,
        cause=cause,
        level=level,
        planned=planned,
        milliseconds=PhaseMilliseconds(detect=timings.milliseconds(gang.now - cause.time)),
        trace_id=trace_id(gang.job, attempt),
        linked_trace_id=_followed(gang),
    )
    return (incident, *gang.status.incidents)[:KEPT]


def told_of(status: Status) -> Incident | None:
    """The incident that the status' message is about: it is open, or the attempt began, or ended, by its settling."""
    last = status.incidents[0] if status.incidents else None
    if last is None or last.attempt != status.attempt:
        return None
    return last if not last.settled or last.settled_time == status.phase_time else None


def is_open(gang: Gang) -> bool:
    """Whether the attempt that is being gathered belongs to an incident (a first start and a resume don't)."""
    incidents = gang.status.incidents
    return bool(incidents) and incidents[0].attempt == gang.status.attempt and not incidents[0].settled


def settled(
    gang: Gang,
    status: Status,
    settlement: Settlement,
    point: RestorePoint | None,
    assignment: Mapping[str, str | None],
) -> Status:
    """The status with its open incident settled: cause, level, charge, timings, ledger and counts.

    ``assignment``: place -> the ready member that runs it in the attempt that starts; None where there is none.
    """
    incident = status.incidents[0]
    restarted = settlement.outcome == "Restarted"
    lost = loss.steps(gang, point) if restarted else None
    seconds = loss.seconds(gang, lost)
    gathered = stragglers.gathering(gang, assignment)
    closed = changed(
        incident,
        cause=settlement.cause,
        level=settlement.level if settlement.cause.alike else ladder.highest(incident.level, settlement.level),
        charged=settlement.charged,
        settled=True,
        settled_time=gang.now,
        outcome=settlement.outcome,
        kept_signal=kept_signal(gang),
        restored_step=None if point is None else point.step,
        lost_steps=lost,
        lost_steps_at_most=loss.at_most(gang, lost),
        lost_seconds=seconds,
        milliseconds=timings.settled(gang, incident, gathered),
        members=stragglers.settled(gang, changed(incident, cause=settlement.cause), gathered),
    )
    member, number = ladder.suspected(settlement.cause)
    entry = LedgerEntry(
        time=gang.now,
        attempt=incident.attempt,
        member="" if settlement.cause.alike else member,
        incarnation=number,
        charged=settlement.charged,
        failure=restart_backoff.counts(settlement.cause),
        restored_step=None if gang.status.restore_point is None else gang.status.restore_point.step,
        progressed=_progressed(gang, settlement, point),
    )
    status = changed(status, incidents=(closed, *status.incidents[1:]))
    in_a_row = restart_backoff.in_a_row(gang, settlement.cause, progressed=entry.progressed)
    return entered(gang, loss.noted(status, seconds), entry, in_a_row) if restarted else status


def _progressed(gang: Gang, settlement: Settlement, point: RestorePoint | None) -> bool | None:
    """Whether the failed attempt made a step: it reported one, or left a checkpoint beyond what it had restored.

    A restart that a user asks for ends a row of failures: what was wrong may be mended.
    """
    if settlement.cause.reason == Reason.RESTART_REQUESTED:
        return None
    reported, before = ladder.has_progressed(gang), gang.status.restore_point
    if reported is not None or point is None or gang.status.restart_from is not None:
        return reported
    return True if before is None or point.step > before.step else None


def entered(gang: Gang, status: Status, entry: LedgerEntry, in_a_row: int) -> Status:
    """The status with one more attempt in its ledger and its counts. ``in_a_row``: restarts since the last step."""
    ledger = budget.entered(gang.spec, status, entry)
    restarts = status.restarts
    counts = changed(
        restarts,
        counted=restarts.counted + entry.charged,
        uncounted=restarts.uncounted + (not entry.charged),
        in_window=sum(one.charged for one in ledger),
        without_step=in_a_row,
    )
    return changed(status, ledger=ledger, restarts=counts)


def finished(gang: Gang, status: Status, outcome: Literal["Failed", "Held", "Succeeded", "Suspended"]) -> Status:
    """The status whose open incident, if there is one, came to this end."""
    incidents = status.incidents
    if not incidents or incidents[0].settled:
        return status
    gathered = stragglers.gathering(gang, assign(gang))
    closed = changed(
        incidents[0],
        settled=True,
        settled_time=gang.now,
        outcome=outcome,
        milliseconds=timings.settled(gang, incidents[0], gathered),
        members=stragglers.settled(gang, incidents[0], gathered),
    )
    return changed(status, incidents=(closed, *incidents[1:]))


def corrected(gang: Gang, status: Status, fault: Fault) -> Status:
    """The status whose last incident has a stronger cause, learnt soon after write 2.

    Its charge is refunded: the same fault opens the next incident, which is charged if a rule says so.
    """
    if not status.incidents:
        return status
    last = status.incidents[0]
    window = gang.spec.recovery.evidence_window_seconds
    late = last.settled_time is None or gang.now > last.settled_time + window
    if late or fault.strength <= max(strength(last.cause), Strength.CONTAINER) or not _explains(gang, last, fault):
        return status
    better = changed(last, cause=judged(gang.spec, fault), charged=False)
    ledger = tuple(
        changed(
            entry,
            charged=False,
            failure=restart_backoff.counts(better.cause),
            member=fault.member,
            incarnation=fault.incarnation,
        )
        if entry.attempt == last.attempt
        else entry
        for entry in status.ledger
    )
    restarts = changed(
        status.restarts,
        counted=status.restarts.counted - last.charged,
        uncounted=status.restarts.uncounted + last.charged,
        without_step=max(0, status.restarts.without_step - restart_backoff.counts(last.cause)),
        in_window=sum(entry.charged for entry in ledger),
    )
    return changed(status, incidents=(better, *status.incidents[1:]), ledger=ledger, restarts=restarts)


def _explains(gang: Gang, last: Incident, fault: Fault) -> bool:
    """Whether the fault may be what the last incident's cause was an echo of.

    A pod's disruption explains what its own worker did, a sick node or device what any worker did.
    """
    if (fault.member, fault.incarnation) == (last.cause.member, last.cause.incarnation):
        return True
    entry = gang.replaced.get(fault.member)
    return fault.strength >= Strength.NODE and (entry is None or entry.attempt < last.attempt)


def summary(incident: Incident) -> Message:
    """Return the incident in one line."""
    return incident_summary(incident.attempt, describe(incident.cause))


def _followed(gang: Gang) -> str:
    """The trace of the incident that led to the attempt that fails now, if it fails right after its start.

    That is without a step, in a gang that has reported steps before, or a moment after it began.
    """
    status = gang.status
    last = status.incidents[0] if status.incidents else None
    if last is None or last.attempt != status.attempt or last.outcome != "Restarted" or last.settled_time is None:
        return ""
    first = first_step(gang)
    without_step = first is not None and first.attempt != status.attempt
    return trace_of(gang.job, last) if follows_at_once(last, gang.now) or without_step else ""
