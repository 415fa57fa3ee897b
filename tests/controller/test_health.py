from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from gangctl.controller import health
from gangctl.controller.health import Health, Problems
from gangctl.telemetry.metrics import exposition
from gangctl.telemetry.metrics.exposition import Exposition
from tests.telemetry.gangs import gang, incident, later
from tests.telemetry.samples import FakeSources
from tests.wait import until_async

PROMETHEUS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"


def nothing(problems: Problems) -> Health:
    """Health endpoints with metrics that are all zero."""
    return Health(problems, FakeSources().metrics().exposition)


async def scraped(port: int, accept: str) -> tuple[str, str]:
    """The content type and the text."""
    url, headers = f"http://127.0.0.1:{port}/metrics", {"Accept": accept}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as found:
        assert found.status == 200
        return found.headers["Content-Type"], await found.text()


async def answer(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as found:
        return found.status, await found.text()


async def test_readyz_lists_every_problem_and_follows_their_changes() -> None:
    problems = ["the watch of GangJobs has been broken for 40 s", "there is no certificate yet"]
    async with nothing(lambda: problems).serve("127.0.0.1", 0) as port:
        assert await answer(port, "/readyz") == (503, "".join(f"{one}\n" for one in problems))
        problems.clear()
        assert await answer(port, "/readyz") == (200, "ok\n")


async def test_a_process_that_is_not_ready_is_healthy() -> None:
    async with nothing(lambda: ["the API server is away"]).serve("127.0.0.1", 0) as port:
        assert await answer(port, "/healthz") == (200, "ok\n")
        assert (await answer(port, "/metrics"))[0] == 200
        assert (await answer(port, "/metric"))[0] == 404


async def test_a_stuck_event_loop_is_not_healthy_until_it_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "LATE_SECONDS", 0.2)
    here = nothing(list)
    async with here.serve("127.0.0.1", 0) as port:
        async with asyncio.timeout(10):
            while (await answer(port, "/healthz"))[0] == 200:
                pass
        assert "the event loop has been stuck for" in (await answer(port, "/healthz"))[1]
        beating = asyncio.create_task(here.beat())
        await until_async("the heartbeat runs", lambda: not beating.done())
        assert (await answer(port, "/healthz"))[0] == 200
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


async def test_metrics_have_the_format_that_the_request_accepts() -> None:
    metrics = FakeSources().metrics()
    running = gang(attempt=1)
    metrics.round_began(running)
    metrics.status_written(running, later(running, attempt=2, incidents=(incident(2),)), 0.01)
    async with Health(list, metrics.exposition).serve("127.0.0.1", 0) as port:
        kind, text = await scraped(port, PROMETHEUS)
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        families = {family.name: family for family in open_metrics(text)}  # type: ignore[no-untyped-call]
        exemplars = [one.exemplar for one in families["gangctl_incident_phase_seconds"].samples if one.exemplar]
        assert [one.labels for one in exemplars] == [{"trace_id": f"{2:032x}"}]
        for accept in ("", "*/*", "text/plain;version=0.0.4", "text/html;version=banana", "application/json"):
            kind, text = await scraped(port, accept)
            assert kind == "text/plain; version=0.0.4; charset=utf-8"
            found = {sample.name: sample.value for family in plain(text) for sample in family.samples}
            assert found["gangctl_incidents_total"] == 1
        assert "_created" not in text


async def test_scrapes_in_quick_succession_get_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = FakeSources()
    shown = Exposition(sources.metrics().registry)
    first = await shown.text("")
    sources.connections = 7
    again = await asyncio.gather(*(shown.text("") for _ in range(50)))
    assert all(one is first for one in again)
    monkeypatch.setattr(exposition, "KEPT_SECONDS", 0.0)
    assert b"gangctl_hub_connections 7.0" in (await shown.text("")).body
