"""A controller of several namespaces sees these only, with a list and a watch in each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from gangctl.cluster import clock
from gangctl.cluster.kube import reflector
from tests.cluster.kube.fakeapi import FakeApi, serving, status
from tests.cluster.kube.livecluster import SETTINGS, LiveCluster
from tests.cluster.kube.objects import gang, node, pod
from tests.controller.replicas import about
from tests.wait import until_async

WATCHED = ("research", "training")


def gang_in(namespace: str) -> dict[str, Any]:
    found = gang("g", f"uid-{namespace}")
    found["metadata"]["namespace"] = namespace
    return found


def pod_in(namespace: str) -> dict[str, Any]:
    return pod(namespace=namespace, owner=f"uid-{namespace}", label=f"uid-{namespace}", uid=f"pod-{namespace}")


async def fill(api: FakeApi, *namespaces: str) -> None:
    """A gang and a pod of it in each."""
    for namespace in namespaces:
        await api.put("gangjobs", gang_in(namespace))
        await api.put("pods", pod_in(namespace))


@pytest.fixture
async def one() -> AsyncIterator[LiveCluster]:
    async with serving() as (api, client):
        await fill(api, *WATCHED, "other")
        await api.put("nodes", node())
        yield LiveCluster(api, client, replace(SETTINGS, watch_namespaces=WATCHED))


async def test_gangs_of_the_watched_namespaces_are_seen_and_no_others(one: LiveCluster) -> None:
    async with one.watching():
        assert sorted(one.cluster.uids()) == ["uid-research", "uid-training"]
        assert [found.name for found in one.cluster.pods("uid-training")] == ["g-worker-0-0"]
        assert one.cluster.gang("uid-other") is None
        await one.api.remove("gangjobs", "training", "g")
        await until_async("it is gone", lambda: one.cluster.uids() == ("uid-research",))
        await fill(one.api, "training", "other")
        await until_async("it is back", lambda: len(one.cluster.uids()) == 2)
        listed = {path for method, path, query in one.api.requests if "watch" not in query and method == "GET"}
        expected = {f"/apis/gangctl.io/v1alpha1/namespaces/{name}/gangjobs" for name in WATCHED}
        expected |= {f"/api/v1/namespaces/{name}/pods" for name in WATCHED} | {"/api/v1/nodes"}
        listed.discard("/api/v1/namespaces/gangctl-system/services/gangctl")  # of its own namespace
        assert listed == expected, "the rights of a Role in each namespace are enough"
        assert one.api.watches() == len(expected)


async def test_writes_are_seen_by_the_next_decision_in_each_namespace(one: LiveCluster) -> None:
    async with one.watching():
        for namespace in WATCHED:
            job = one.cluster.gang(f"uid-{namespace}")
            assert job is not None
            written = await one.cluster.write_status(job, job.status.model_copy(update={"attempt": 7}))
            assert written == one.cluster.gang(f"uid-{namespace}")
            assert written.status.attempt == 7
            await one.cluster.delete_gang(written)
            assert one.cluster.gang(f"uid-{namespace}") is None
        assert ("gangjobs", "other", "g") in one.api.objects


async def test_a_namespace_is_shown_when_it_was_listed_and_a_refused_one_holds_up_no_other(one: LiveCluster) -> None:
    fault = about("namespaces/training/pods", lambda: status(403, "Forbidden", "no Role in training"))
    one.api.faults.append(fault)
    async with one.watching():
        assert one.cluster.uids() == ("uid-research",)
        assert not one.cluster.exists("uid-training"), "without its pods, the gang would seem to have lost them all"
        assert one.cluster.informers.problems == (), (
            "a replica that isn't ready is reached by no sidecar of any namespace"
        )
        await one.cluster.refresh()
        one.notified.clear()
        one.api.faults.remove(fault)
        await until_async("everything is listed", lambda: len(one.cluster.uids()) == 2)
        await until_async("the loop is told", lambda: "uid-training" in one.notified)


async def test_nothing_is_shown_of_a_namespace_whose_list_fails_and_the_problem_names_it(one: LiveCluster) -> None:
    fault = about("namespaces/training/pods", lambda: status(500, "InternalError", "no"))
    one.api.faults.append(fault)

    def said() -> bool:
        return any("pods in namespace training haven't" in found for found in one.cluster.informers.problems)

    watching = asyncio.create_task(one.cluster.watch(one.notified.append))
    try:
        await until_async("the problem is told", said)
        assert one.cluster.uids() == ()
        one.api.faults.remove(fault)
        await until_async("everything is listed", lambda: len(one.cluster.uids()) == 2)
        assert one.cluster.informers.problems == ()
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@pytest.mark.parametrize("kind", ["pods", "gangjobs"])
async def test_a_right_that_goes_in_one_namespace_stops_no_deadline_in_another(
    one: LiveCluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "BREAK_SECONDS", 0.0)

    def age(uid: str) -> float:
        return clock.now() - one.cluster.listening_since(uid)

    async with one.watching():
        one.api.faults.append(about(f"namespaces/training/{kind}", lambda: status(403, "Forbidden", "no Role")))
        await one.api.cut()
        await until_async("deadlines go on", lambda: age("uid-research") > 0.5 and age("uid-training") < 0.1)
        assert one.cluster.informers.problems == ()
        await one.cluster.refresh()
