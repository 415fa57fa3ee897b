"""How long the phases of an incident took.

The rule: each phase begins where the one before it ended, and all are on the controller's clock, from the ages in
reports. Once the first step is stored, nothing is added. A duration must not be negative, whatever the clocks do.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.changes import changed
from gangctl.api.incident import Incident, PhaseMilliseconds
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Heard
from gangctl.core.record import stragglers
from gangctl.core.record.warm_starts import warm_start
from gangsidecar.wire import Phase

REPORT_SECONDS: Final = 10.0
"""Seconds after the first reported first step in which the gang waits for those of the others. The phase ends with the
last of those that have reported it: the recovery isn't over while a member is still awaited."""


def milliseconds(seconds: float) -> int:
    """As they are stored: never negative."""
    return max(0, round(seconds * 1000))


def settled(gang: Gang, incident: Incident, gathered: stragglers.Gathered) -> PhaseMilliseconds:
    """Stop: until the last process of the kept pods was gone. Replace: until the last new pod was ready after that.

    Back-off: from then until the time that was set for it. Barrier: what was waited for beyond all three. Who isn't
    ready is waited for until now.
    """
    stopped = min(max([incident.time, *gathered.stopped.values()]), max(gang.now, incident.time))
    ready_again = min(max([stopped, *gathered.replaced.values()]), max(gang.now, stopped))
    until = incident.back_off_time
    over = ready_again if until is None else min(max(until, ready_again), max(gang.now, ready_again))
    return changed(
        incident.milliseconds,
        stop=milliseconds(stopped - incident.time),
        replace=milliseconds(ready_again - stopped) if gathered.replaced else None,
        back_off=None if until is None else milliseconds(over - ready_again),
        barrier=milliseconds(gang.now - over),
    )


def timed(gang: Gang, status: Status, *, more: bool) -> Status:
    """The status with the timings of its last incident, as far as the members have reported them.

    ``more``: the attempt goes on, so members that haven't reported yet when they started, or made their first step, are
    waited for. If it doesn't, those that did report count: the fault may have taken a report away.
    """
    last = _starting(gang, status)
    if last is None:
        return status
    reports = _reports(gang)
    began = last.settled_time or last.time
    took, members = last.milliseconds, last.members
    if took.start is None:
        runs = {holder: heard for holder, heard in reports.items() if heard.report.phase is Phase.RUNNING}
        waiting = any(heard.report.phase is Phase.READY for heard in reports.values())
        if not runs or waiting or (more and len(runs) < len(gang.holders)):
            return status
        started = max(heard.phase_since for heard in runs.values())
        took = changed(took, start=milliseconds(started - began))
        members = stragglers.started(gang, last, runs)
        last = changed(last, warm_start=warm_start(last, runs))
    firsts = _firsts(reports)
    heard_out = len(firsts) == len(gang.holders) or gang.now >= min(firsts, default=gang.now) + REPORT_SECONDS
    waits = more and not (firsts and heard_out)
    if firsts and not waits:
        first = max(firsts) - began - (took.start or 0) / 1000
        took = changed(took, first_step=milliseconds(first))
    last = changed(last, milliseconds=took, members=members)
    if not waits:
        last = changed(last, members=stragglers.stepped(gang, last, reports))
    return changed(status, incidents=(last, *status.incidents[1:]))


def heard_out_at(gang: Gang, status: Status) -> float | None:
    """When the gang stops waiting for reports of first steps; None if it doesn't wait, or not yet."""
    firsts = [] if _starting(gang, status) is None else _firsts(_reports(gang))
    until = min(firsts) + REPORT_SECONDS if firsts else gang.now
    return until if until > gang.now else None


def _starting(gang: Gang, status: Status) -> Incident | None:
    """The incident that led to the running attempt, while its first step isn't stored."""
    last = status.incidents[0] if status.incidents else None
    if (
        last is None
        or last.attempt != status.attempt
        or last.outcome != "Restarted"
        or last.milliseconds.first_step is not None
        or gang.status.phase is not GangPhase.RUNNING
    ):
        return None
    return last


def _reports(gang: Gang) -> dict[str, Heard]:
    """Holder -> the newest report of its supervisor, if that is of the status' attempt."""
    heard, attempt = gang.heard_by_member, gang.status.attempt
    return {
        holder: one
        for holder in gang.holders.values()
        if (one := heard.get(holder)) is not None and one.report.attempt == attempt
    }


def _firsts(reports: dict[str, Heard]) -> list[float]:
    """When members made their first step, of those that reported it."""
    return [at for heard in reports.values() if (at := stragglers.first_step_at(heard)) is not None]
