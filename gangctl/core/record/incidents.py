"""Incidents: from the first fault to the first training step after it, as the status records it.

Incidents: from the first fault to the first training step after it, as the status tells it.

The rule: one attempt, one incident, whatever the number of faults. Write 1 opens it, write 2 settles it, and the next
write of the status takes in its timings. A duration must not be negative, whatever the clocks do.

Which members kept the stop signal for themselves, so that the restart waited for the whole grace.

The rule: a member kept it if its supervisor, Ready for the stored attempt, reports when SIGKILL came in that stop. No
decision may depend on it. A member whose worker ended within the grace must not be named.

Faults that are told to those who repair nodes: what gangctl has learnt there and has left the pod for.

    at_fault(incident) = its cause is a device, or its pod was replaced since the fault itself, the framework or a rule
                         asks for another pod

Not told is what the cluster has said itself (a lost node, a signal, a disruption), what all members did alike, and what
only the ladder has moved: a script that fails again and again is no fault of its node. A fault is told once, when its
incident is settled. Nothing is cordoned: that is for those who repair.

The stacks of the member at fault for a hang, as its supervisor has taken them before the stop.

The rule: they go into the incident with the first write after they are heard, and cost no write of their own. The
newest two are kept. They may tell whose fault it is (``facts/progress.py``), and no restart waits for them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from gangctl.api.incident import (
    Cause,
    CheckResult,
    Incident,
    IncidentLevel,
    KeptSignal,
    LedgerEntry,
    PhaseMilliseconds,
    Stacks,
)
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import layout
from gangctl.api.status import RestorePoint, Status
from gangctl.core.facts.evidence import Fault, Strength, default, strength
from gangctl.core.facts.gang import Gang, follows_at_once, trace_id, trace_of
from gangctl.core.facts.progress import first_step
from gangctl.core.policy import recovery
from gangctl.core.policy.cause import Settlement, judge_fault
from gangctl.core.policy.recovery import assign
from gangctl.core.record import timings
from gangctl.words.decisions import signal_kept
from gangctl.words.message import Message
from gangsidecar.wire import Phase

# Incidents


KEPT: Final = 10
"""Incidents in the status, newest first."""


def open_incident(gang: Gang, cause: Cause, level: IncidentLevel, *, planned: bool = False) -> tuple[Incident, ...]:
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


def incident_of_message(status: Status) -> Incident | None:
    """The incident that the status' message is about: it is open, or the attempt began, or ended, by its settling."""
    last = status.incidents[0] if status.incidents else None
    if last is None or last.attempt != status.attempt:
        return None
    return last if not last.settled or last.settled_time == status.phase_time else None


def is_open(gang: Gang) -> bool:
    """Whether the attempt that is being gathered belongs to an incident (a first start and a resume don't)."""
    incidents = gang.status.incidents
    return bool(incidents) and incidents[0].attempt == gang.status.attempt and not incidents[0].settled


