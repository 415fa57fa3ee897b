"""A controller of several namespaces sees these only, with a list and a watch in each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

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


async def test_nothing_is_shown_before_every_namespace_was_listed_and_a_problem_names_its_namespace(
    one: LiveCluster,
) -> None:
    fault = about("namespaces/training/pods", lambda: status(403, "Forbidden", "no Role in training"))
    one.api.faults.append(fault)

    def said() -> bool:
        return any("pods in namespace training haven't" in found for found in one.cluster.problems)

    watching = asyncio.create_task(one.cluster.watch(one.notified.append))
    try:
        await until_async("the problem is told", said)
        assert one.cluster.uids() == ()
        one.api.faults.remove(fault)
        await until_async("everything is listed", lambda: len(one.cluster.uids()) == 2)
        assert one.cluster.problems == ()
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
