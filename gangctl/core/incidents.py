"""Incidents: from the first fault to the first training step after it, as the status tells it.

The rule: one attempt, one incident, whatever the number of faults; it is opened by write 1, settled by write 2, and its
timings are folded into the next status write. Never is a duration negative, whatever the clocks do.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Cause, Incident, IncidentLevel, LedgerEntry, PhaseMilliseconds, RestorePoint, Status
from gangctl.core import budget, ladder
from gangctl.core.evidence import Fault, Strength, as_cause, from_cause
from gangctl.core.faults import failed_attempt
from gangctl.core.gang import Gang
from gangctl.core.policy import verdict
from gangctl.core.settling import Settlement, describe
from gangsidecar.wire import Phase

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
        milliseconds=PhaseMilliseconds(detect=_milliseconds(gang.now - cause.time)),
        lost_steps=None,
        trace_id=trace_id(gang.job, attempt),
    )
    return (incident, *gang.status.incidents)[:KEPT]


def trace_id(job: GangJob, attempt: int) -> str:
    """The same for everybody who computes it: a new leader finishes the trace that the old one began."""
    return hashlib.sha256(f"{job.metadata.uid}/{attempt}".encode()).hexdigest()[:32]


def is_open(gang: Gang) -> bool:
    """Whether the attempt that is being gathered belongs to an incident (a first start and a resume don't)."""
    incidents = gang.status.incidents
    return bool(incidents) and incidents[0].attempt == gang.status.attempt and not incidents[0].settled


def settled(gang: Gang, status: Status, settlement: Settlement, point: RestorePoint | None) -> Status:
    """The status with its open incident settled: cause, level, charge, timings, ledger and counts."""
    incident = status.incidents[0]
    restarted = settlement.outcome == "Restarted"
    closed = incident.model_copy(
        update={
            "cause": settlement.cause,
            "level": max(incident.level, settlement.level, key=ladder.LEVELS.index),
            "charged": settlement.charged,
            "settled": True,
            "settled_time": gang.now,
            "outcome": settlement.outcome,
            "restored_step": None if point is None else point.step,
            "lost_steps": lost_steps(gang, point) if restarted else None,
            "milliseconds": _settled_milliseconds(gang, incident),
        }
    )
    entry = LedgerEntry(
        time=gang.now,
        attempt=incident.attempt,
        member=settlement.cause.member,
        incarnation=settlement.cause.incarnation,
        charged=settlement.charged,
        restored_step=None if gang.status.restore_point is None else gang.status.restore_point.step,
        progressed=ladder.has_progressed(gang),
    )
    status = status.model_copy(update={"incidents": (closed, *status.incidents[1:])})
    return entered(gang, status, entry) if restarted else status


def entered(gang: Gang, status: Status, entry: LedgerEntry) -> Status:
    """The status with one more attempt in its ledger and its counts."""
    ledger = budget.entered(gang.spec, status, entry)
    restarts = status.restarts
    counts = {
        "counted": restarts.counted + entry.charged,
        "uncounted": restarts.uncounted + (not entry.charged),
        "in_window": sum(one.charged for one in ledger),
    }
    return status.model_copy(update={"ledger": ledger, "restarts": restarts.model_copy(update=counts)})


def finished(status: Status, outcome: Literal["Failed", "Held", "Succeeded", "Suspended"], now: float) -> Status:
    """The status whose open incident, if there is one, came to this end."""
    incidents = status.incidents
    if not incidents or incidents[0].settled:
        return status
    closed = incidents[0].model_copy(update={"settled": True, "settled_time": now, "outcome": outcome})
    return status.model_copy(update={"incidents": (closed, *incidents[1:])})


def corrected(gang: Gang, status: Status, fault: Fault) -> Status:
    """The status whose last incident has a stronger cause, learnt soon after write 2.

    Its charge is refunded: the same fault opens the next incident, which is charged if a rule says so.
    """
    if not status.incidents:
        return status
    last = status.incidents[0]
    window = gang.spec.recovery.evidence_window_seconds
    late = last.settled_time is None or gang.now > last.settled_time + window
    old = from_cause(last.cause)
    if late or fault.strength <= max(old.strength, Strength.CONTAINER) or not _explains(gang, last, fault):
        return status
    better = last.model_copy(update={"cause": as_cause(fault, verdict(gang.spec, fault).rule), "charged": False})
    blamed = {"charged": False, "member": fault.member, "incarnation": fault.incarnation}
    ledger = tuple(
        entry.model_copy(update=blamed) if entry.attempt == last.attempt else entry for entry in status.ledger
    )
    restarts = status.restarts.model_copy(
        update={
            "counted": status.restarts.counted - last.charged,
            "uncounted": status.restarts.uncounted + last.charged,
            "in_window": sum(entry.charged for entry in ledger),
        }
    )
    return status.model_copy(
        update={"incidents": (better, *status.incidents[1:]), "ledger": ledger, "restarts": restarts}
    )


def _explains(gang: Gang, last: Incident, fault: Fault) -> bool:
    """Whether the fault may be what the last incident's cause was an echo of.

    A pod's disruption explains what its own worker did, a sick node or device what any worker did.
    """
    if (fault.member, fault.incarnation) == (last.cause.member, last.cause.incarnation):
        return True
    entry = gang.replaced.get(fault.member)
    return fault.strength >= Strength.NODE and (entry is None or entry.attempt < last.attempt)


def timed(gang: Gang, status: Status) -> Status:
    """The status with the timings of its last incident, as far as the members have told them."""
    if not status.incidents or status.incidents[0].attempt != status.attempt or not status.incidents[0].settled:
        return status
    incident = status.incidents[0]
    began = incident.settled_time or 0.0
    starts: list[float] = []
    firsts: list[float] = []
    for holder in gang.holders.values():
        pod = gang.pods.get(holder)
        heard = None if pod is None else gang.heard.get(pod.uid)
        if heard is None or heard.report.attempt != status.attempt or heard.report.phase is not Phase.RUNNING:
            return status
        starts.append(heard.at - heard.report.phase_age_ms / 1000)
        progress = heard.report.progress
        if progress is not None and progress.attempt == status.attempt and progress.first_age_ms is not None:
            firsts.append(heard.at - progress.first_age_ms / 1000)
    times = incident.milliseconds
    started = max(starts, default=began)
    update = {
        "start": times.start if times.start is not None else _milliseconds(started - began),
        "first_step": times.first_step
        if times.first_step is not None or not firsts
        else _milliseconds(min(firsts) - started),
    }
    told = incident.model_copy(update={"milliseconds": times.model_copy(update=update)})
    return status.model_copy(update={"incidents": (told, *status.incidents[1:])})


def lost_steps(gang: Gang, point: RestorePoint | None) -> int | None:
    """Steps that the failed attempt had made beyond the restore point; None where progress is unknown."""
    attempt = failed_attempt(gang)
    steps = [
        heard.report.progress.step
        for heard in gang.observed.heard
        if heard.report.progress is not None and heard.report.progress.attempt == attempt
    ]
    if gang.status.progress is not None and gang.status.progress.attempt == attempt:
        steps.append(gang.status.progress.step)
    return max(0, max(steps) - (0 if point is None else point.step)) if steps else None


def summary(incident: Incident) -> str:
    """One line for people."""
    return f"attempt {incident.attempt}: {describe(incident.cause)}"


def _settled_milliseconds(gang: Gang, incident: Incident) -> PhaseMilliseconds:
    """Stop: until the last process of the kept pods was gone. Barrier: what was waited for beyond that."""
    kept = [
        heard.at - heard.report.phase_age_ms / 1000
        for heard in gang.observed.heard
        if heard.report.phase is Phase.READY
        and heard.report.attempt == incident.attempt
        and not gang.is_fresh(heard.report.member)
    ]
    stopped = max(incident.time, max(kept, default=incident.time))
    replacing = any(entry.time >= incident.time for entry in gang.status.replaced)
    waited = _milliseconds(gang.now - stopped)
    return incident.milliseconds.model_copy(
        update={
            "stop": _milliseconds(stopped - incident.time),
            "replace": waited if replacing else None,
            "barrier": 0 if replacing else waited,
        }
    )


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
