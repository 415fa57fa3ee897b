"""What workers printed last, as a kubelet's logs tell it: of this container, of the one before, late, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.status import Status
from gangctl.cluster.errors import ClusterError, Terminal
from gangctl.cluster.kube import worker_output
from gangctl.cluster.kube.worker_output import KubeletLogReader
from gangctl.core.facts.printed import Printed, ReadOutput
from tests.cluster.kube.fakeapi import FakeApi, serving, status
from tests.cluster.kube.objects import gang

QUERY = ReadOutput("worker-1", 2, 1)
AT = "2026-11-24T08:00:00.123Z info"
ENDED = f"{AT} a process of the worker ended pid=7 exit_code=1 signal=None\n"
NEXT = f"{AT} Ready attempt=2 on=Directive reason=''\n{AT} Running attempt=2 on=Directive reason=''\n"
SESSION = f"{AT} a session begins session=ab member=worker-1 incarnation=2\n"
Refused = tuple[int, str, str]
"""Code, reason and message."""
PATH = "/api/v1/namespaces/default/pods/g-worker-1-2/log"


@dataclass
class Logs:
    """The logs of a container and of the one before, as the API server answers."""

    api: FakeApi
    output: KubeletLogReader
    job: GangJob
    now: list[str | Refused] = field(default_factory=list)
    """The answers, one after the other; the last one again and again."""
    before: str | None = None

    async def answer(self, request: web.Request) -> web.Response | None:
        if not request.path.endswith("/log"):
            return None
        if "previous" in request.query:
            gone = status(400, "BadRequest", "previous terminated container not found")
            return gone if self.before is None else web.Response(text=self.before)
        found = self.now.pop(0) if len(self.now) > 1 else self.now[0]
        return web.Response(text=found) if isinstance(found, str) else status(*found)

    async def printed(self) -> Printed:
        return await self.output.printed(self.job, QUERY)

    @property
    def queries(self) -> list[dict[str, str]]:
        return [query for _, path, query in self.api.requests if path == PATH]


@asynccontextmanager
async def logs(
    *now: str | Refused, before: str | None = None, enabled: bool = True, started: int = 1
) -> AsyncIterator[Logs]:
    job = changed(GangJob.model_validate(gang()), status=Status(started_attempt=started))
    stored: Callable[[str], GangJob | None] = {job.metadata.uid: job}.get
    async with serving() as (api, client):
        found = Logs(api, KubeletLogReader(client, stored, enabled=enabled), job, list(now), before)
        api.faults.append(found.answer)
        yield found


async def test_the_end_of_the_log_of_the_workers_container_is_read_once() -> None:
    async with logs(f"loading\nValueError: x\n{ENDED}{NEXT}next\n", started=2) as found:
        assert (await found.printed()).lines == ("loading", "ValueError: x")
        assert found.queries == [{"container": "m", "tailLines": "100", "limitBytes": str(2 << 20)}]


async def test_a_container_that_has_started_again_is_asked_for_the_log_before() -> None:
    async with logs(SESSION, before="step 7\nKilled\n") as found:
        assert (await found.printed()).line == "Killed"


async def test_a_container_that_waits_for_its_start_is_asked_for_the_log_before() -> None:
    waits = 400, "BadRequest", "container m in pod p is waiting to start: CrashLoopBackOff"
    async with logs(waits, before="step 7\nKilled\n") as found:
        assert (await found.printed()).line == "Killed"


async def test_a_log_without_the_end_of_the_process_is_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_output, "AGAIN_SECONDS", 0.0)
    async with logs("loading\n", f"loading\nValueError: x\n{ENDED}") as found:
        assert (await found.printed()).line == "ValueError: x"
    async with logs("loading\n") as found:
        assert (await found.printed()).line == "loading"
        assert len(found.queries) == 2


async def test_a_worker_that_printed_nothing_has_printed_nothing() -> None:
    async with logs(ENDED + NEXT, before="of an earlier container\n") as found:
        assert await found.printed() == Printed(is_complete=True)
        assert len(found.queries) == 1


async def test_the_output_of_a_later_attempt_is_not_taken_for_that_of_an_earlier_one() -> None:
    async with logs("next\n", started=2) as found:
        assert (await found.printed()).lines == ()


async def test_a_pod_that_is_gone_has_printed_nothing() -> None:
    async with logs((404, "NotFound", "pods not found")) as found:
        assert (await found.printed()).lines == ()


async def test_a_missing_right_is_an_error_with_the_servers_words() -> None:
    forbidden = 403, "Forbidden", 'pods "g-worker-1-2" is forbidden: cannot get resource "pods/log"'
    async with logs(forbidden) as found:
        with pytest.raises(Terminal, match='cannot get resource "pods/log"'):
            await found.printed()


async def test_a_log_that_is_too_large_is_not_kept_in_memory() -> None:
    async with logs("x" * (worker_output.MAX_ANSWER_BYTES + 1)) as found:
        with pytest.raises(ClusterError):
            await found.printed()


async def test_nothing_is_requested_where_that_is_off_or_the_role_is_gone() -> None:
    async with logs("x", enabled=False) as found:
        assert await found.printed() == Printed()
        assert found.queries == []
    async with logs("x") as found:
        assert await found.output.printed(found.job, ReadOutput("launcher-0", 0, 1)) == Printed()
        assert found.queries == []
