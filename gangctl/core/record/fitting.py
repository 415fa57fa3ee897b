"""Fitting: a status is small enough to be stored, whatever happened.

    size(status) <= LARGEST

The rule: each list has its own bound where it is filled. Should all of them be full at once, the status gives up first
what it only tells, then what only helps: stacks, the output of workers, earlier incidents, sentences that are told
twice, host files, the names of the pods that are waited for (they are waited for as one then), the uncharged past,
nodes to avoid. Rejected steps come last, the lowest first: the newest step that isn't rejected is what a restart tries.
What the barrier, the budget and the incarnations need is never given up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.conditions import ConditionType
from gangctl.api.incident import Incident
from gangctl.api.status import Status
from gangctl.core.facts.awaiting import awaiting_as_one
from gangctl.core.policy.restore import highest

LARGEST: Final = 96 * 1024
"""Bytes of JSON from which on a status gives up something. The last resort leaves it below 128 KiB."""
RECENT: Final = 2
"""Incidents that decisions read, newest first."""
SHORT: Final = 120
"""Characters of a sentence of an earlier incident."""
REMEMBERED: Final = 8
"""Uncharged entries of the ledger and replaced members with nodes to avoid, the newest of each."""
REJECTED: Final = (128, 64, 32, 16, 8)
"""So many rejected steps are kept, one after the other until the status is small enough."""


def fitted(status: Status) -> Status:
    """The status, without what it can do without if it would be too large."""
    for smaller in _STEPS:
        if size(status) <= LARGEST:
            break
        status = smaller(status)
    return status


def size(status: Status) -> int:
    """Bytes of its JSON, as it is stored."""
    return len(status.model_dump_json(by_alias=True, exclude_none=True).encode())


def _without_earlier_stacks(status: Status) -> Status:
    new, old = status.incidents[:1], status.incidents[1:]
    return changed(status, incidents=(*new, *(changed(one, stacks=None) for one in old)))


def _without_stacks(status: Status) -> Status:
    return changed(status, incidents=tuple(changed(one, stacks=None) for one in status.incidents))


def _without_output(status: Status) -> Status:
    return changed(status, incidents=tuple(changed(one, output=None) for one in status.incidents))


def _without_members(status: Status) -> Status:
    return _earlier(status, lambda one: changed(one, members=()))


def _in_short(status: Status) -> Status:
    def short(one: Incident) -> Incident:
        cause = changed(one.cause, message=one.cause.message[:SHORT], why=one.cause.why[:SHORT], said=None, printed="")
        return changed(one, cause=cause, warm_start=None)

    return _earlier(status, short)


def _earlier(status: Status, smaller: Callable[[Incident], Incident]) -> Status:
    new, old = status.incidents[:RECENT], status.incidents[RECENT:]
    return changed(status, incidents=(*new, *map(smaller, old)))


def _fewer(status: Status) -> Status:
    return changed(status, incidents=status.incidents[: 2 * RECENT])


def _conditions_in_short(status: Status) -> Status:
    """The message of the status says the same in full."""
    told = (ConditionType.ACCEPTED, ConditionType.DEGRADED)
    conditions = (one if one.type in told else changed(one, message=one.message[:SHORT]) for one in status.conditions)
    return changed(status, conditions=tuple(conditions))


def _without_hosts(status: Status) -> Status:
    return changed(status, hosts=())


def _charged(status: Status) -> Status:
    left = sum(not entry.charged for entry in status.ledger) - REMEMBERED
    kept = []
    for entry in status.ledger:
        if entry.charged or left <= 0:
            kept.append(entry)
        left -= not entry.charged
    return changed(status, ledger=tuple(kept))


def _rejecting(count: int, status: Status) -> Status:
    return changed(status, rejected_steps=highest(status.rejected_steps, count))


def _avoiding_few(status: Status) -> Status:
    old, new = status.replaced[:-REMEMBERED], status.replaced[-REMEMBERED:]
    return changed(status, replaced=(*(changed(entry, avoid=(), required=False) for entry in old), *new))


_STEPS: Final[tuple[Callable[[Status], Status], ...]] = (
    _without_earlier_stacks,
    _without_stacks,
    _without_output,
    _without_members,
    _in_short,
    _fewer,
    _conditions_in_short,
    _without_hosts,
    awaiting_as_one,
    _charged,
    _avoiding_few,
    *(partial(_rejecting, count) for count in REJECTED),
)
"""What is given up, one after the other."""
