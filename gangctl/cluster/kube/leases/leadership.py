"""Where one candidate stands in an election by Lease. Pure: time is an argument, in seconds on the candidate's clock.

At no instant do two candidates lead, whatever is late, lost, frozen or set wrong, because

- a holder leads until ``sent + renew_deadline`` alone, where ``sent`` is before its last successful write was sent;
- another one writes only over the very record that it has seen unchanged for ``duration`` since it first saw it, which
  was after that record was stored, and so after ``sent``; if the holder has written since, that write fails;
- ``renew_deadline < duration``: that margin also covers clocks which run at different speeds.

No candidate looks at another one's wall time. (The rule is client-go's, except that client-go goes on until the
deadline has been noticed; here the deadline is looked at before each write.)

Nobody can know of a holder whose Lease was deleted before he first looked, so he takes a Lease that he never saw at
once: don't delete the Lease of a running deployment while a new controller starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gangctl.cluster.kube.leases.lease import RELEASED_SECONDS, LeaseRecord


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long things may take, in seconds."""

    duration: int = 15
    """After a holder's last write for which nobody else takes its place."""
    renew_deadline: float = 10.0
    """After which a holder that couldn't write doesn't lead any more."""
    retry_period: float = 2.0
    """Between two looks, or two writes."""


class Leadership:
    """What one candidate knows of the Lease, and whether it leads."""

    def __init__(self, me: str, timing: LeaseTiming) -> None:
        """``me``: its identity, which no other process ever has."""
        self.record: LeaseRecord | None = None
        """The Lease as it was seen last."""
        self._me = me
        self._timing = timing
        self._since = -math.inf
        """When the record was first seen as it is."""
        self._duration = 0.0
        """Of the last record that was seen: also of one that was deleted since."""
        self._until = -math.inf

    def see(self, record: LeaseRecord | None, now: float) -> None:
        """The Lease was read, and the answer was here at ``now``."""
        known, shown = self.record and self.record.version, record and record.version
        if known != shown:
            self._since = now
        self.record = record
        if record is not None:
            self._duration = self._worth(record)
            if record.holder != self._me:
                self._until = -math.inf

    def claimed(self, record: LeaseRecord, sent: float) -> None:
        """This candidate's write has succeeded; it was not sent before ``sent``."""
        self.record, self._duration = record, self._worth(record)
        self._since = sent
        self._until = sent + self._timing.renew_deadline

    def resign(self) -> None:
        """Don't lead any more, from now on."""
        self._until = -math.inf

    def leads(self, now: float) -> bool:
        """Whether it may write, and nobody else."""
        return now < self._until

    def remaining(self, now: float) -> float:
        """Seconds for which it still leads unless it renews; 0 if it doesn't lead."""
        return max(0.0, self._until - now)

    def claimable_in(self, now: float) -> float:
        """Seconds until it may write itself into the record as it was seen last; 0 = now."""
        is_mine = self.record is not None and self.record.holder == self._me
        if is_mine or self.leads(now):  # who leads may also make anew what somebody has deleted
            return 0.0
        return max(0.0, self._since + self._duration - now)

    def _worth(self, record: LeaseRecord) -> float:
        """Seconds for which nobody takes this record's place.

        That a holder has gone is believed if it says so itself, by a short duration too: whoever clears the holder by
        hand, or shortens the duration, doesn't know whether it still leads.
        """
        released = not record.holder and record.duration <= RELEASED_SECONDS
        return 0.0 if released else max(record.duration, self._timing.duration)

    def is_somebody_elses(self) -> bool:
        """Whether another candidate was seen to hold the Lease, or to have released it."""
        return self.record is not None and self.record.holder != self._me

    def address_of_leader(self, now: float) -> str | None:
        """Where somebody else leads, as far as it is known."""
        if self.record is None or not self.is_somebody_elses() or self.claimable_in(now) <= 0:
            return None
        return self.record.address or None
