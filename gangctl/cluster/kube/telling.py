"""Events for people, by events.k8s.io/v1. They are sent in the background and in order: no decision waits for one."""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import time
import uuid
from typing import Any, Final

from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.model import rfc3339
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.projections import KubePod
from gangctl.core.plan import Event

log = logging.getLogger(__name__)

REPORTER: Final = "gangctl.io/gangctl"
NOTE_BYTES: Final = 1024
"""The API server takes no longer note."""
WAITING: Final = 1000
"""So many events may wait to be sent; more are lost."""


class Telling:
    """Events that wait to be sent."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(WAITING)

    def tell(self, job: GangJob, event: Event, pod: KubePod | None) -> None:
        """Send it soon; ``pod``: which it is about, if that is known.

        Raises:
            Retryable: too many wait.
        """
        try:
            self._queue.put_nowait((job.metadata.namespace, event_object(job, event, pod, time.time())))
        except asyncio.QueueFull:
            raise Retryable(f"{WAITING} events wait to be sent") from None

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            namespace, body = await self._queue.get()
            try:
                await self._client.request("POST", paths.events(namespace), body=json.dumps(body).encode())
            except ClusterError as error:
                log.warning("an event of gang %s was lost: %s", body["regarding"]["name"], error)


def event_object(job: GangJob, event: Event, pod: KubePod | None, now: float) -> dict[str, Any]:
    """The Event as JSON values."""
    gang = job.metadata
    made: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{gang.name}.{uuid.uuid4().hex[:16]}", "namespace": gang.namespace},
        "eventTime": rfc3339(now),
        "reportingController": REPORTER,
        "reportingInstance": platform.node()[:128] or "gangctl",
        "type": event.type.value,
        "reason": event.reason,
        "action": event.reason,
        "note": _cut(event.message),
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": gang.name,
            "namespace": gang.namespace,
            "uid": gang.uid,
        },
    }
    if pod is not None:
        made["related"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        }
    return made


def _cut(text: str) -> str:
    """At most so many bytes, with an ellipsis where something is missing."""
    data = text.encode()
    return text if len(data) <= NOTE_BYTES else f"{data[: NOTE_BYTES - 3].decode(errors='ignore')}…"
