"""Leader election by Lease: one process of a deployment leads, for as long as it can prove that it does.

The rule: two candidates must never lead at the same instant, whatever is delayed, lost, frozen or set wrong. Let

    sent        = time just before candidate c sent its last successful write
    first_seen  = time at which c first saw the record as it is now
    validity    = 0 if the holder has released the record, otherwise max(the record's duration, c's own duration)

Then

    leads(c)      <=>  now < sent + renew_deadline
    claimable(c)  <=>  c leads, or c holds the record, or now >= first_seen + validity

Proof: another candidate replaces only a record that it has seen unchanged for at least ``duration``. It first saw that
record after it was stored, and so after ``sent``. If the holder has written since, that write fails: every write
carries the resourceVersion of the record that it replaces. The margin ``duration - renew_deadline > 0`` also covers
clocks that run at different speeds. No candidate uses the wall time of another one. (The rule is client-go's, but
client-go leads until it has noticed the deadline; here the deadline is checked before each write.)

A process that no longer leads must never write. This is checked twice: :meth:`Election.guard` runs before each write,
so a process that was frozen past its deadline writes nothing when it wakes up; and the leader's work is cancelled at
the deadline.

A candidate can't know the holder of a Lease that was deleted before the candidate's first look, so it takes a Lease
that it has never seen at once: don't delete the Lease of a running deployment while a new controller starts.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from gangctl.api.model import rfc3339
from gangctl.cluster.errors import ClusterError, Conflict, Retryable
from gangctl.cluster.kube.client import Client, NotFound

log = logging.getLogger(__name__)

ADDRESS_ANNOTATION: Final = "gangctl.io/address"
"""The annotation with the holder's address for sidecars, such as ``wss://10.0.0.7:8443/v1/connect``."""
RELEASED_SECONDS: Final = 1
"""The duration of a Lease without a holder: the API server doesn't accept 0."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The fields of a stored Lease."""

    version: str
    """Its resourceVersion: it changes with every write."""
    holder: str
    """Identity of the process that leads; empty = none."""
    duration: float
    """Seconds after the holder's last write for which others must assume that it leads."""
    address: str
    """The holder's address for sidecars; empty = unknown."""
    transitions: int
    """Number of changes of the holder."""
    document: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole object, so that a write keeps the fields that others have set."""


class KubeLease:
    """The Lease ``name`` in ``namespace``, by the API server."""

    def __init__(self, client: Client, namespace: str, name: str, request_seconds: float) -> None:
        """``request_seconds``: time limit of one request."""
        self._client = client
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._seconds = request_seconds

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is stored; None if there is none.

        Raises:
            Retryable: the API server is away.
            Terminal: this controller may not read it.
        """
        try:
            found = await self._client.request("GET", f"{self._folder}/{self._name}", timeout=self._seconds)
        except NotFound:
            return None
        return parse_lease(found)

    async def write(self, over: LeaseRecord | None, holder: str, duration: int, address: str) -> LeaseRecord:
        """Replace the record ``over`` (None: there is no Lease yet) and return the stored one.

        Raises:
            Conflict: ``over`` is no longer what is stored.
            Retryable: it is unknown whether the record was stored.
            Terminal: this controller may not write it.
        """
        document = lease_object(over, holder, duration, address, time.time())
        document["metadata"] = {**document["metadata"], "name": self._name, "namespace": self._namespace}
        method, path = ("POST", self._folder) if over is None else ("PUT", f"{self._folder}/{self._name}")
        try:
            return parse_lease(
                await self._client.request(method, path, body=document, timeout=self._seconds, unguarded=True)
            )
        except NotFound as error:
            raise Conflict(f"the Lease {self._name} was deleted meanwhile: {error}") from error


