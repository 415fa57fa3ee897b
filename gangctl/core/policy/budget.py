"""The budget: how many charged restarts a gang may have in a sliding window, and what the ledger remembers.

    allowed(now) <=> |{entry in ledger : entry.charged and entry.time > now - windowSeconds}| < maxRestarts

An incident is charged at most once, when its cause is settled; disruptions and rules with Ignore are not charged. The
budget must not be exceeded: a restart that would be one too many does not take place.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import Spec, Windowed
from gangctl.api.incident import LedgerEntry
from gangctl.api.status import Status

LEDGER_SECONDS: Final = 86_400
"""What the ladder remembers with an unlimited budget."""
LEDGER_ENTRIES: Final = 256
"""More than any budget allows: with fewer, an old charge would be forgotten."""


def window_seconds(spec: Spec) -> int:
    """For how long an incident is remembered."""
    budget = spec.recovery.budget
    return budget.window_seconds if isinstance(budget, Windowed) else LEDGER_SECONDS


def in_window(spec: Spec, status: Status, now: float) -> tuple[LedgerEntry, ...]:
    """The ledger without what has left the window. A clock that jumped back forgets nothing."""
    since = now - window_seconds(spec)
    return tuple(entry for entry in status.ledger if entry.time > since)


def charged(spec: Spec, status: Status, now: float) -> int:
    """Charged restarts in the window."""
    return sum(entry.charged for entry in in_window(spec, status, now))


def allows(spec: Spec, status: Status, now: float) -> bool:
    """Whether one more charged restart is within the budget."""
    budget = spec.recovery.budget
    return not isinstance(budget, Windowed) or charged(spec, status, now) < budget.max_restarts


def entered(spec: Spec, status: Status, entry: LedgerEntry) -> tuple[LedgerEntry, ...]:
    """The ledger with one more entry, newest last, bounded: uncharged entries are dropped before charged ones."""
    kept = [*in_window(spec, status, entry.time), entry]
    while len(kept) > LEDGER_ENTRIES:
        kept.remove(next((old for old in kept if not old.charged), kept[0]))
    return tuple(kept)
