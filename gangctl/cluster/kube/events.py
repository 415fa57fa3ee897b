"""Record Events of events.k8s.io/v1, in the background and in order; no decision waits for an Event.

The rule: a repeated event is counted in the series of the Event that exists, and a flood is filtered. A lost answer, a
new leader or a crash loop must never fill the API server with copies of one event: the object's name is a hash of its
content (type, reason, note, pod). A namespace that accepts no Events (its quota, its webhooks) must never delay those
of another, nor use the capacity of all others. A note must never contain anything that changes the reader's terminal.

The filter is client-go's ``EventSourceObjectSpamFilter``: a burst of 25, then one event every five minutes. client-go
has a bucket for each object; here each reason of a gang has its own, so that the end of a gang is reported after any
number of restarts.
"""

import asyncio
import hashlib
import json
import logging
import platform
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from gangctl.api.events import action
from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.model import escaped, rfc3339
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import AlreadyExists, Client, NoAnswer, NotFound
from gangctl.cluster.port import PlainObject, UnreadableGang
from gangctl.core.lifecycle.plan import Event

log = logging.getLogger(__name__)

REPORTING_CONTROLLER: Final = "gangctl.io/gangctl"
INSTANCE_CHARACTERS: Final = 128
"""The API server accepts no longer ``reportingInstance``."""
CLUSTER_NAMESPACE: Final = "default"
"""The API server takes Events about what is in no namespace here."""
NOTE_BYTES: Final = 1024
"""The API server accepts no longer note."""


def event_object(
    about: GangJob | UnreadableGang | PlainObject,
    event: Event,
    *,
    pod_uid: str,
    node_uid: str = "",
    now: float,
    instance: str,
    left_out: int = 0,
) -> dict[str, Any]:
    """The Event as JSON values.

    Args:
        about: The gang or pod that the event is about, if it names no node.
        event: What happened.
        pod_uid: UID of the pod that the event is about; empty if that pod is gone.
        node_uid: UID of the node that the event is about; empty if it is about none, or that node is gone.
        now: Time of the event, in seconds since the epoch.
        instance: Name of the process that reports it.
        left_out: Number of events with the same reason that were not sent before this one.
    """
    gang = about.metadata
    regarding = _node(event.node, node_uid) if event.node else _object(about)
    namespace = regarding.get("namespace", CLUSTER_NAMESPACE)
    related = _related(gang.namespace, event, pod_uid)
    trace = f" (trace {event.trace_id})" if event.trace_id else ""
    text = event.message.removesuffix(trace)
    more = f" ({left_out} more with this reason were left out before)" if left_out else ""
    content = [
        gang.uid,
        *([event.node] if event.node else []),
        event.type,
        event.reason,
        text,
        event.trace_id,
        related,
    ]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    made: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{regarding['name']}.{digest[:16]}", "namespace": namespace},
        "eventTime": rfc3339(now),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": instance[:INSTANCE_CHARACTERS],
        "type": event.type,
        "reason": event.reason,
        "action": action(event.reason),
        "note": _note(text, more + trace),
        "regarding": regarding,
    }
    if event.trace_id:
        made["metadata"]["annotations"] = {ANNOTATION_TRACE_ID: event.trace_id}
    if related:
        made["related"] = related
    return made


def _object(about: GangJob | UnreadableGang | PlainObject) -> dict[str, str]:
    version, kind = (about.api_version, about.kind) if isinstance(about, PlainObject) else (API_VERSION, KIND)
    which = about.metadata
    return {"apiVersion": version, "kind": kind, "name": which.name, "namespace": which.namespace, "uid": which.uid}


