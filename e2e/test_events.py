"""gangctl's Events on a real API server: its rules for names, notes and series are stricter than a fake's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from e2e.clusters import Cluster
from gangctl.api.events import EVENTS
from gangctl.api.gangjob import GangJob
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.events import EventRecorder, event_object
from gangctl.core.lifecycle.plan import Event
from tests.cluster.kube.events.eventcases import recording
from tests.messages import words
from tests.wait import until_async

TRACE = "0123456789abcdef0123456789abcdef"
HOSTILE = "the framework asked: \x1b[2J\r\n\u202e" + "漢" * 1000
RESTARTING = Event("Restarting", words(HOSTILE), "worker-1", "g-worker-1-0", TRACE)


@pytest.fixture
def job(namespace: str) -> GangJob:
    """A gang in the test's namespace; the API server does not need to have it."""
    template = {"spec": {"containers": [{"name": "t", "command": ["train"]}]}}
    return GangJob.model_validate(
        {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": "g", "namespace": namespace, "uid": "11111111-2222-3333-4444-555555555555"},
            "spec": {"roles": [{"name": "worker", "replicas": 2, "template": template}]},
        }
    )


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """A client of the cluster."""
    async with await Client.open(cluster.kubeconfig) as found:
        yield found


def sent(recorder: EventRecorder, count: int) -> bool:
    """Whether so many Events were created."""
    return recorder.counts["sent"] == count


def delivered(recorder: EventRecorder, count: int) -> bool:
    """Whether so many Events were created, or combined with one that another leader created."""
    return recorder.counts["sent"] + recorder.counts["combined"] == count


def shown(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The Events in a namespace."""
    found = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-n", namespace, "-o", "json"))
    items: list[dict[str, Any]] = found["items"]
    return items


@pytest.mark.nightly
async def test_three_leaders_with_the_same_event_make_one_event_with_a_series(
    cluster: Cluster, client: Client, job: GangJob, namespace: str
) -> None:
    for leader in range(3):
        async with recording(client) as one:
            one.record(job, RESTARTING, "")
            await until_async("the first Event is delivered", partial(delivered, one, 1))
            one.record(job, RESTARTING, "")
            one.record(job, Event("Restarted", words(f"leader {leader}")), "")
            await until_async("the other Event is sent", partial(sent, one, 1 if leader else 2))
            assert one.counts["lost"] == 0
    (made,) = [event for event in shown(cluster, namespace) if event["reason"] == "Restarting"]
    assert made["series"]["count"] == 6
    assert made["series"]["lastObservedTime"] > made["eventTime"]
    assert made["note"].startswith(r"the framework asked: \x1b[2J\x0d\x0a\u202e漢")
    assert made["note"].endswith(f"… (trace {TRACE})")
    assert made["metadata"]["annotations"] == {ANNOTATION_TRACE_ID: TRACE}
    assert (made["action"], made["related"]["name"]) == ("StopWorkers", "g-worker-1-0")
    lines = cluster.kubectl("events", "-n", namespace, "--types", "Warning", "--no-headers").splitlines()
    assert len(lines) == 1, "one line of the terminal"
    assert "(x6 over " in lines[0]


@pytest.mark.nightly
async def test_an_event_is_not_sent_again_after_a_lost_answer(
    cluster: Cluster, client: Client, job: GangJob, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangctl.cluster.kube.events.time.time", lambda: 1_800_000_000.123456)
    body = event_object(job, RESTARTING, pod_uid="", now=1_800_000_000.123456, instance="gangctl")
    await client.request(
        "POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body=json.dumps(body).encode()
    )
    async with recording(client) as one:
        one.record(job, RESTARTING, "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
    assert [event.get("series") for event in shown(cluster, namespace)] == [None]


async def test_the_api_server_accepts_every_reason(
    cluster: Cluster, client: Client, job: GangJob, namespace: str
) -> None:
    async with recording(client) as one:
        for reason in EVENTS:
            one.record(job, Event(reason, words("x" * 2000)), "")
        await until_async("all Events are sent or lost", lambda: one.counts["sent"] + one.counts["lost"] == len(EVENTS))
    found = shown(cluster, namespace)
    assert {event["reason"] for event in found} == {reason.value for reason in EVENTS}
    assert {len(event["note"].encode()) for event in found} == {1024}
