"""Whether one candidate leads, and when it may take the Lease. Pure: time is an argument, on the candidate's own clock.

The rule: two candidates must never lead at the same instant, whatever is delayed, lost, frozen or set wrong. Let

    sent        = time just before candidate c sent its last successful write
    first_seen  = time at which c first saw the record as it is now
    validity    = 0 if the holder has released the record, otherwise max(the record's duration, c's own duration)

Then

    leads(c)      <=>  now < sent + renew_deadline
    claimable(c)  <=>  c leads, or c holds the record, or now >= first_seen + validity

Proof: another candidate replaces only a record that it has seen unchanged for at least ``duration``. It first saw that
record after it was stored, and so after ``sent``. If the holder has written since, that write fails. The margin
``duration - renew_deadline > 0`` also covers clocks that run at different speeds. No candidate uses the wall time of
another one. (The rule is client-go's, but client-go leads until it has noticed the deadline; here the deadline is
checked before each write.)

A candidate can't know the holder of a Lease that was deleted before the candidate's first look, so it takes a Lease
that it has never seen at once: don't delete the Lease of a running deployment while a new controller starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gangctl.cluster.kube.leases.lease import RELEASED_SECONDS, LeaseRecord


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Durations of the election, in seconds."""

    duration: int = 15
    """Time after a holder's last write in which no other candidate takes the Lease."""
    renew_deadline: float = 10.0
    """Time after which a holder that couldn't write no longer leads."""
    retry_period: float = 2.0
    """Time between two reads, or two writes."""


class Leadership:
    """One candidate's view of the Lease, and whether it leads."""

    def __init__(self, identity: str, timing: LeaseTiming) -> None:
        """``identity``: of this candidate; no other process ever has it."""
        self.record: LeaseRecord | None = None
        """The Lease as this candidate last saw it."""
        self._identity = identity
        self._timing = timing
        self._first_seen = -math.inf
        """When this candidate first saw the record as it is now."""
        self._duration = 0.0
        """Of the last record seen, also if it has been deleted since."""
        self._until = -math.inf

    def observe(self, record: LeaseRecord | None, now: float) -> None:
        """Note a record that was read; the answer arrived at ``now``."""
        known, shown = self.record and self.record.version, record and record.version
        if known != shown:
            self._first_seen = now
        self.record = record
        if record is not None:
            self._duration = self._validity(record)
            if record.holder != self._identity:
                self._until = -math.inf

    def written(self, record: LeaseRecord, sent: float) -> None:
        """Note a successful write of this candidate, which was not sent before ``sent``."""
        self.record, self._duration = record, self._validity(record)
        self._first_seen = sent
        self._until = sent + self._timing.renew_deadline

    def resign(self) -> None:
        """Stop leading now."""
        self._until = -math.inf

    def leads(self, now: float) -> bool:
        """Whether this candidate, and no other, may write."""
        return now < self._until

    def remaining(self, now: float) -> float:
        """Seconds for which it still leads without a renewal; 0 if it doesn't lead."""
        return max(0.0, self._until - now)

    def claimable_in(self, now: float) -> float:
        """Seconds until it may take the Lease as it last saw it; 0 = now."""
        is_mine = self.record is not None and self.record.holder == self._identity
        if is_mine or self.leads(now):  # the leader may also create a deleted Lease again
            return 0.0
        return max(0.0, self._first_seen + self._duration - now)

    def _validity(self, record: LeaseRecord) -> float:
        """Seconds for which no candidate replaces this record.

        Only a holder that releases its Lease sets both an empty holder and a short duration. A person who clears the
        holder or shortens the duration can't know whether the holder still leads.
        """
        released = not record.holder and record.duration <= RELEASED_SECONDS
        return 0.0 if released else max(record.duration, self._timing.duration)

    def is_held_by_another(self) -> bool:
        """Whether another candidate wrote the last record seen: as its holder, or when it released the Lease."""
        return self.record is not None and self.record.holder != self._identity

    def address_of_leader(self, now: float) -> str | None:
        """Address of another process that leads, as far as this one knows."""
        if self.record is None or not self.is_held_by_another() or self.claimable_in(now) <= 0:
            return None
        return self.record.address or None
