from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from gangctl.cluster.kube.authorizers import HttpRefusal
from gangctl.controller.endpoints import MetricsServer, Security
from gangctl.telemetry.metrics import exposition
from gangctl.telemetry.metrics.exposition import Exposition
from tests.cluster.kube.fakeapi import serving, status
from tests.controller.replicas import ANY, replica, until_answered
from tests.ports import free_port
from tests.telemetry.gangs import gang, incident, later
from tests.telemetry.samples import FakeSources

PROMETHEUS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"
TOKENS, ACCESS = "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def scraped(port: int, accept: str) -> tuple[str, str]:
    """The content type and the text."""
    url, headers = f"http://127.0.0.1:{port}/metrics", {"Accept": accept}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as found:
        assert found.status == 200
        return found.headers["Content-Type"], await found.text()


@dataclass
class Reviewer:
    """The API server's reviews; a fault of a FakeApi."""

    users: dict[str, str] = field(default_factory=lambda: {"good": "prometheus", "other": "jane"})
    """Token -> user."""
    allowed: set[str] = field(default_factory=lambda: {"prometheus"})
    asked: list[dict[str, Any]] = field(default_factory=list)
    away: bool = False

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if request.path not in {TOKENS, ACCESS}:
            return None
        if self.away:
            return status(503, "ServiceUnavailable", "etcd is away")
        spec = (await request.json())["spec"]
        self.asked.append(spec)
        if request.path == ACCESS:
            return web.json_response({"status": {"allowed": spec["user"] in self.allowed}}, status=201)
        user = self.users.get(spec["token"])
        known = {"username": user, "uid": "u", "groups": ["monitoring"], "extra": {"key": ["value"]}}
        answer = {"authenticated": True, "user": known} if user else {"error": "invalid bearer token"}
        return web.json_response({"status": answer}, status=201)


async def test_a_scrape_needs_a_token_of_a_user_who_may_get_the_metrics() -> None:
    async with serving() as (api, _), aiohttp.ClientSession() as session:
        reviewer = Reviewer()
        api.faults.append(reviewer)
        async with replica(api, "first") as first:
            await first.until_ready()
            url = f"https://127.0.0.1:{first.options.metrics_port}/metrics"

            async def scrape(authorization: str) -> tuple[int, str]:
                async with session.get(url, ssl=ANY, headers={"Authorization": authorization}) as found:
                    challenge = found.headers.get("WWW-Authenticate")
                    assert challenge == ("Bearer" if found.status == 401 else None)
                    return found.status, await found.text()

            for wrong in ("", "good", "Basic good", "Bearer", "Bearer  "):
                assert (await scrape(wrong))[0] == 401, wrong
            assert reviewer.asked == []
            assert (await scrape("Bearer made-up"))[0] == 401
            assert (await scrape("Bearer other")) == (
                403,
                "user jane may not get /metrics: bind a ClusterRole that grants it\n",
            )
            code, text = await scrape("bearer good")
            assert code == 200
            assert "gangctl_leader" in text
            access = [one for one in reviewer.asked if one.get("user") == "prometheus"]
            assert access == [
                {
                    "user": "prometheus",
                    "uid": "u",
                    "groups": ["monitoring"],
                    "extra": {"key": ["value"]},
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                }
            ]
            before = len(reviewer.asked)
            reviewer.away = True
            assert [(await scrape("Bearer good"))[0] for _ in range(3)] == [200] * 3, "the answer is cached"
            code, text = await scrape("Bearer new")
            assert (code, "new" in text) == (503, False)
            assert len(reviewer.asked) == before


async def test_a_right_that_was_taken_away_ends_with_the_cached_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangctl.cluster.kube.tokens.ACCEPTED_SECONDS", 0.0)
    async with serving() as (api, _), aiohttp.ClientSession() as session:
        reviewer = Reviewer()
        api.faults.append(reviewer)
        async with replica(api, "first") as first:
            await first.until_ready()
            url, headers = f"https://127.0.0.1:{first.options.metrics_port}/metrics", {"Authorization": "Bearer good"}

            async def code() -> int:
                async with session.get(url, ssl=ANY, headers=headers) as found:
                    return found.status

            assert await code() == 200
            reviewer.allowed.clear()
            await until_answered("the scrape is refused", code, lambda found: found == 403)


async def test_a_standby_is_scraped_like_the_leader() -> None:
    async with serving() as (api, _), aiohttp.ClientSession() as session:
        api.faults.append(Reviewer())
        async with replica(api, "first") as first, replica(api, "second") as second:
            await first.until_ready()
            await second.until_ready()
            for one in (first, second):
                url = f"https://127.0.0.1:{one.options.metrics_port}/metrics"
                async with session.get(url, ssl=ANY, headers={"Authorization": "Bearer good"}) as found:
                    assert found.status == 200


async def test_metrics_are_not_served_before_there_is_a_certificate() -> None:
    async def refuse(_authorization: str) -> HttpRefusal | None:
        return HttpRefusal(HTTPStatus.UNAUTHORIZED, "no")

    security = Security(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), refuse)
    async with (
        MetricsServer(FakeSources().metrics().exposition, security).serve("127.0.0.1", free_port()) as port,
        aiohttp.ClientSession() as session,
    ):
        for url in (f"https://127.0.0.1:{port}/metrics", f"http://127.0.0.1:{port}/metrics"):
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(url, ssl=ANY)


async def test_metrics_have_the_format_that_the_request_accepts() -> None:
    metrics = FakeSources().metrics()
    running = gang(attempt=1)
    metrics.round_began(running)
    metrics.status_written(running, later(running, attempt=2, incidents=(incident(2),)), 0.01)
    async with MetricsServer(metrics.exposition, None).serve("127.0.0.1", 0) as port:
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
    monkeypatch.setattr(exposition, "KEPT_SECONDS", 3600.0)
    sources = FakeSources()
    shown = Exposition(sources.metrics().registry)
    first = await shown.text("")
    sources.connections = 7
    again = await asyncio.gather(*(shown.text("") for _ in range(50)))
    assert all(one is first for one in again)
    monkeypatch.setattr(exposition, "KEPT_SECONDS", 0.0)
    assert b"gangctl_hub_connections 7.0" in (await shown.text("")).body