def _node(name: str, uid: str) -> dict[str, str]:
    """``kubectl describe node`` finds Events by the UID, and those of the kubelet by the name in its place."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid or name}


def _related(namespace: str, event: Event, pod_uid: str) -> dict[str, str]:
    if not event.pod:
        return {}
    reference = {"apiVersion": "v1", "kind": "Pod", "name": str(event.pod), "namespace": namespace}
    return reference | ({"uid": pod_uid} if pod_uid else {})


def _note(text: str, end: str) -> str:
    """At most :data:`NOTE_BYTES`, with an ellipsis where text was cut; ``end`` is never cut."""
    data, limit = escaped(text).encode(), NOTE_BYTES - len(end.encode())
    kept = data.decode() if len(data) <= limit else f"{data[: limit - 3].decode(errors='ignore')}…"
    return kept + end


BURST: Final = 25
REFILL_SECONDS: Final = 300.0
"""Time until a bucket gets one more token."""
MAX_BUCKETS: Final = 4096
"""Number of buckets that are kept, those that were used last: a bucket that was dropped is full again."""


@dataclass(slots=True)
class _TokenBucket:
    tokens: float
    at: float


class EventSpamFilter:
    """The buckets."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, _TokenBucket] = OrderedDict()

    def allow(self, kind: Hashable, now: float) -> bool:
        """Take a token of this kind, if there is one at ``now`` (monotonic seconds); whether there was."""
        bucket = self._buckets.setdefault(kind, _TokenBucket(BURST, now))
        self._buckets.move_to_end(kind)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


CAPACITY: Final = 1000
"""Maximum number of items that wait or are worked on, in all namespaces together."""
NAMESPACE_CAPACITY: Final = 200
"""Maximum number of items that wait in one namespace."""

T = TypeVar("T")


