"""Granted waits: for how long a gang waits because its spec, or what was told to its members, gives that time.

The rule: a deadline counts what comes after everything that was granted, and nothing of it::

    stopped_by = max(begin of the phase, the leader listens) + the longest stop grace that was told, where a worker ran
    held_until = the end of a restart back-off or of coalescing, at most until now
    over_at    = max(stopped_by, held_until, end of the evidence window, and where every member is ready: since when the
                 last one is, and when the last pod counts as lost)

A restart by hand ends what is waited for by choice (``held_until``, the back-off of replacements). It must not cut
short a worker that saves its last checkpoint, nor the wait for a pod that may still run one.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.incident import Incident
from gangctl.api.status import Status
from gangctl.core.facts import barrier
from gangctl.core.facts.gang import Gang, stop_grace
from gangctl.core.facts.ranks import assign


def over_at(gang: Gang) -> float:
    """When everything is over that was granted to the attempt that gathers."""
    times, incident = [stopped_by(gang), held_until(gang)], _open(gang)
    if incident is not None:
        times.append(evidence_until(gang, incident))
    given = assign(gang).values()
    if None not in given:
        times += [time for time in barrier.releases(gang) if time is not None]
        times += [one.phase_since for name in given if name and (one := gang.heard_by_member.get(name)) is not None]
    return max(times)


def stopped_by(gang: Gang) -> float:
    """When every worker that was told to stop has stopped, or was killed."""
    status, told = gang.status, gang.status.fencing
    if status.started_attempt < max(1, status.resumed_attempt):
        return status.phase_time
    grace = stop_grace(gang.spec, status) if told is None else told.longest_stop_grace_seconds
    return max(status.phase_time, gang.observed.listening_since) + grace


def evidence_until(gang: Gang, incident: Incident) -> float:
    """Until when stronger evidence is expected of an incident that is open."""
    return max(incident.time, gang.watching_since) + gang.spec.recovery.evidence_window_seconds


def held_until(gang: Gang) -> float:
    """Until when the open incident's attempt has waited though it could start, at most until now; 0 if it hasn't.

    A clock that was set back must not prolong what counts from then.
    """
    incident = _open(gang)
    return 0.0 if incident is None or incident.back_off_time is None else min(incident.back_off_time, gang.now)


def is_over(gang: Gang) -> bool:
    """Whether the attempt has waited though it could start, or a restart by hand lets it wait no longer."""
    until = gang.status.incidents[0].back_off_time
    return until is not None and until <= gang.now


def ended(gang: Gang, status: Status) -> Status:
    """The status after a restart by hand: nothing is waited for any more that is waited for by choice."""
    status = changed(status, restarts=changed(status.restarts, without_step=0))
    status = changed(status, replaced=tuple([changed(one, failures=0) for one in status.replaced]))
    if status.recreated is not None:
        status = changed(status, recreated=changed(status.recreated, failures=0))
    incident = _open(gang)
    if incident is None:
        return status
    until = gang.now if incident.back_off_time is None else min(incident.back_off_time, gang.now)
    return changed(status, incidents=(changed(incident, back_off_time=until), *status.incidents[1:]))


def _open(gang: Gang) -> Incident | None:
    last = next(iter(gang.status.incidents), None)
    return None if last is None or last.settled or last.attempt != gang.status.attempt else last
