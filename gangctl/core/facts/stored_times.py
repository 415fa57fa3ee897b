"""Stored times: what a leader believes of the times that another one has stored.

    believed(t) = t                     if t <= now
                  begin of listening    else

A leader's own times are never to come, since its clock doesn't jump within a term. A time to come is that of a leader
whose clock was ahead, by any amount: what waits since then waits since this leader listens. A deadline must not wait
until the clocks of two leaders agree. A time that is too long ago can't be told from a true one; so what must not be
cut short by a clock that was behind counts from the begin of listening too (``deadlines.py``, ``barrier.py``).

Not believed anew are the times of causes, which tell an order (``policy/cause.py``), and those that goodput accounts
for: it counts no second twice. A back-off is reckoned anew from the begin of its incident.
"""

from __future__ import annotations

from gangctl.api.changes import changed, in_phase  # noqa: TID251 - neither phase nor attempt changes here
from gangctl.api.incident import Incident
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang

_READ = 2
"""Incidents that decisions read, newest first."""


def believed(gang: Gang) -> Gang:
    """The same look, with a status in which nothing that has happened is to come; the same object if nothing was."""
    status = _believed(gang.status, gang.now, min(gang.now, gang.observed.listening_since))
    return gang if status == gang.status else gang.with_status(status)


def _believed(status: Status, now: float, since: float) -> Status:
    def past(time: float) -> float:
        return time if time <= now else since

    def known(time: float | None) -> float | None:
        return None if time is None else past(time)

    def of(one: Incident) -> Incident:
        if max(one.time, one.settled_time or 0.0) <= now:
            return one
        return changed(one, time=past(one.time), settled_time=known(one.settled_time), back_off_time=None)

    again, rest = status.recreated, status.awaited_all
    return in_phase(
        status,
        status.phase,
        past(status.phase_time),
        status.attempt,
        start_time=known(status.start_time),
        completion_time=known(status.completion_time),
        deadline_time=known(status.deadline_time),
        restart_wait_time=known(status.restart_wait_time),
        observed_time=past(status.observed_time),
        conditions=tuple(
            [
                one if one.last_transition_time <= now else changed(one, last_transition_time=since)
                for one in status.conditions
            ]
        ),
        incidents=(*map(of, status.incidents[:_READ]), *status.incidents[_READ:]),
        ledger=tuple([one if one.time <= now else changed(one, time=since) for one in status.ledger]),
        replaced=tuple(
            [
                one
                if max(one.time, one.since or 0.0) <= now
                else changed(one, time=past(one.time), since=known(one.since))
                for one in status.replaced
            ]
        ),
        recreated=None if again is None else changed(again, time=past(again.time), since=past(again.since)),
        awaited=tuple(
            [one if (one.vanished_time or 0.0) <= now else changed(one, vanished_time=since) for one in status.awaited]
        ),
        awaited_all=None if rest is None else changed(rest, vanished_time=known(rest.vanished_time)),
    )
