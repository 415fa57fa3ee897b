"""A gang, its events, and a recorder that runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.cluster.kube.events import EventRecorder
from gangctl.core.lifecycle.plan import Event
from tests.cluster.kube.fakeapi import FakeApi
from tests.cluster.kube.objects import UID, gang
from tests.messages import words

TRACE = "0123456789abcdef0123456789abcdef"

JOB = GangJob.model_validate(
    {key: value for key, value in gang(status=None).items() if key != "status"}
    | {"metadata": {"name": "g", "namespace": "default", "uid": UID, "resourceVersion": "1"}}
)

PENDING = Event(Reason.PENDING, words("attempt 1 waits for worker-0 to be ready"))


def with_status(**fields: Any) -> GangJob:
    return JOB.model_copy(update={"status": Status(**fields)})


def events(api: FakeApi) -> list[dict[str, Any]]:
    return [value for key, value in api.objects.items() if key[0] == "events"]


def has_one_event(api: FakeApi, count: int | None) -> bool:
    """Whether one Event is stored, with this count in its series; None = without a series."""
    return [one.get("series", {}).get("count") for one in events(api)] == [count]


@dataclass
class Hold:
    """Fault injection: requests about a namespace that hang."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)


def namespace_held(api: FakeApi, namespace: str) -> tuple[GangJob, Hold]:
    """A gang in a namespace whose requests hang until they are released."""
    hold = Hold()

    async def hang(request: web.Request) -> web.Response | None:
        if f"/namespaces/{namespace}/" in request.path:
            hold.reached.set()
            await hold.release.wait()
        return None

    api.faults.append(hang)
    return JOB.model_copy(update={"metadata": JOB.metadata.model_copy(update={"namespace": namespace})}), hold


@asynccontextmanager
async def recording(api_client: Any) -> AsyncIterator[EventRecorder]:
    """The recorder of one controller."""
    one = EventRecorder(api_client)
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
