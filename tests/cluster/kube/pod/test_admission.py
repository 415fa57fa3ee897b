from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube import admission
from gangctl.core.policy.pods import CreatePod
from tests.cluster.kube.fakeapi import status
from tests.cluster.kube.livecluster import GANG, live_cluster
from tests.cluster.kube.objects import UID, gang
from tests.wait import until_async


async def test_a_dry_run_admits_the_pods() -> None:
    async with live_cluster(GANG) as one:
        assert one.cluster.pod_rejections(UID) is None
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())
        dry = [query for method, _, query in one.api.requests if method == "POST"]
        assert dry == [{"dryRun": "All", "fieldValidation": "Strict"}]
        assert one.names() == []
        assert one.notified[-1] == UID


async def test_a_rejected_dry_run_is_reported_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RECHECK_SECONDS", 0.05)
    async with live_cluster(GANG) as one:

        async def forbid(request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "exceeded quota: small") if "dryRun" in request.query else None

        one.api.faults.append(forbid)
        await until_async(
            "the pods are rejected", lambda: one.cluster.pod_rejections(UID) == ("role worker: exceeded quota: small",)
        )
        one.api.faults.clear()
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_webhook_without_dry_run_rejects_no_pod() -> None:
    async with live_cluster(GANG) as one:

        async def webhook(request: web.Request) -> web.Response | None:
            words = 'admission webhook "x.example.com" does not support dry run'
            return status(400, "BadRequest", words) if "dryRun" in request.query else None

        one.api.faults.append(webhook)
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())


async def test_new_roles_are_checked_again_and_other_changes_are_not() -> None:
    async with live_cluster(GANG) as one:
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())
        changed = gang()
        changed["metadata"]["generation"] = 2
        changed["spec"]["suspend"] = True
        await one.api.put("gangjobs", changed)
        await until_async("the changed gang is read", lambda: one.job.spec.suspend)
        assert one.cluster.pod_rejections(UID) == ()
        changed["metadata"]["generation"] = 3
        changed["spec"]["roles"][0]["replicas"] = 5
        await one.api.put("gangjobs", changed)
        await until_async("the new roles are read", lambda: one.job.metadata.generation == 3)
        assert one.cluster.pod_rejections(UID) is None
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_rejected_pod_counts_as_rejected_until_it_is_admitted() -> None:
    async with live_cluster(GANG) as one:
        await until_async("the pods are admitted", lambda: one.cluster.pod_rejections(UID) == ())

        async def full(request: web.Request) -> web.Response | None:
            real = request.method == "POST" and request.path.endswith("/pods") and not request.query
            return status(403, "Forbidden", "exceeded quota: small") if real else None

        one.api.faults.append(full)
        for at in range(3):
            with pytest.raises(Terminal, match="exceeded quota: small"):
                await one.cluster.create_pod(one.job, CreatePod(f"worker-{at}", 0))
        assert one.cluster.pod_rejections(UID) == ("worker-0: exceeded quota: small",)
        one.api.faults.clear()
        for at in range(3):
            await one.cluster.create_pod(one.job, CreatePod(f"worker-{at}", 0))
        assert one.cluster.pod_rejections(UID) == ()


async def test_the_slow_dry_runs_of_one_namespace_do_not_delay_those_of_another() -> None:
    gate = asyncio.Event()

    async def slow(request: web.Request) -> web.Response | None:
        if "/namespaces/crowded/" in request.path:
            await gate.wait()
        return None

    crowd = [
        ("gangjobs", gang(f"g{at}", f"uid-{at}", metadata=_metadata(f"g{at}", f"uid-{at}", "crowded")))
        for at in range(50)
    ]
    async with live_cluster(*crowd, GANG) as one:
        one.api.faults.append(slow)
        assert [one.cluster.pod_rejections(f"uid-{at}") for at in range(50)] == [None] * 50
        await until_async("dry runs of the crowd are under way", lambda: one.api.count("POST", "pods") == 4)
        assert one.cluster.pod_rejections(UID) is None
        await until_async("the pods of the other are admitted", lambda: one.cluster.pod_rejections(UID) == ())
        gate.set()
        crowded = [f"uid-{at}" for at in range(50)]
        await until_async("all are admitted", lambda: all(one.cluster.pod_rejections(uid) == () for uid in crowded))


async def test_a_gang_with_too_large_templates_gets_no_pods_and_is_told_the_limit() -> None:
    large = gang()
    large["spec"]["roles"][0]["template"]["metadata"] = {"annotations": {"a": "x" * 300_000}}
    async with live_cluster(("gangjobs", large)) as one:
        (words,) = one.cluster.pod_rejections(UID) or ()
        assert words.startswith("the pod templates have 3001")
        assert "takes at most 262144; put large values into a ConfigMap" in words
        assert not one.api.count("POST", "pods"), "not even a dry run"
        await one.cluster.create_pod(one.job, CreatePod("worker-0", 0))
        assert one.cluster.pod_rejections(UID) != (words,), "one that has pods goes on"


def _metadata(name: str, uid: str, namespace: str) -> dict[str, object]:
    return {"name": name, "namespace": namespace, "uid": uid, "generation": 1}
