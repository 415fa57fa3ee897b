"""Leader election by Lease: one process of a deployment leads, for as long as it can prove that it does.

The rule: a process that no longer leads must never write. This is checked twice: :meth:`Election.guard` runs before
each write, so a process that was frozen past its deadline writes nothing when it wakes up; and the leader's work is
cancelled at the deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from gangctl.cluster.errors import ClusterError, Conflict, Retryable
from gangctl.cluster.kube.leases.leadership import Leadership, LeaseTiming
from gangctl.cluster.kube.leases.lease import RELEASED_SECONDS, LeaseRecord

log = logging.getLogger(__name__)


class Clock(Protocol):
    """A clock that continues while the process is stopped or the machine sleeps."""

    def now(self) -> float:
        """Seconds since a fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Wait at least this long."""


class BootClock:
    """The kernel's CLOCK_BOOTTIME: monotonic, and includes the time in which the machine is suspended."""

    def now(self) -> float:
        """Seconds since the machine was started."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Wait; longer if the machine is suspended meanwhile."""
        await asyncio.sleep(seconds)


class Lease(Protocol):
    """The Lease that candidates compete for."""

    async def read(self) -> LeaseRecord | None:
        """The stored record."""

    async def write(self, over: LeaseRecord | None, holder: str, duration: int, address: str) -> LeaseRecord:
        """Replace ``over``, and only that record."""


class Election:
    """One candidate."""

    def __init__(self, lease: Lease, identity: str, address: str, timing: LeaseTiming, clock: Clock) -> None:
        """``identity``: no other process ever has it; ``address``: where sidecars reach this process."""
        self.problem = ""
        """Why the Lease can't be read or written, in a sentence; empty = it can."""
        self._lease = lease
        self._identity = identity
        self._address = address
        self._timing = timing
        self._clock = clock
        self._leadership = Leadership(identity, timing)

    def may_write(self) -> bool:
        """Whether this process leads right now."""
        return self._leadership.leads(self._clock.now())

    def guard(self) -> None:
        """Allow a write.

        Raises:
            Retryable: this process doesn't lead.
        """
        if not self.may_write():
            raise Retryable("this controller doesn't lead, so it writes nothing; another replica may lead")

    def leader_address(self) -> str | None:
        """Address of another process that leads, as of the last read, at most a retry period ago."""
        return self._leadership.address_of_leader(self._clock.now())

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Compete for the Lease, run ``lead`` while elected, and compete again, until cancelled.

        ``lead`` is called once for each term and is cancelled at its end; the next term begins only after ``lead`` has
        ended. When this method is cancelled, it ends ``lead`` while it still renews the Lease, then releases the Lease.
        It does the same, and returns or raises, when ``lead`` returns or raises by itself.
        """
        try:
            while True:
                await self._campaign()
                log.info("this controller leads now, as %s", self._identity)
                why = await self._term(lead)
                if why is None:
                    return
                log.warning("this controller no longer leads: %s", why)
        finally:
            await self._release()

    async def _campaign(self) -> None:
        """Compete until elected."""
        while not self.may_write():
            try:
                await self._read()
                if self._leadership.claimable_in(self._clock.now()) <= 0:
                    await self._claim()
                    continue
                self._solved()
            except ClusterError as error:
                self._failed(error)
            left = self._leadership.claimable_in(self._clock.now())
            await self._clock.sleep(min(self._timing.retry_period, left) or self._timing.retry_period)

    async def _term(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> str | None:
        """Run one term and return why it ended, in a sentence; None if ``lead`` has returned."""
        working = asyncio.create_task(lead(), name="leading")
        renewing = asyncio.create_task(self._renew(), name="renewing the Lease")
        watching = asyncio.create_task(self._wait_for_deadline(), name="watching the Lease's deadline")
        try:
            await asyncio.wait((working, renewing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._leadership.resign()  # An answer that arrives from now on must not prolong this term.
                renewing.cancel()
        finally:
            try:
                await _end(working)  # Unless the term is over, the Lease is still renewed meanwhile.
            finally:
                self._leadership.resign()
                await _end(renewing, watching)
        for task in (working, renewing, watching):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if not working.cancelled():
            return None
        return "it couldn't renew its Lease in time" if renewing.cancelled() else renewing.result()

    async def _renew(self) -> str:
        """Renew the Lease until another process holds it; return that as a sentence."""
        is_current = True
        while True:
            await self._clock.sleep(self._timing.retry_period)
            try:
                if not is_current:
                    await self._read()
                    if self._leadership.is_held_by_another():
                        return f"{self._holder()} holds the Lease"
                is_current = False
                await self._claim()
                is_current = True
            except ClusterError as error:
                self._failed(error)

    async def _wait_for_deadline(self) -> None:
        """Wait for the end of the time for which this process leads."""
        while left := self._leadership.remaining(self._clock.now()):
            await self._clock.sleep(left)

    async def _read(self) -> None:
        record = await self._lease.read()
        self._leadership.observe(record, self._clock.now())

    async def _claim(self) -> None:
        sent = self._clock.now()
        record = await self._lease.write(self._leadership.record, self._identity, self._timing.duration, self._address)
        self._leadership.written(record, sent)
        self._solved()

    async def _release(self) -> None:
        """Let the next leader begin at once. Without a release, it waits until the record has expired."""
        self._leadership.resign()
        try:
            # The last record seen may be older than a write of this process whose answer was lost.
            record = await self._lease.read()
            if record is not None and record.holder == self._identity:
                await self._lease.write(record, "", RELEASED_SECONDS, "")
                log.info("the Lease is released")
        except ClusterError as error:
            log.warning("the Lease could not be released, so the next leader waits until it expires: %s", error)

    def _holder(self) -> str:
        record = self._leadership.record
        return "no process" if record is None or not record.holder else record.holder

    def _failed(self, error: ClusterError) -> None:
        if isinstance(error, Conflict):
            log.info("another process has written the Lease: %s", error)
            return
        if str(error) != self.problem:
            log.warning("the Lease can't be read or written; this is tried again: %s", error)
        self.problem = str(error)

    def _solved(self) -> None:
        if self.problem:
            log.info("the Lease can be read and written again")
        self.problem = ""


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, in whatever way, even if the caller is cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
