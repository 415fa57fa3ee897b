from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.fakeapi import status
from tests.cluster.kube.livecluster import GANG, live_cluster
from tests.cluster.kube.objects import UID, gang
from tests.wait import until_async


async def test_the_disruption_budget_exists_before_the_first_pod_and_follows_the_roles() -> None:
    async with live_cluster(GANG) as one:
        await asyncio.gather(*(one.cluster.create_pod(one.job, CreatePod(f"worker-{at}", 0)) for at in range(4)))
        posts = [path for method, path, query in one.api.requests if method == "POST" and not query]
        assert posts[0] == "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        assert one.api.count("POST", "poddisruptionbudgets") == 1
        budget = one.api.objects["poddisruptionbudgets", "default", "g"]
        assert budget["spec"]["minAvailable"] == 3
        assert budget["spec"]["selector"] == {"matchLabels": {"gangctl.io/uid": UID}}
        assert budget["metadata"]["ownerReferences"][0]["uid"] == UID
        grown = gang()
        grown["spec"]["roles"][0]["spares"] = 2
        await one.api.put("gangjobs", grown)
        await until_async("the new roles are read", lambda: one.job.spec.roles[0].spares == 2)
        await one.cluster.create_pod(one.job, CreatePod("worker-5", 0))
        assert one.api.objects["poddisruptionbudgets", "default", "g"]["spec"]["minAvailable"] == 5


async def test_a_gang_that_wants_no_disruption_budget_gets_none() -> None:
    job = gang()
    job["spec"]["recovery"] = {"podDisruptionBudget": "None"}
    async with live_cluster(("gangjobs", job)) as one:
        await one.cluster.create_pod(one.job, CreatePod("worker-0", 0))
        assert len(one.names()) == 1
        assert not [path for _, path, _ in one.api.requests if "poddisruptionbudgets" in path]


async def test_a_failed_disruption_budget_does_not_block_pods(caplog: pytest.LogCaptureFixture) -> None:
    async with live_cluster(GANG) as one:

        async def forbid(request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "no budgets here") if "poddisruption" in request.path else None

        one.api.faults.append(forbid)
        for at in range(3):
            await one.cluster.create_pod(one.job, CreatePod(f"worker-{at}", 0))
        assert len(one.names()) == 3
    assert sum("no budgets here" in text for text in caplog.messages) == 1


async def test_the_budget_of_a_smaller_gang_lets_one_of_the_members_that_it_has_go() -> None:
    job = gang()
    job["spec"]["roles"][0] |= {"minReplicas": 2}
    job["spec"]["checkpoint"] = {
        "tiers": [{"name": "s", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}]
    }
    job["status"] = {"phase": "Running", "attempt": 1, "size": {"attempt": 1}}
    async with live_cluster(("gangjobs", job)) as one:

        def is_available(number: int) -> bool:
            budget = one.api.objects["poddisruptionbudgets", "default", "g"]
            return bool(budget["spec"]["minAvailable"] == number)

        one.cluster.begin_term()
        await one.cluster.create_pod(one.job, CreatePod("worker-0", 0))
        assert is_available(3)
        job["status"] = {
            "phase": "Running",
            "attempt": 2,
            "size": {"attempt": 2, "roles": [{"name": "worker", "members": 2}]},
        }
        await one.api.put("gangjobs", job)
        await until_async("it runs with two members", lambda: is_available(1))
        job["status"] = {"phase": "Running", "attempt": 3, "size": {"attempt": 3}}
        await one.api.put("gangjobs", job)
        await until_async("it runs with all members", lambda: is_available(3))
