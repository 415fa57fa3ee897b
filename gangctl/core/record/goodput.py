"""Goodput: what a gang's time went to, added up at each write of its status, so it is right across controllers.

The rule: the time since the last write belongs to what the gang was doing then: before the first step of an attempt to
its start-up, or to the recovery if an incident had led to it; from that step's own moment on to training, until the
fault that ended it. While a hang is known, and only observed, it belongs to recovery. A second must not count twice,
and no bucket may go down, whatever clocks do: time that a clock repeats is not counted again.

A gang that never reports a step has no goodput: all its attempts would be start-up.
"""

from __future__ import annotations

from collections import Counter

from gangctl.api.changes import changed
from gangctl.api.status import ENDED, GangPhase, Spent, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.progress import first_step
from gangctl.core.record.conditions import hangs

_MILLISECONDS = 1000
_RESTING = {
    GangPhase.SUSPENDED: "suspended",
    GangPhase.PENDING: "pending",
    GangPhase.HELD: "held",
}


def accounted(gang: Gang, after: Status) -> Status:
    """The status that is to be written, with the time until now accounted for. Every write goes through here."""
    before = gang.status
    first, spent, until = first_step(gang), after.spent, after.accounted_time
    if before.phase is GangPhase.NEW or not before.accounted_time:
        until = max(gang.now, until)  # It is seen for the first time, by a version that accounts.
    elif before.phase not in ENDED:
        known = changed(before, first_step=first)
        spent, until = _added(known, spent, max(gang.now, before.accounted_time), _fault(before, after))
    # What is lost is reckoned from the pace, and can't be more than is accounted for.
    spent = changed(spent, lost_progress=min(spent.lost_progress, spent.training))
    return changed(after, first_step=first, spent=spent, accounted_time=until)


def spent_until(status: Status, now: float) -> Spent:
    """What the time until now went to, as far as the stored status tells it. ``now``: seconds since the epoch.

    A first step, and a fault, that no write has recorded yet still count as what was before them.
    """
    if status.phase is GangPhase.NEW or status.phase in ENDED or not status.accounted_time:
        return status.spent
    return _added(status, status.spent, max(now, status.accounted_time), None)[0]


def total(spent: Spent) -> float:
    """All that is accounted for, in seconds. What was lost is a part of training, so it isn't added."""
    return spent.training + spent.start_up + spent.recovery + spent.suspended + spent.pending + spent.held


def goodput(spent: Spent) -> float | None:
    """The part of the time that went to training which counts, 0 to 1; None for a gang that never reported a step."""
    return (spent.training - spent.lost_progress) / total(spent) if spent.training > 0 else None


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
        start_up=_sum(spent.start_up, shares["start_up"]),
        recovery=_sum(spent.recovery, shares["recovery"]),
        suspended=_sum(spent.suspended, shares["suspended"]),
        pending=_sum(spent.pending, shares["pending"]),
        held=_sum(spent.held, shares["held"]),
    )
    # Rounded as a Timestamp is: copies aren't validated.
    return added, round(since + span / _MILLISECONDS, 6)


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
