from __future__ import annotations

import json

import pytest
from aiohttp import web

from gangctl.cluster.errors import Retryable
from gangctl.core.policy.pods import DeletePod
from tests.cluster.kube.fakeapi import status
from tests.cluster.kube.livecluster import FIRST, GANG, live_cluster
from tests.cluster.kube.objects import UID, pod
from tests.wait import until_async


async def test_a_created_pod_is_read_at_once() -> None:
    async with live_cluster(GANG) as one:
        await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == ["g-worker-0-0"]
        await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == ["g-worker-0-0"]


async def test_a_pod_of_an_earlier_gang_of_the_same_name_blocks_the_creation() -> None:
    async with live_cluster(GANG, ("pods", pod(owner="old", label="old"))) as one:
        with pytest.raises(Retryable, match="another pod has the name g-worker-0-0"):
            await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == []


async def test_an_existing_pod_that_cannot_be_read_does_not_reject_the_gangs_pods() -> None:
    async with live_cluster(GANG) as one:
        await one.cluster.create_pod(one.job, FIRST)

        async def forbidden(request: web.Request) -> web.Response | None:
            secret = request.method == "GET" and request.path.endswith("/pods/g-worker-0-0")
            return status(403, "Forbidden", "pods is forbidden") if secret else None

        one.api.faults.append(forbidden)
        with pytest.raises(Retryable, match=r"pod g-worker-0-0 exists and can't be read: .*forbidden"):
            await one.cluster.create_pod(one.job, FIRST)
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_conflict_on_a_quota_can_be_retried() -> None:
    async with live_cluster(GANG) as one:

        async def busy(request: web.Request) -> web.Response | None:
            real = request.method == "POST" and request.path.endswith("/pods") and not request.query
            return status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas") if real else None

        one.api.faults.append(busy)
        with pytest.raises(Retryable, match="resourcequotas"):
            await one.cluster.create_pod(one.job, FIRST)
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_pod_is_deleted_by_its_uid() -> None:
    async with live_cluster(GANG, ("pods", pod())) as one:
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "another", 5))
        assert one.names() == ["g-worker-0-0"]
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "uid-g-worker-0-0", 5))
        await until_async("the pod is gone", lambda: one.names() == [])
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "uid-g-worker-0-0", 5))


async def test_a_terminating_pod_is_read_as_such_at_once() -> None:
    async with live_cluster(GANG, ("pods", pod())) as one:

        async def graceful(request: web.Request) -> web.Response | None:
            if request.method != "DELETE":
                return None
            assert (await request.json())["gracePeriodSeconds"] == 5
            stored = json.loads(json.dumps(one.api.objects["pods", "default", "g-worker-0-0"]))
            stored["metadata"] |= {"deletionTimestamp": "2026-11-21T10:00:00Z", "resourceVersion": "5000"}
            return web.json_response(stored)

        one.api.faults.append(graceful)
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "uid-g-worker-0-0", 5))
        assert [found.deleting for found in one.cluster.pods(UID)] == [True]


@pytest.mark.parametrize(("code", "reason"), [(409, "Conflict"), (404, "NotFound")])
async def test_a_pod_whose_deletion_is_refused_does_not_look_gone(code: int, reason: str) -> None:
    """A webhook may refuse with any code; a pod that looks gone counts as lost after a while."""
    async with live_cluster(GANG) as one:
        await one.cluster.create_pod(one.job, FIRST)
        (pod,) = one.cluster.pods(UID)

        async def refuse(request: web.Request) -> web.Response | None:
            return status(code, reason, "a webhook keeps it") if request.method == "DELETE" else None

        one.api.faults.append(refuse)
        with pytest.raises(Retryable, match="a webhook keeps it"):
            await one.cluster.delete_pod(one.job, DeletePod(pod.name, pod.uid))
        assert one.names() == [pod.name]