def settle_incident(
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
    of_all = settlement.cause.alike or settlement.cause.reason == Reason.CORRUPTION  # Then less may be thrown away.
    lost = timings.count_lost_steps(gang, point) if restarted else None
    seconds = timings.lost_seconds(gang, lost)
    gathered, checks = timings.gathered_members(gang, assignment), checks_of(status)
    closed = changed(
        incident,
        cause=settlement.cause,
        level=settlement.level if of_all else recovery.highest_level(incident.level, settlement.level),
        charged=settlement.charged,
        settled=True,
        settled_time=gang.now,
        outcome=settlement.outcome,
        kept_signal=kept_signal(gang),
        missing_members=len(layout(gang.spec.roles).places) - len(assignment) if restarted else 0,
        restored_step=None if point is None else point.step,
        lost_steps=lost,
        lost_steps_at_most=timings.lost_steps_at_most(gang, lost),
        lost_seconds=seconds,
        checks=checks,
        milliseconds=timings.settled_phases(gang, incident, gathered, checks),
        members=timings.members_at_settling(gang, changed(incident, cause=settlement.cause), gathered),
    )
    member, number = recovery.suspected_member(settlement.cause)
    entry = LedgerEntry(
        time=gang.now,
        attempt=incident.attempt,
        member="" if settlement.cause.alike else member,
        incarnation=number,
        charged=settlement.charged,
        failure=recovery.is_failure(settlement.cause),
        restored_step=None if gang.status.restore_point is None else gang.status.restore_point.step,
        progressed=_progressed(gang, settlement, point),
    )
    status = changed(status, incidents=(closed, *status.incidents[1:]))
    in_a_row = recovery.in_a_row(gang, settlement.cause, progressed=entry.progressed)
    return enter_ledger(gang, timings.with_loss(status, seconds), entry, in_a_row) if restarted else status


def _progressed(gang: Gang, settlement: Settlement, point: RestorePoint | None) -> bool | None:
    """Whether the failed attempt made a step: it reported one, or left a checkpoint beyond what it had restored.

    A restart that a user asks for ends a row of failures: what was wrong may be mended.
    """
    if settlement.cause.reason == Reason.RESTART_REQUESTED:
        return None
    reported, before = recovery.has_progressed(gang), gang.status.restore_point
    if reported is not None or point is None or gang.status.restart_from is not None:
        return reported
    return True if before is None or point.step > before.step else None


def enter_ledger(gang: Gang, status: Status, entry: LedgerEntry, in_a_row: int) -> Status:
    """The status with one more attempt in its ledger and its counts. ``in_a_row``: restarts since the last step."""
    ledger = recovery.ledger_with(gang.spec, status, entry)
    restarts = status.restarts
    counts = changed(
        restarts,
        counted=restarts.counted + entry.charged,
        uncounted=restarts.uncounted + (not entry.charged),
        in_window=sum(one.charged for one in recovery.ledger_in_window(gang.spec, ledger, gang.now)),
        without_step=in_a_row,
    )
    return changed(status, ledger=ledger, restarts=counts)


def finish_incident(gang: Gang, status: Status, outcome: Literal["Failed", "Held", "Succeeded", "Suspended"]) -> Status:
    """The status whose open incident, if there is one, came to this end."""
    incidents = status.incidents
    if not incidents or incidents[0].settled:
        return status
    gathered, checks = timings.gathered_members(gang, assign(gang)), checks_of(status)
    closed = changed(
        incidents[0],
        settled=True,
        settled_time=gang.now,
        outcome=outcome,
        checks=checks,
        milliseconds=timings.settled_phases(gang, incidents[0], gathered, checks),
        members=timings.members_at_settling(gang, incidents[0], gathered),
    )
    return changed(status, incidents=(closed, *incidents[1:]))


def checks_of(status: Status) -> tuple[CheckResult, ...]:
    """The results of the checks before the status' attempt."""
    known = status.checks
    return () if known is None or known.attempt != status.attempt else known.results


def correct_cause(gang: Gang, status: Status, fault: Fault) -> Status:
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
    better = changed(last, cause=judge_fault(gang.spec, fault), charged=False)
    ledger = tuple(
        changed(
            entry,
            charged=False,
            failure=recovery.is_failure(better.cause),
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
        without_step=max(0, status.restarts.without_step - recovery.is_failure(last.cause)),
        in_window=sum(one.charged for one in recovery.ledger_in_window(gang.spec, ledger, gang.now)),
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


# Which members kept the stop signal for themselves, so that the restart waited for the whole grace


def kept_signal(gang: Gang) -> KeptSignal | None:
    """Who kept it in the stop before the stored attempt; None if none did, as far as reports show."""
    kept = [
        (-heard.report.killed_ms, member)
        for member, heard in gang.heard_by_member.items()
        if heard.report.killed_ms is not None
        and (heard.report.phase, heard.report.attempt) == (Phase.READY, gang.status.attempt)
    ]
    if not kept:
        return None
    longest, member = min(kept)
    return KeptSignal(member=member, members=len(kept), milliseconds=-longest)


def advice(incident: Incident) -> Message | None:
    """Return what was seen and what to do, in sentences; None if no worker kept the signal."""
    kept = incident.kept_signal
    if kept is None:
        return None
    return signal_kept(kept.member, kept.members - 1, kept.milliseconds / 1000, incident.planned)


# Faults that are told to those who repair nodes


_SAID_BY_OTHERS: Final = frozenset({Strength.DISRUPTION, Strength.NODE})
_ENDS: Final = frozenset({"Restarted", "Failed", "Held"})


class NodeFault(NamedTuple):
    """A fault that was seen on a node."""

    node: str
    incident: Incident


def node_faults(before: Status, after: Status) -> Iterator[NodeFault]:
    """The faults on nodes that the second of two statuses of a gang tells first."""
    if before.incidents is after.incidents:
        return
    told = {one.attempt for one in before.incidents if one.settled}
    newest = max((one.attempt for one in before.incidents), default=0)
    for incident in after.incidents:
        node = node_of(incident)
        if node and incident.attempt not in told and incident.attempt >= newest and _at_fault(incident):
            yield NodeFault(node, incident)


def _at_fault(incident: Incident) -> bool:
    cause = incident.cause
    row = default(cause.reason)
    if not incident.settled or incident.outcome not in _ENDS or cause.alike or cause.suspect:
        return False
    if row.strength in _SAID_BY_OTHERS or row.vague:
        return False
    asked = IncidentLevel.POD in {cause.level, row.level}
    if row.strength is Strength.DEVICE:
        return incident.level is not IncidentLevel.PROCESS  # As it is where most are said to compute wrongly.
    return asked and incident.level is IncidentLevel.POD


def node_of(incident: Incident) -> str:
    """The node of the pod at fault; empty if it isn't known."""
    cause = incident.cause
    members = ((one.member, one.incarnation, one.node) for one in incident.members)
    own = (node for member, number, node in members if (member, number) == (cause.member, cause.incarnation))
    return cause.node or next(own, "")


# The stacks of the member at fault for a hang, as its supervisor has taken them before the stop


_PYTHON: Final = re.compile(r"(?:>|\.py):[0-9]+\)$")
"""A frame of Python, by the file that it names."""
EARLIER = 1
"""So many of an earlier incident are kept beside the newest."""


def with_stacks(gang: Gang, status: Status) -> Status:
    """The status whose newest incident has the stacks of the attempt that it ended; the same object if none are new."""
    last = status.incidents[0] if status.incidents else None
    if last is None or last.attempt != status.attempt or last.stacks is not None:
        return status
    reports = (heard.report for heard in gang.heard.values())
    found = ((one.member, one.stacks) for one in reports if one.stacks is not None and one.stacks.text)
    own = [(member, stacks) for member, stacks in found if stacks.attempt == last.attempt - 1]
    told = min(own, key=lambda one: one[0] != last.cause.member, default=None)
    if told is None:
        return status
    member, stacks = told
    earlier, left = [], EARLIER
    for one in status.incidents[1:]:
        earlier.append(changed(one, stacks=None) if one.stacks is not None and left <= 0 else one)
        left -= one.stacks is not None
    return changed(status, incidents=(changed(last, stacks=Stacks(member=member, text=stacks.text)), *earlier))


def innermost(stacks: Stacks) -> str:
    """Where the first process that runs Python is, or else what the kernel tells of the first thread.

    A line of Python tells more than the native frames that it has called.
    """
    lines = stacks.text.splitlines()
    frames = [line.strip() for line in lines if line.startswith("    ") and not line.startswith("     ")]
    threads = (line.strip() for line in lines if line.startswith("  thread "))
    return next(filter(_PYTHON.search, frames), next(iter(frames), next(threads, "")))
