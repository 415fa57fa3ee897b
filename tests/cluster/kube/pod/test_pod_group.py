from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from gangctl.cluster.errors import Retryable, Terminal
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.fakeapi import status
from tests.cluster.kube.livecluster import FIRST, LiveCluster, live_cluster
from tests.cluster.kube.objects import UID, gang
from tests.wait import until_async

PATH = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


def grouped(base: int = 0) -> tuple[str, dict[str, Any]]:
    """A gang that asks for a PodGroup, and the incarnation that its pods have together."""
    job = gang()
    job["spec"]["gangScheduling"] = {"type": "PodGroup"}
    job["status"] = {"phase": "Pending", "attempt": 1, "baseIncarnation": base}
    return "gangjobs", job


def prioritized(job: dict[str, Any], *classes: str) -> dict[str, Any]:
    """The gang whose roles have these priority classes."""
    for role, name in zip(job["spec"]["roles"], classes, strict=True):
        template = role["template"]
        role["template"] = {**template, "spec": {**template["spec"], "priorityClassName": name}}
    return job


def groups(one: LiveCluster) -> set[str]:
    return {name for plural, _, name in one.api.objects if plural == "podgroups"}


async def unserved(request: web.Request) -> web.Response | None:
    """What a cluster without the API answers."""
    return web.Response(status=404, text="404 page not found") if "podgroups" in request.path else None


async def test_the_group_exists_before_the_first_pod_and_is_created_once() -> None:
    async with live_cluster(grouped()) as one:
        await asyncio.gather(*(one.cluster.create_pod(one.job, CreatePod(f"worker-{at}", 0)) for at in range(4)))
        writes = [path for method, path, query in one.api.requests if method == "POST" and "dryRun" not in query]
        assert writes.index(PATH) < writes.index("/api/v1/namespaces/default/pods")
        assert writes.count(PATH) == 1
        group = one.api.objects["podgroups", "default", "g-0"]
        assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 4}}}
        assert group["metadata"]["ownerReferences"][0]["uid"] == UID
        for at in range(4):
            pod = one.api.objects["pods", "default", f"g-worker-{at}-0"]
            assert pod["spec"]["schedulingGroup"] == {"podGroupName": "g-0"}


async def test_a_gang_that_may_start_with_fewer_members_asks_for_these() -> None:
    tiers = [{"name": "store", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}]
    plural, job = grouped()
    job["spec"]["checkpoint"] = {"tiers": tiers}
    job["spec"]["roles"][0]["minReplicas"] = 2
    async with live_cluster((plural, job)) as one:
        await one.cluster.create_pod(one.job, FIRST)
        group = one.api.objects["podgroups", "default", "g-0"]
        assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}


async def test_a_gang_that_does_not_ask_gets_no_group() -> None:
    async with live_cluster(("gangjobs", gang())) as one:
        await one.cluster.create_pod(one.job, FIRST)
        assert one.api.count("POST", "podgroups") == 0
        assert "schedulingGroup" not in one.api.objects["pods", "default", "g-worker-0-0"]["spec"]


async def test_a_replaced_pod_joins_the_group_of_the_others() -> None:
    async with live_cluster(grouped()) as one:
        await one.cluster.create_pod(one.job, CreatePod("worker-1", 5))
        assert groups(one) == {"g-0"}
        pod = one.api.objects["pods", "default", "g-worker-1-5"]
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "g-0"}


async def test_pods_that_are_all_new_have_a_new_group_and_the_earlier_one_goes() -> None:
    async with live_cluster(grouped()) as one:
        await one.cluster.create_pod(one.job, FIRST)
        another = {"name": "other-0", "namespace": "default", "labels": {"gangctl.io/uid": "another"}}
        await one.api.put("podgroups", {"metadata": another})
        await one.api.put(*grouped(base=3))
        await until_async("the new status is read", lambda: one.job.status.base_incarnation == 3)
        await one.cluster.create_pod(one.job, CreatePod("worker-0", 3))
        assert groups(one) == {"g-3", "other-0"}


async def test_a_new_leader_takes_the_group_that_is_there() -> None:
    async with live_cluster(grouped()) as one:
        await one.cluster.create_pod(one.job, FIRST)
        later = LiveCluster(one.api, one.client)
        async with later.watching():
            await later.cluster.create_pod(later.job, CreatePod("worker-1", 0))
        assert groups(one) == {"g-0"}
        assert len(one.names()) == 2


async def test_the_group_has_the_priority_of_its_pods_and_the_topology_that_is_asked_for() -> None:
    plural, job = grouped()
    job["spec"]["gangScheduling"]["topologyKey"] = "example.com/rack"
    async with live_cluster((plural, prioritized(job, "high"))) as one:
        await one.cluster.create_pod(one.job, FIRST)
        spec = one.api.objects["podgroups", "default", "g-0"]["spec"]
        assert spec["priorityClassName"] == "high"
        assert spec["schedulingConstraints"] == {"topology": [{"key": "example.com/rack"}]}