class NamespaceQueues(Generic[T]):
    """The queues. A namespace without waiting items has neither a queue nor a task."""

    def __init__(self, work: Callable[[T], Awaitable[None]]) -> None:
        """``work`` handles one item. It must not raise."""
        self.pending = 0
        """Number of items that wait or are worked on."""
        self._work = work
        self._waiting: dict[str, deque[T]] = {}
        self._started: asyncio.Queue[str] = asyncio.Queue()
        """Namespaces that need a task."""
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, namespace: str, item: T) -> None:
        """Append an item to the queue of its namespace.

        Raises:
            Retryable: too many items wait.
        """
        waiting = self._waiting.get(namespace, ())
        if self.pending >= CAPACITY or len(waiting) >= NAMESPACE_CAPACITY:
            raise Retryable(f"{self.pending} events wait to be sent, {len(waiting)} of them in namespace {namespace}")
        if namespace not in self._waiting:
            self._waiting[namespace] = deque()
            self._started.put_nowait(namespace)
        self._waiting[namespace].append(item)
        self.pending += 1
        self._idle.clear()

    def clear(self) -> int:
        """Drop the waiting items and return their number. An item that is being worked on is finished."""
        dropped = sum(map(len, self._waiting.values()))
        for waiting in self._waiting.values():
            waiting.clear()
        self._done(dropped)
        return dropped

    async def join(self) -> None:
        """Wait until no item waits or is worked on."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as workers:
            while True:
                workers.create_task(self._work_off(await self._started.get()))

    async def _work_off(self, namespace: str) -> None:
        waiting = self._waiting[namespace]
        while waiting:
            await self._work(waiting.popleft())
            self._done(1)
        del self._waiting[namespace]

    def _done(self, count: int) -> None:
        self.pending -= count
        if not self.pending:
            self._idle.set()


CACHED_EVENTS: Final = 4096
"""Number of recent events that are kept to count repeats. The API server is asked for the count of an older one."""
FIRST_RETRY_SECONDS: Final = 0.2
LONGEST_RETRY_SECONDS: Final = 5.0
RETRYING_SECONDS: Final = 10.0
"""No attempt to send an event begins later than this after the first."""
UNANSWERED_SECONDS: Final = 60.0
"""The same if no answer came: then the API server is away for all events, and this event may be stored already."""


@dataclass(slots=True, eq=False)
class _CachedEvent:
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


OUTCOMES: Final = ("sent", "combined", "left_out", "lost")
"""A repeat is combined with an Event that exists; one is left out if too many of the same reason came at once."""


class EventRecorder:
    """Records the events of one controller process."""

    def __init__(self, client: Client) -> None:
        self.counts = Counter(dict.fromkeys(OUTCOMES, 0))
        """What became of all events since the process began."""
        self._client = client
        self._instance = platform.node() or "gangctl"
        self._queues = NamespaceQueues(self._deliver)
        self._cache: OrderedDict[str, _CachedEvent] = OrderedDict()
        """By name of the Event."""
        self._spam_filter = EventSpamFilter()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def record(
        self, about: GangJob | UnreadableGang | PlainObject, event: Event, pod_uid: str, node_uid: str = ""
    ) -> None:
        """Queue the event. ``pod_uid`` and ``node_uid``: of what it names; empty if that is gone."""
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
            self.counts["combined"] += 1
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
            self.counts["lost"] += 1
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
        self.counts["lost"] += dropped
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
            retrying = AsyncRetrying(
                retry=retry_if_exception_type(Retryable),
                stop=_gives_up,
                wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
                reraise=True,
            )
            await retrying(self._send, event)
        except ClusterError as error:
            self.counts["lost"] += 1
            name = event.body["metadata"]["name"]
            if not (event.stored or event.queued) and self._cache.get(name) is event:
                del self._cache[name]  # It was never stored, so the next occurrence is the first.
            about = event.log_fields.get("gang") or event.log_fields.get("pod")
            what = "gang" if "gang" in event.log_fields else "pod"
            log.warning("an event of %s %s was lost: %s", what, about, error, extra=event.log_fields)

    def _leave_out(self, about: GangJob | UnreadableGang | PlainObject, event: Event, kind: tuple[str, str]) -> None:
        self.counts["left_out"] += 1
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
                await self._client.request("PATCH", event.path, body=event.series)
            except NotFound:  # The API server keeps Events for an hour.
                event.stored = False
            else:
                return
        body = event.body | (event.series if event.count > 1 else {})
        try:
            await self._client.request("POST", paths.events(body["metadata"]["namespace"]), body=body)
        except AlreadyExists:
            await self._continue_series(event)
        else:
            event.stored = True
            self.counts["sent"] += 1

    async def _continue_series(self, event: _CachedEvent) -> None:
        """The Event exists: either an answer was lost, or another process, such as the last leader, created it."""
        try:  # An empty patch reads the Event, so that the rights to create and patch are enough.
            answer = await self._client.request("PATCH", event.path, body={})
        except NotFound:
            raise Retryable("the same event has just expired") from None
        event_time, count = _time_and_count(answer)
        event.stored = True
        if event_time == event.body["eventTime"]:
            self.counts["sent"] += 1
            return
        event.count += count
        self.counts["combined"] += 1
        await self._send(event)


def _what(about: GangJob | UnreadableGang | PlainObject) -> str:
    return about.kind.lower() if isinstance(about, PlainObject) else "gang"


def _log_fields(about: GangJob | UnreadableGang | PlainObject, event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {"namespace": about.metadata.namespace, _what(about): about.metadata.name}
    if isinstance(about, GangJob):
        fields["attempt"] = about.status.attempt
    return fields | ({"traceID": event.trace_id} if event.trace_id else {})


def _gives_up(state: RetryCallState) -> bool:
    """Return whether an event that couldn't be sent is given up."""
    unanswered = state.outcome is not None and isinstance(state.outcome.exception(), NoAnswer)
    limit = UNANSWERED_SECONDS if unanswered else RETRYING_SECONDS
    return (state.seconds_since_start or 0.0) + state.upcoming_sleep >= limit


def _time_and_count(answer: bytes) -> tuple[str, int]:
    """Time of the first occurrence of a stored Event, and its number of occurrences."""
    try:
        found = json.loads(answer)
        return str(found["eventTime"]), int((found.get("series") or {}).get("count", 1))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Terminal("the API server's answer isn't an Event") from error
