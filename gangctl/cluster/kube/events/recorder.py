"""The event recorder: sends Events of events.k8s.io/v1 in the background and in order; no decision waits for one.

The rule: a repeated event is counted in the series of the Event that exists, and a flood is filtered. A lost answer, a
new leader or a crash loop must never fill the API server with copies of one event. A namespace that accepts no Events
(its quota, its webhooks) must never delay those of another.
"""

from __future__ import annotations

import asyncio
import json
import logging
import platform
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
from gangctl.cluster.port import PlainPod, UnreadableGang
from gangctl.core.lifecycle.plan import Event

log = logging.getLogger(__name__)

CACHED_EVENTS: Final = 4096
"""Number of recent events that are kept to count repeats. The API server is asked for the count of an older one."""
FIRST_RETRY_SECONDS: Final = 0.2
LONGEST_RETRY_SECONDS: Final = 5.0
RETRYING_SECONDS: Final = 10.0
"""No attempt to send an event begins later than this after the first."""
UNANSWERED_SECONDS: Final = 60.0
"""The same if no answer came: then the API server is away for all events, and this one may be stored already."""


@dataclass(slots=True, eq=False)
class _CachedEvent:
    """One Event and its number of occurrences."""

    body: dict[str, Any]
    log_fields: dict[str, Any]
    """The gang and attempt, for the log: the task that sends the event doesn't run in a gang's context."""
    last: float
    """Time of the last occurrence, in seconds since the epoch."""
    count: int = 1
    queued: bool = False
    stored: bool = False
    """Whether the API server has it. Then only the count is sent."""

    @property
    def path(self) -> str:
        return f"{paths.events(self.body['metadata']['namespace'])}/{self.body['metadata']['name']}"

    @property
    def series(self) -> dict[str, Any]:
        return {"series": {"count": self.count, "lastObservedTime": rfc3339(self.last)}}


@dataclass(slots=True)
class EventCounts:
    """What became of all events since the process began."""

    sent: int = 0
    """New Events."""
    combined: int = 0
    """Repeats, counted in an Event that exists."""
    left_out: int = 0
    """Not sent, because too many of the same reason came at once."""
    lost: int = 0
    """Could not be sent."""

    @property
    def by_outcome(self) -> dict[str, int]:
        """For metrics."""
        return {"sent": self.sent, "combined": self.combined, "left_out": self.left_out, "lost": self.lost}


