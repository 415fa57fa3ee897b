from __future__ import annotations

import pytest
from aiohttp import web

from gangctl.cluster.errors import Terminal
from gangctl.cluster.kube.pod import admission
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
