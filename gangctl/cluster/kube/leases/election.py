"""Leader election by Lease: one process of a deployment leads, for as long as it can prove that it does.

What a leader does is guarded twice: :meth:`Election.guard` is called before each write, so that a process which was
frozen past its time writes nothing when it wakes up; and the work is cancelled when that time is over.
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
    """A clock that goes on while the process is stopped or the machine sleeps."""

    def now(self) -> float:
        """Seconds since some moment."""

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or longer."""


class BootClock:
    """The kernel's CLOCK_BOOTTIME: monotonic, and counts the time in which the machine is suspended."""

    def now(self) -> float:
        """Seconds since the machine was started."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Wait so long; if the machine is suspended meanwhile, longer."""
        await asyncio.sleep(seconds)


class Lease(Protocol):
    """What is elected by."""

    async def read(self) -> LeaseRecord | None:
        """The record as it is stored."""

    async def write(self, over: LeaseRecord | None, holder: str, duration: int, address: str) -> LeaseRecord:
        """Store another one in place of ``over``, and of nothing else."""


class Election:
    """One candidate."""

    def __init__(self, lease: Lease, me: str, address: str, timing: LeaseTiming, clock: Clock) -> None:
        """``me``: an identity that no other process ever has; ``address``: where sidecars reach this one."""
        self.problem = ""
        """Why the Lease can't be read or written, in a sentence; empty = it can."""
        self._lease = lease
        self._me = me
        self._address = address
        self._timing = timing
        self._clock = clock
        self._standing = Leadership(me, timing)

    def may_write(self) -> bool:
        """Whether this process leads at this very moment."""
        return self._standing.leads(self._clock.now())

    def guard(self) -> None:
        """Do nothing if this process leads.

        Raises:
            Retryable: it doesn't.
        """
        if not self.may_write():
            raise Retryable("this controller doesn't lead (any more), so it writes nothing; another one may lead")

    def leader_address(self) -> str | None:
        """Where another process leads, as far as this one knows from its last look, a retry period ago."""
        return self._standing.address_of_leader(self._clock.now())

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stand for election, ``lead`` while elected, and stand again, until cancelled.

        ``lead`` is called once for each term and is cancelled at its end; only when it has ended another term may
        begin. When this is cancelled, ``lead`` is ended while the Lease is still kept, and then the Lease is released.
        The same if ``lead`` returns or raises by itself: that ends this too.
        """
        try:
            while True:
                await self._campaign()
                log.info("this controller leads now, as %s", self._me)
                why = await self._term(lead)
                if why is None:
                    return
                log.warning("this controller doesn't lead any more: %s", why)
        finally:
            await self._release()

    async def _campaign(self) -> None:
        """Until elected."""
        while not self.may_write():
            try:
                await self._look()
                if self._standing.claimable_in(self._clock.now()) <= 0:
                    await self._claim()
                    continue
                self._solved()
            except ClusterError as error:
                self._failed(error)
            left = self._standing.claimable_in(self._clock.now())
            await self._clock.sleep(min(self._timing.retry_period, left) or self._timing.retry_period)

    async def _term(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> str | None:
        """One term; why it is over, in a sentence, or None if ``lead`` has returned."""
        working = asyncio.create_task(lead(), name="leading")
        renewing = asyncio.create_task(self._renew(), name="renewing the Lease")
        watching = asyncio.create_task(self._watch(), name="watching the Lease's deadline")
        try:
            await asyncio.wait((working, renewing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._standing.resign()  # An answer that arrives from now on doesn't prolong this term.
                renewing.cancel()
        finally:
            try:
                await _end(working)  # The Lease is still renewed meanwhile, unless the term is over.
            finally:
                self._standing.resign()
                await _end(renewing, watching)
        for task in (working, renewing, watching):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if not working.cancelled():
            return None
        return "it couldn't renew its Lease in time" if renewing.cancelled() else renewing.result()

    async def _renew(self) -> str:
        """Write again and again; ends, with a sentence, when somebody else holds the Lease."""
        is_sure = True
        while True:
            await self._clock.sleep(self._timing.retry_period)
            try:
                if not is_sure:
                    await self._look()
                    if self._standing.is_somebody_elses():
                        return f"{self._holder()} holds the Lease"
                is_sure = False
                await self._claim()
                is_sure = True
            except ClusterError as error:
                self._failed(error)

    async def _watch(self) -> None:
        """Until the time is over for which this process leads."""
        while left := self._standing.remaining(self._clock.now()):
            await self._clock.sleep(left)

    async def _look(self) -> None:
        record = await self._lease.read()
        self._standing.see(record, self._clock.now())

    async def _claim(self) -> None:
        sent = self._clock.now()
        record = await self._lease.write(self._standing.record, self._me, self._timing.duration, self._address)
        self._standing.claimed(record, sent)
        self._solved()

    async def _release(self) -> None:
        """Let the next one begin at once. It is only a courtesy: without it, he waits until the record is old."""
        self._standing.resign()
        try:
            # What was seen last may be older than a write of ours whose answer was lost.
            record = await self._lease.read()
            if record is not None and record.holder == self._me:
                await self._lease.write(record, "", RELEASED_SECONDS, "")
                log.info("the Lease is released")
        except ClusterError as error:
            log.warning("the Lease could not be released, so the next leader waits for its end: %s", error)

    def _holder(self) -> str:
        record = self._standing.record
        return "nobody" if record is None or not record.holder else record.holder

    def _failed(self, error: ClusterError) -> None:
        if isinstance(error, Conflict):
            log.info("somebody else has written the Lease: %s", error)
            return
        if str(error) != self.problem:
            log.warning("the Lease can't be read or written, which is tried again: %s", error)
        self.problem = str(error)

    def _solved(self) -> None:
        if self.problem:
            log.info("the Lease can be read and written again")
        self.problem = ""


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, however they do, even if this is cancelled meanwhile."""
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