class EventRecorder:
    """Records the events of one controller process."""

    def __init__(self, client: Client) -> None:
        self.counts = EventCounts()
        self._client = client
        self._instance = platform.node() or "gangctl"
        self._queues = NamespaceQueues(self._deliver)
        self._cache: OrderedDict[str, _CachedEvent] = OrderedDict()
        """By name of the Event."""
        self._spam_filter = EventSpamFilter()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def record(
        self, about: GangJob | UnreadableGang | PlainPod, event: Event, pod_uid: str, node_uid: str = ""
    ) -> None:
        """Queue the event. ``pod_uid`` and ``node_uid``: of what it names; empty if that is gone.

        Raises:
            Retryable: too many events wait.
        """
        now, kind = time.time(), (about.metadata.uid, event.reason)
        left_out, log_fields = self._left_out[kind], _log_fields(about, event)
        body = event_object(
            about, event, pod_uid=pod_uid, node_uid=node_uid, now=now, instance=self._instance, left_out=left_out
        )
        name = body["metadata"]["name"]
        cached = self._cache.get(name)
        if cached is not None:
            self._cache.move_to_end(name)
            cached.count, cached.last, cached.log_fields = cached.count + 1, now, log_fields
            self.counts.combined += 1
            if cached.queued:
                return
        if not self._spam_filter.allow(kind, time.monotonic()):
            if cached is None:  # A repeat is in the count that the next one sends.
                self._leave_out(about, event, kind)
            return
        if cached is None:
            cached = _CachedEvent(body, log_fields, now)
        try:
            self._queues.put(body["metadata"]["namespace"], cached)
        except Retryable:
            self.counts.lost += 1
            raise
        cached.queued = True
        self._left_out.pop(kind, None)
        self._cache[name] = cached
        if len(self._cache) > CACHED_EVENTS:
            self._cache.popitem(last=False)

    def drop_waiting(self) -> None:
        """Drop what waits, since this process no longer leads: it can't be sent now and would be old later.

        The cache is emptied as well: the next leader goes on counting, so the API server is asked for the counts.
        """
        dropped, sending = self._queues.clear(), self._queues.pending
        self._cache.clear()
        self.counts.lost += dropped
        if dropped or sending:
            log.warning(
                "this controller no longer leads; events dropped from the queue: %d, perhaps lost in sending: %d",
                dropped,
                sending,
            )

    async def flush(self, seconds: float) -> None:
        """Wait until all events are sent, but at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._queues.join()

    async def run(self) -> None:
        """Send until cancelled."""
        await self._queues.run()

    async def _deliver(self, event: _CachedEvent) -> None:
        """Send the event, or log that it is lost."""
        event.queued = False
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(Retryable),
                stop=_gives_up,
                wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
                reraise=True,
            ):
                with attempt:
                    await self._send(event)
        except ClusterError as error:
            self.counts.lost += 1
            name = event.body["metadata"]["name"]
            if not (event.stored or event.queued) and self._cache.get(name) is event:
                del self._cache[name]  # It was never stored, so the next occurrence is the first.
            about = event.log_fields.get("gang") or event.log_fields.get("pod")
            what = "gang" if "gang" in event.log_fields else "pod"
            log.warning("an event of %s %s was lost: %s", what, about, error, extra=event.log_fields)

    def _leave_out(self, about: GangJob | UnreadableGang | PlainPod, event: Event, kind: tuple[str, str]) -> None:
        self.counts.left_out += 1
        self._left_out[kind] += 1
        if len(self._left_out) > CACHED_EVENTS:
            del self._left_out[next(iter(self._left_out))]
        if self._left_out[kind] == 1:
            log.warning(
                "%s %s: too many %s events at once; some are not sent. The status and this log have all of them",
                _what(about),
                about.metadata.name,
                event.reason,
            )

    async def _send(self, event: _CachedEvent) -> None:
        if event.stored:
            try:
                await self._client.request("PATCH", event.path, body=_json(event.series), content_type=MERGE_PATCH)
            except NotFound:  # The API server keeps Events for an hour.
                event.stored = False
            else:
                return
        body = event.body | (event.series if event.count > 1 else {})
        try:
            await self._client.request("POST", paths.events(body["metadata"]["namespace"]), body=_json(body))
        except AlreadyExists:
            await self._continue_series(event)
        else:
            event.stored = True
            self.counts.sent += 1

    async def _continue_series(self, event: _CachedEvent) -> None:
        """The Event exists: either an answer was lost, or another process, such as the last leader, created it."""
        try:  # An empty patch reads the Event, so that the rights to create and patch are enough.
            answer = await self._client.request("PATCH", event.path, body=b"{}", content_type=MERGE_PATCH)
        except NotFound:
            raise Retryable("the same event has just expired") from None
        event_time, count = _time_and_count(answer)
        event.stored = True
        if event_time == event.body["eventTime"]:
            self.counts.sent += 1
            return
        event.count += count
        self.counts.combined += 1
        await self._send(event)


def _what(about: GangJob | UnreadableGang | PlainPod) -> str:
    return "pod" if isinstance(about, PlainPod) else "gang"


def _log_fields(about: GangJob | UnreadableGang | PlainPod, event: Event) -> dict[str, Any]:
    """The fields of every log entry about a gang or pod."""
    fields: dict[str, Any] = {"namespace": about.metadata.namespace, _what(about): about.metadata.name}
    if isinstance(about, GangJob):
        fields["attempt"] = about.status.attempt
    return fields | ({"traceID": event.trace_id} if event.trace_id else {})


def _gives_up(state: RetryCallState) -> bool:
    """Whether an event that couldn't be sent is given up."""
    unanswered = state.outcome is not None and isinstance(state.outcome.exception(), NoAnswer)
    limit = UNANSWERED_SECONDS if unanswered else RETRYING_SECONDS
    return (state.seconds_since_start or 0.0) + state.upcoming_sleep >= limit


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _time_and_count(answer: bytes) -> tuple[str, int]:
    """Time of the first occurrence of a stored Event, and its number of occurrences."""
    try:
        found = json.loads(answer)
        return str(found["eventTime"]), int((found.get("series") or {}).get("count", 1))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Terminal("the API server's answer isn't an Event") from error