def parse_lease(text: bytes) -> LeaseRecord:
    """The record in the API server's answer. The API server has checked the types of its fields.

    Raises:
        Retryable: the answer isn't a Lease; it may come from a proxy.
    """
    try:
        document = json.loads(text)
        metadata, spec = document["metadata"], document.get("spec") or {}
        return LeaseRecord(
            version=metadata["resourceVersion"],
            holder=spec.get("holderIdentity") or "",
            duration=spec.get("leaseDurationSeconds") or 0,
            address=(metadata.get("annotations") or {}).get(ADDRESS_ANNOTATION, ""),
            transitions=spec.get("leaseTransitions") or 0,
            document=document,
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Retryable(f"the answer isn't a Lease: {text[:100]!r}") from error


def lease_object(over: LeaseRecord | None, holder: str, duration: int, address: str, now: float) -> dict[str, Any]:
    """The object to store: ``over`` with a new holder, or renewed by the same one.

    ``now``, in seconds since the epoch, is for people: no decision depends on it.
    """
    before = {} if over is None else over.document
    metadata, spec = before.get("metadata") or {}, before.get("spec") or {}
    same = over is not None and over.holder == holder
    changes = 0 if over is None else over.transitions + (1 if holder and not same else 0)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), ADDRESS_ANNOTATION: address}},
        "spec": {
            **spec,
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "acquireTime": spec.get("acquireTime") if same else rfc3339(now),
            "renewTime": rfc3339(now),
            "leaseTransitions": changes,
        },
    }


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Durations of the election, in seconds."""

    duration: int = 15
    """Time after a holder's last write in which no other candidate takes the Lease."""
    renew_deadline: float = 10.0
    """Time after which a holder that couldn't write no longer leads."""
    retry_period: float = 2.0
    """Time between two reads, or two writes."""


class LeaderAt(NamedTuple):
    """The process that leads, as far as one candidate knows."""

    url: str
    """Its address for sidecars."""
    term: str
    """Its identity and the number of changes of the holder until then: no other term has both."""


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

    def note_write(self, record: LeaseRecord, sent: float) -> None:
        """Note a successful write of this candidate, which was not sent before ``sent``."""
        self.record, self._duration = record, self._validity(record)
        self._first_seen = sent
        self._until = sent + self._timing.renew_deadline

    def resign(self) -> None:
        """Stop leading now."""
        self._until = -math.inf

    def leads(self, now: float) -> bool:
        """Return whether this candidate, and no other, may write."""
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
        """Return whether another candidate wrote the last record seen: as its holder, or when it released the Lease."""
        return self.record is not None and self.record.holder != self._identity

    def address_of_leader(self, now: float) -> str | None:
        """Address of another process that leads, as far as this process knows."""
        if self.record is None or not self.is_held_by_another() or self.claimable_in(now) <= 0:
            return None
        return self.record.address or None

    def leader(self, now: float) -> LeaderAt | None:
        """The process that leads, which may be this one, as far as this process knows."""
        url = self.record.address if self.record is not None and self.leads(now) else self.address_of_leader(now)
        return LeaderAt(url, self.term) if url else None

    @property
    def term(self) -> str:
        """The term of the last record seen; empty = there is none."""
        return "" if self.record is None else f"{self.record.holder}/{self.record.transitions}"


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
        self._hurry = asyncio.Event()

    def may_write(self) -> bool:
        """Return whether this process leads right now."""
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

    def leader(self) -> LeaderAt | None:
        """The process that leads, which may be this one; see :meth:`Leadership.leader`."""
        return self._leadership.leader(self._clock.now())

    @property
    def term(self) -> str:
        """The term of the Lease as this process knows it."""
        return self._leadership.term

    def hurry(self) -> None:
        """Look at the Lease now instead of after a retry period, while this process doesn't lead."""
        self._hurry.set()

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
            await self._rest(min(self._timing.retry_period, left) or self._timing.retry_period)

    async def _rest(self, seconds: float) -> None:
        """Wait so long, or until someone is in a hurry."""
        self._hurry.clear()
        parts = [asyncio.ensure_future(one) for one in (self._clock.sleep(seconds), self._hurry.wait())]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(*parts)

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
        self._leadership.note_write(record, sent)
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


async def _end(*tasks: asyncio.Future[Any]) -> None:
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
