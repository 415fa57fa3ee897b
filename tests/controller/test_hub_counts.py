"""What the hub and the whole controller count for the metrics."""

from __future__ import annotations

from collections import Counter

import aiohttp
from prometheus_client.parser import text_string_to_metric_families as parsed

from gangsidecar import wire
from tests.cluster.kube.fakeapi import serving, status
from tests.controller.fake_sidecars import job, report, served
from tests.controller.replicas import Replica, about, holder, replica, until_answered
from tests.wait import until_async

PLAIN = ("--metrics-secure", "false")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def shown(replica_: Replica) -> Samples:
    """Every sample that a replica exposes."""
    url = f"http://127.0.0.1:{replica_.options.metrics_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    samples = (sample for family in parsed(text) for sample in family.samples)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


async def leading(*replicas: Replica) -> list[float]:
    """The value of gangctl_leader of each replica."""
    return [(await shown(one))["gangctl_leader", frozenset()] for one in replicas]


def broken(found: Samples, kind: str) -> float:
    """How long a watch has been broken."""
    return found["gangctl_watch_broken_seconds", frozenset({("kind", kind)})]


async def test_stale_messages_are_counted_by_reason() -> None:
    async with served() as here:
        here.hub.publish(job(attempt=3))
        sidecar = await here.dial()
        await here.taken(sidecar, report(seq=5, attempt=3, phase=wire.Phase.READY))
        await here.taken(sidecar, report(seq=4, attempt=3, phase=wire.Phase.READY))
        await here.taken(sidecar, report(seq=6, attempt=2, phase=wire.Phase.RUNNING))
        await here.taken(sidecar, report(seq=7, attempt=3, phase=wire.Phase.READY))
        assert here.hub.stale == Counter({"Overtaken": 1, "OlderAttempt": 1})


async def test_only_the_leader_reports_that_it_leads() -> None:
    async with serving() as (api, _), replica(api, "first", *PLAIN) as first:
        await first.until_it_leads()
        async with replica(api, "second", *PLAIN) as second:
            await second.until_ready()
            await until_answered("the first replica leads", lambda: leading(first, second), [1.0, 0.0].__eq__)
            found = await shown(second)
            for kind in ("gangjobs", "pods", "nodes"):
                assert broken(found, kind) == 0
                assert found["gangctl_watch_silent_seconds", frozenset({("kind", kind)})] < 60
            first.ended.set()
            await until_async("the second replica holds the Lease", lambda: holder(api) == "second")
            await until_answered("the second replica leads", lambda: leading(second), [1.0].__eq__)


async def test_a_watch_that_is_forbidden_shows_in_the_metrics() -> None:
    async with serving() as (api, _):
        api.faults.append(about("pods", lambda: status(403, "Forbidden", "not for you")))
        async with replica(api, "alone", *PLAIN) as alone:
            await until_answered(
                "the watch of pods is broken", lambda: shown(alone), lambda found: broken(found, "pods") > 1
            )
            found = await shown(alone)
            assert found["gangctl_leader", frozenset()] == 0
            assert broken(found, "nodes") == 0