async def test_a_gang_is_refused_if_the_api_server_drops_its_topology() -> None:
    plural, job = grouped()
    job["spec"]["gangScheduling"]["topologyKey"] = "example.com/rack"

    async def dropped(request: web.Request) -> web.Response | None:
        if request.method != "POST" or "podgroups" not in request.path:
            return None
        group = await request.json()
        del group["spec"]["schedulingConstraints"]
        return web.json_response(group, status=201)

    async with live_cluster() as one:
        one.api.faults.append(dropped)
        await one.api.put(plural, job)
        await until_async("the gang is read", lambda: one.cluster.gang(UID))
        await until_async("the gang is refused", lambda: one.cluster.pod_rejections(UID))
        found = one.cluster.pod_rejections(UID)
        assert found is not None
        assert "turn on the feature gate TopologyAwareWorkloadScheduling" in found[0]
        with pytest.raises(Terminal, match="keeps no topology"):
            await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == []


async def test_a_gang_whose_roles_have_several_priorities_is_refused() -> None:
    plural, job = grouped()
    other = {**job["spec"]["roles"][0], "name": "other"}
    job["spec"]["roles"].append(other)
    async with live_cluster((plural, prioritized(job, "high", ""))) as one:
        await until_async("the gang is refused", lambda: one.cluster.pod_rejections(UID))
        found = one.cluster.pod_rejections(UID)
        assert found is not None
        assert "2 values of priorityClassName" in found[0]
        assert groups(one) == set()


async def test_an_older_cluster_has_an_older_version() -> None:
    plural, job = grouped()
    async with live_cluster((plural, prioritized(job, "high"))) as one:

        async def older(request: web.Request) -> web.Response | None:
            return None if "v1alpha2" in request.path else await unserved(request)

        one.api.faults.append(older)
        await one.cluster.create_pod(one.job, FIRST)
        found = one.api.objects["podgroups", "default", "g-0"]
        assert found["apiVersion"] == "scheduling.k8s.io/v1alpha2"
        assert "priorityClassName" not in found["spec"]


async def test_without_the_api_the_gang_is_refused_before_its_first_pod() -> None:
    async with live_cluster(grouped()) as one:
        one.api.faults.append(unserved)
        with pytest.raises(Terminal, match="the feature gate GenericWorkload"):
            await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == []
        await until_async("the gang is refused", lambda: one.cluster.pod_rejections(UID))
        found = one.cluster.pod_rejections(UID)
        assert found is not None
        assert "serves no PodGroup" in found[0]


async def test_the_dry_run_alone_finds_that_the_api_is_missing() -> None:
    async with live_cluster() as one:
        one.api.faults.append(unserved)
        await one.api.put(*grouped())
        await until_async("the gang is read", lambda: one.cluster.gang(UID))
        await until_async("the gang is refused", lambda: one.cluster.pod_rejections(UID))
        assert groups(one) == set()


@pytest.mark.parametrize("code", [500, 429, 403])
async def test_no_pod_is_created_while_its_group_can_not_be(code: int) -> None:
    async with live_cluster(grouped()) as one:

        async def fails(request: web.Request) -> web.Response | None:
            return status(code, "", "not now") if "podgroups" in request.path else None

        one.api.faults.append(fails)
        with pytest.raises(Terminal if code == 403 else Retryable, match="not now"):
            await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == []
        one.api.faults.remove(fails)
        await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == ["g-worker-0-0"]


@pytest.mark.parametrize(
    ("owner", "count", "kind", "words"),
    [
        ({"kind": "GangJob", "name": "g", "uid": "before"}, 4, Retryable, "of an earlier gang"),
        ({"kind": "Job", "name": "x", "uid": "x"}, 4, Terminal, "doesn't belong to the gang"),
        ({"kind": "GangJob", "name": "g", "uid": UID}, 7, Terminal, "asks for 7 pods, and the gang needs 4"),
    ],
)
async def test_a_group_that_is_not_the_gangs_is_not_used(
    owner: dict[str, str], count: int, kind: type[Exception], words: str
) -> None:
    async with live_cluster(grouped()) as one:
        metadata = {"name": "g-0", "namespace": "default", "ownerReferences": [owner]}
        spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
        await one.api.put("podgroups", {"metadata": metadata, "spec": spec})
        with pytest.raises(kind, match=words):
            await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == []


async def test_a_gang_that_is_resized_while_its_earlier_group_is_there_is_accepted() -> None:
    async with live_cluster(grouped()) as one:
        await one.cluster.create_pod(one.job, FIRST)
        larger = grouped()[1]
        larger["spec"] |= {"suspend": True, "roles": [{**larger["spec"]["roles"][0], "replicas": 6}]}
        larger["metadata"]["generation"] = 2
        await one.api.put("gangjobs", larger)
        await until_async("it is read", lambda: one.job.spec.roles[0].replicas == 6)
        tried = one.api.count("POST", "podgroups")
        await until_async(
            "it is accepted",
            lambda: one.cluster.pod_rejections(UID) == () and one.api.count("POST", "podgroups") > tried,
        )


async def test_a_group_of_somebody_else_is_told_before_any_pod_is_created_and_stays_told() -> None:
    foreign = {"metadata": {"name": "g-0", "namespace": "default"}, "spec": {"schedulingPolicy": {"basic": {}}}}
    async with live_cluster(grouped(), ("podgroups", foreign)) as one:
        await until_async("it is refused", lambda: one.cluster.pod_rejections(UID))
        assert one.cluster.pod_rejections(UID) == (
            "a PodGroup g-0 exists that doesn't belong to the gang; delete or rename it",
        )
