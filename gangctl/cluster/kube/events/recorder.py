"""Events for people, by events.k8s.io/v1: sent in the background and in order, no decision waits for one.

The rule: what is said again is counted in the series of the Event that says it already, and a flood is paced. Never
does a lost answer, a new leader or a crash loop fill the API server with the same news; never does a namespace that
takes no Events (its quota, its webhooks) hold up another's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import MERGE_PATCH, AlreadyExists, Client, NoAnswer, NotFound
from gangctl.cluster.kube.events.event import event_object
from gangctl.cluster.kube.events.queue import NamespaceQueues
from gangctl.cluster.kube.events.spam_filter import EventSpamFilter
from gangctl.core.lifecycle.plan import Event

log = logging.getLogger(__name__)

KEPT: Final = 4096
"""So many of the last events are remembered, to count what is said again. Of an older one the API server knows."""
FIRST_RETRY_SECONDS: Final = 0.2
LONGEST_RETRY_SECONDS: Final = 5.0
RETRYING_SECONDS: Final = 10.0
"""No try begins later than so long after the first."""
UNANSWERED_SECONDS: Final = 60.0
"""The same, if no answer came: then the API server is away for all, and the event may be there already."""


@dataclass(slots=True, eq=False)
class _CachedEvent:
    """One Event, and how often it was said."""

    body: dict[str, Any]
    about: dict[str, Any]
    """Whose it is, for the log: the task that sends it has no round of a gang."""
    last: float
    """When it was said last, in seconds since the epoch."""
    count: int = 1
    waits: bool = False
    stored: bool = False
    """Whether the API server has it: the rest is counting."""

    @property
    def path(self) -> str:
        return f"{paths.events(self.body['metadata']['namespace'])}/{self.body['metadata']['name']}"

    @property
    def series(self) -> dict[str, Any]:
        return {"series": {"count": self.count, "lastObservedTime": rfc3339(self.last)}}


@dataclass(slots=True)
class EventCounts:
    """What became of the events since the process began."""

    sent: int = 0
    """New Events."""
    combined: int = 0
    """Said again, and counted in an Event that is there."""
    left_out: int = 0
    """Not told, because too many of their kind came at once."""
    lost: int = 0
    """Could not be sent."""

    @property
    def by_outcome(self) -> dict[str, int]:
        """By name, for metrics."""
        return {"sent": self.sent, "combined": self.combined, "left_out": self.left_out, "lost": self.lost}


class EventRecorder:
    """Events that wait to be sent, and those that were sent last."""

    def __init__(self, client: Client) -> None:
        self.counts = EventCounts()
        self._client = client
        self._queues = NamespaceQueues(self._deliver)
        """By namespace."""
        self._said: OrderedDict[str, _CachedEvent] = OrderedDict()
        self._spam_filter = EventSpamFilter()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def record(self, job: GangJob, event: Event, pod_uid: str) -> None:
        """Send it soon. ``pod_uid``: of the pod that it is about; empty if that isn't there.

        Raises:
            Retryable: too many wait.
        """
        now, kind = time.time(), (job.metadata.uid, event.reason)
        body, about = event_object(job, event, pod_uid, now, self._left_out[kind]), _about(job, event)
        name = body["metadata"]["name"]
        said = self._said.get(name)
        if said is not None:
            self._said.move_to_end(name)
            said.count, said.last, said.about = said.count + 1, now, about
            self.counts.combined += 1
            if said.waits:
                return
        if not self._spam_filter.allow(kind, time.monotonic()):
            if said is None:  # A repeat is counted by the next one that is told.
                self._leave_out(job, event, kind)
            return
        if said is None:
            said = _CachedEvent(body, about, now)
        try:
            self._queues.put(job.metadata.namespace, said)
        except Retryable:
            self.counts.lost += 1
            raise
        said.waits = True
        self._left_out.pop(kind, None)
        self._said[name] = said
        if len(self._said) > KEPT:
            self._said.popitem(last=False)

    def drop_waiting(self) -> None:
        """This process leads no more: what waits can't be sent, and would be old when it leads again.

        What was said is forgotten: another leader counts on from here, so the API server is asked how often it was.
        """
        dropped, trying = self._queues.drop(), self._queues.open
        self._said.clear()
        self.counts.lost += dropped
        if dropped or trying:
            log.warning(
                "this controller leads no more: %d events that waited are not told, %d that are being sent may not be",
                dropped,
                trying,
            )

    async def flush(self, seconds: float) -> None:
        """Wait until nothing waits to be sent, but not longer than so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._queues.idle()

    async def run(self) -> None:
        """Send until cancelled."""
        await self._queues.run()

    async def _deliver(self, said: _CachedEvent) -> None:
        """Send it, or say that it is lost."""
        said.waits = False
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(Retryable),
                stop=_is_over,
                wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
                reraise=True,
            ):
                with attempt:
                    await self._send(said)
        except ClusterError as error:
            self.counts.lost += 1
            name = said.body["metadata"]["name"]
            if not (said.stored or said.waits) and self._said.get(name) is said:
                del self._said[name]  # It was never told, so the next one is the first.
            log.warning("an event of gang %s was lost: %s", said.about["gang"], error, extra=said.about)

    def _leave_out(self, job: GangJob, event: Event, kind: tuple[str, str]) -> None:
        self.counts.left_out += 1
        self._left_out[kind] += 1
        if len(self._left_out) > KEPT:
            del self._left_out[next(iter(self._left_out))]
        if self._left_out[kind] == 1:
            log.warning(
                "gang %s: too many %s events at once: some are left out, the status and this log have them all",
                job.metadata.name,
                event.reason,
            )

    async def _send(self, said: _CachedEvent) -> None:
        if said.stored:
            try:
                await self._client.request("PATCH", said.path, body=_json(said.series), content_type=MERGE_PATCH)
            except NotFound:  # The API server keeps events for an hour.
                said.stored = False
            else:
                return
        body = said.body | (said.series if said.count > 1 else {})
        try:
            await self._client.request("POST", paths.events(body["metadata"]["namespace"]), body=_json(body))
        except AlreadyExists:
            await self._join(said)
        else:
            said.stored = True
            self.counts.sent += 1

    async def _join(self, said: _CachedEvent) -> None:
        """It is there: an answer was lost, or somebody said the same before, such as the last leader."""
        try:  # An empty patch reads: events may be created and patched, which is all that is asked for.
            answer = await self._client.request("PATCH", said.path, body=b"{}", content_type=MERGE_PATCH)
        except NotFound:
            raise Retryable("the same event has just expired") from None
        event_time, count = _seen(answer)
        said.stored = True
        if event_time == said.body["eventTime"]:
            self.counts.sent += 1
            return
        said.count += count
        self.counts.combined += 1
        await self._send(said)


def _about(job: GangJob, event: Event) -> dict[str, Any]:
    """The fields that all entries of the log have that are about a gang."""
    found = {"namespace": job.metadata.namespace, "gang": job.metadata.name, "attempt": job.status.attempt}
    return found | ({"traceID": event.trace_id} if event.trace_id else {})


def _is_over(state: RetryCallState) -> bool:
    """Whether an event that couldn't be sent is given up."""
    unknown = state.outcome is not None and isinstance(state.outcome.exception(), NoAnswer)
    limit = UNANSWERED_SECONDS if unknown else RETRYING_SECONDS
    return (state.seconds_since_start or 0.0) + state.upcoming_sleep >= limit


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _seen(answer: bytes) -> tuple[str, int]:
    """When an Event was first said, and how often it was said since."""
    try:
        found = json.loads(answer)
        return str(found["eventTime"]), int((found.get("series") or {}).get("count", 1))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Terminal("the API server's answer isn't an Event") from error
