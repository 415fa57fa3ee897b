"""Events for people, by events.k8s.io/v1: sent in the background and in order, no decision waits for one.

The rule: what is said again is counted in the series of the Event that says it already, and a flood is paced. Never
does a lost answer, a new leader or a crash loop fill the API server with the same news.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import MERGE_PATCH, AlreadyExists, Client, NotFound
from gangctl.cluster.kube.eventing import event_object
from gangctl.cluster.kube.pacing import Pacing
from gangctl.core.plan import Event

log = logging.getLogger(__name__)

WAITING: Final = 1000
"""So many events may wait to be sent; more are lost."""
KEPT: Final = 4096
"""So many of the last events are remembered, to count what is said again. Of an older one the API server knows."""
TRIES: Final = 12
FIRST_RETRY_SECONDS: Final = 0.2
LONGEST_RETRY_SECONDS: Final = 15.0


@dataclass(slots=True, eq=False)
class _Said:
    """One Event, and how often it was said."""

    body: dict[str, Any]
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
class Tally:
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
    def counts(self) -> dict[str, int]:
        """By name, for metrics."""
        return {"sent": self.sent, "combined": self.combined, "left_out": self.left_out, "lost": self.lost}


class Telling:
    """Events that wait to be sent, and those that were sent last."""

    def __init__(self, client: Client) -> None:
        self.tally = Tally()
        self._client = client
        self._queue: asyncio.Queue[_Said] = asyncio.Queue(WAITING)
        self._said: OrderedDict[str, _Said] = OrderedDict()
        self._pacing = Pacing()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def tell(self, job: GangJob, event: Event, pod_uid: str) -> None:
        """Send it soon. ``pod_uid``: of the pod that it is about; empty if that isn't there.

        Raises:
            Retryable: too many wait.
        """
        now, kind = time.time(), (job.metadata.uid, event.reason)
        body = event_object(job, event, pod_uid, now, self._left_out[kind])
        name = body["metadata"]["name"]
        said = self._said.get(name)
        if said is not None:
            self._said.move_to_end(name)
            said.count, said.last = said.count + 1, now
            self.tally.combined += 1
            if said.waits:
                return
        if not self._pacing.take(kind, time.monotonic()):
            if said is None:  # A repeat is counted by the next one that is told.
                self._leave_out(job, event, kind)
            return
        if said is None:
            said = _Said(body, now)
        try:
            self._queue.put_nowait(said)
        except asyncio.QueueFull:
            self.tally.lost += 1
            raise Retryable(f"{WAITING} events wait to be sent") from None
        said.waits = True
        self._left_out.pop(kind, None)
        self._said[name] = said
        if len(self._said) > KEPT:
            self._said.popitem(last=False)

    def resign(self) -> None:
        """This process leads no more: what waits can't be sent, and would be old when it leads again."""
        while not self._queue.empty():
            self._queue.get_nowait().waits = False
            self.tally.lost += 1

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            said = await self._queue.get()
            said.waits = False
            try:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(Retryable),
                    stop=stop_after_attempt(TRIES),
                    wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
                    reraise=True,
                ):
                    with attempt:
                        await self._send(said)
            except ClusterError as error:
                self.tally.lost += 1
                log.warning("an event of gang %s was lost: %s", said.body["regarding"]["name"], error)

    def _leave_out(self, job: GangJob, event: Event, kind: tuple[str, str]) -> None:
        self.tally.left_out += 1
        self._left_out[kind] += 1
        if len(self._left_out) > KEPT:
            del self._left_out[next(iter(self._left_out))]
        if self._left_out[kind] == 1:
            log.warning(
                "gang %s: too many %s events at once: some are left out, the status and this log have them all",
                job.metadata.name,
                event.reason,
            )

    async def _send(self, said: _Said) -> None:
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
            self.tally.sent += 1

    async def _join(self, said: _Said) -> None:
        """It is there: an answer was lost, or somebody said the same before, such as the last leader."""
        try:  # An empty patch reads: events may be created and patched, which is all that is asked for.
            answer = await self._client.request("PATCH", said.path, body=b"{}", content_type=MERGE_PATCH)
        except NotFound:
            raise Retryable("the same event has just expired") from None
        event_time, count = _seen(answer)
        said.stored = True
        if event_time == said.body["eventTime"]:
            self.tally.sent += 1
            return
        said.count += count
        self.tally.combined += 1
        await self._send(said)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _seen(answer: bytes) -> tuple[str, int]:
    """When an Event was first said, and how often it was said since."""
    try:
        found = json.loads(answer)
        return str(found["eventTime"]), int((found.get("series") or {}).get("count", 1))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Terminal("the API server's answer isn't an Event") from error
