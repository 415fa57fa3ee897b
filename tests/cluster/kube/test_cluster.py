from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Status
from gangctl.cluster.errors import Conflict, Retryable, Terminal
from gangctl.cluster.kube.auth.token_authenticator import TokenAuthenticator
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.cluster import KubeCluster
from gangctl.cluster.kube.pod import admission
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.cluster.kube.watch import informers
from gangctl.cluster.kube.watch.informers import Informers
from gangctl.core.policy.pods import CreatePod, DeletePod
from tests.cluster.kube.fakeapi import FakeApi, eventually, serving, status
from tests.cluster.kube.objects import UID, gang, node, pod

SETTINGS = KubeSettings(
    namespace="gangctl-system",
    sidecar_image="gangctl/sidecar:1",
    url="wss://gangctl.gangctl-system.svc:8443/v1/connect",
    server_name="gangctl.gangctl-system.svc",
)
FIRST = CreatePod("worker-0", 0)


class World:
    """A cluster that is watched, and what it told."""

    def __init__(self, api: FakeApi, client: Client) -> None:
        self.api = api
        self.client = client
        self.notified: list[str] = []

        authenticator = TokenAuthenticator(client, SETTINGS.audience)
        self.cluster = KubeCluster(client, SETTINGS, ca=lambda: "CA", authenticator=authenticator)

    @property
    def job(self) -> GangJob:
        found = self.cluster.gang(UID)
        assert found is not None
        return found

    def names(self) -> list[str]:
        return [one.name for one in self.cluster.pods(UID)]

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cluster.watch(self.notified.append))
        try:
            await eventually(lambda: self.cluster.has_synced)
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def world(*objects: tuple[str, dict[str, Any]]) -> AsyncIterator[World]:
    async with serving() as (api, client):
        for plural, value in objects:
            await api.put(plural, value)
        found = World(api, client)
        async with found.watching():
            yield found


GANG = ("gangjobs", gang())
NODE = ("nodes", node())


async def test_nothing_is_shown_before_everything_was_listed() -> None:
    async with serving() as (api, client):
        await api.put("gangjobs", gang())
        await api.put("pods", pod())
        go_on = asyncio.Event()

        async def slow(request: web.Request) -> None:
            if request.path.endswith("/pods"):
                await go_on.wait()

        api.faults.append(slow)
        one = World(api, client)
        task = asyncio.create_task(one.cluster.watch(one.notified.append))
        await eventually(lambda: api.watches() == 2)
        assert (one.cluster.gang(UID), one.notified, one.cluster.uids()) == (None, [], ())
        assert one.cluster.listening_since == pytest.approx(time.time(), abs=1)
        go_on.set()
        await eventually(lambda: one.notified == [UID])
        assert one.names() == ["g-worker-0-0"]
        assert one.cluster.uids() == (UID,)
        task.cancel()


async def test_a_gang_that_is_being_deleted_or_can_not_be_read_is_not_there_and_stops_no_other() -> None:
    going = gang("going", "u-2")
    going["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    async with world(GANG, ("gangjobs", going), ("gangjobs", gang("odd", "u-3", status={"phase": "Dancing"}))) as one:
        assert one.cluster.uids() == (UID,)
        assert one.cluster.gang("u-2") is None
        assert one.cluster.gang("u-3") is None
        await one.api.put("gangjobs", gang("odd", "u-3"))
        await eventually(lambda: one.cluster.gang("u-3") is not None)
        assert one.notified[-1] == "u-3"


async def test_a_pod_belongs_to_a_gang_only_if_its_job_owns_it_in_its_own_namespace() -> None:
    async with serving() as (api, client):
        await api.put("gangjobs", gang())
        await api.put("pods", pod("worker-0"))
        await api.put("pods", pod("worker-1", owner="somebody-else"))
        await api.put("pods", pod("worker-2", namespace="other"))
        found = Informers(client, "")
        task = asyncio.create_task(found.run(lambda _uid: None))
        await eventually(lambda: found.has_synced)
        assert [one.pod.name for one in found.pods_of(UID)] == ["g-worker-0-0"]
        assert found.pod("uid-g-worker-0-0") is not None
        assert found.pod("uid-g-worker-1-0") is None
        assert found.pod("uid-g-worker-2-0") is None
        task.cancel()


async def test_a_node_that_falls_silent_or_is_deleted_is_lost_and_its_gangs_are_told() -> None:
    async with world(GANG, NODE, ("nodes", node("n2")), ("pods", pod(spec={"nodeName": "n1"}))) as one:
        assert one.cluster.lost_nodes() == frozenset()
        one.notified.clear()
        await one.api.put("nodes", node(ready="Unknown"))
        await eventually(lambda: one.cluster.lost_nodes() == {"n1"})
        assert one.notified == [UID]
        await one.api.put("nodes", node(ready="False"))
        await eventually(lambda: not one.cluster.lost_nodes())
        await one.api.remove("nodes", "", "n1")
        await eventually(lambda: one.cluster.lost_nodes() == {"n1"})
        await one.api.put("nodes", node(uid="other"))
        await eventually(lambda: not one.cluster.lost_nodes())


async def test_a_node_that_is_not_there_is_lost_once_its_pod_was_scheduled_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = pod(spec={"nodeName": "gone"})
    async with world(GANG, ("pods", old)) as one:
        assert one.cluster.lost_nodes() == {"gone"}
        monkeypatch.setattr(informers, "UNSEEN_SECONDS", 1e12)
        await one.api.put("pods", pod("worker-1", spec={"nodeName": "new"}))
        await eventually(lambda: len(one.names()) == 2)
        assert one.cluster.lost_nodes() == frozenset()


async def test_a_status_that_was_written_is_seen_at_once() -> None:
    async with world(GANG) as one:
        stored = await one.cluster.write_status(one.job, Status(phase=GangPhase.PENDING, attempt=1))
        assert one.job is stored
        assert one.api.objects["gangjobs", "default", "g"]["status"]["attempt"] == 1
        again = await one.cluster.write_status(stored, Status(phase=GangPhase.PENDING, attempt=2))
        assert one.job.status.attempt == again.status.attempt == 2


async def test_after_a_conflict_the_fresh_object_is_shown() -> None:
    async with world(GANG) as one:
        old = one.job
        for _ in range(2):
            await one.cluster.write_status(one.job, Status(attempt=one.job.status.attempt + 1))
        with pytest.raises(Conflict, match="gang g was changed by another process"):
            await one.cluster.write_status(old, Status(attempt=9))
        assert one.job.status.attempt == 2


async def test_a_conflict_on_every_first_write_only_costs_a_second_one() -> None:
    async with world(GANG) as one:
        seen: set[str] = set()

        async def interfere(request: web.Request) -> None:
            if request.method == "PUT":
                version = (await request.json())["metadata"]["resourceVersion"]
                if not seen:
                    stored = one.api.objects["gangjobs", "default", "g"]
                    stored["metadata"]["annotations"] = {"touched": version}
                    await one.api.put("gangjobs", stored)
                seen.add(version)

        one.api.faults.append(interfere)
        with pytest.raises(Conflict):
            await one.cluster.write_status(one.job, Status(attempt=1))
        assert (await one.cluster.write_status(one.job, Status(attempt=1))).status.attempt == 1


async def test_a_gang_that_was_made_anew_under_its_name_is_another_one() -> None:
    async with world(GANG) as one:
        old = one.job

        async def swap(request: web.Request) -> None:
            if request.method == "PUT":
                del one.api.objects["gangjobs", "default", "g"]
                await one.api.put("gangjobs", gang(uid="new"))

        one.api.faults.append(swap)
        with pytest.raises(Conflict):
            await one.cluster.write_status(old, Status(attempt=1))
        assert one.cluster.gang(UID) is None
        assert one.cluster.uids() == ("new",)


async def test_a_write_whose_answer_was_lost_counts_if_it_was_stored() -> None:
    async with world(GANG) as one:

        async def lose(request: web.Request) -> web.Response | None:
            if request.method != "PUT":
                return None
            stored = one.api.objects["gangjobs", "default", "g"]
            await one.api.put("gangjobs", {**stored, "status": (await request.json())["status"]})
            return status(504, "Timeout", "the request did not complete in time")

        one.api.faults.append(lose)
        written = await one.cluster.write_status(one.job, Status(attempt=4, phase_time=1795256484.126795))
        assert written.status.attempt == one.job.status.attempt == 4


async def test_a_write_that_did_not_happen_leaves_what_is_stored() -> None:
    async with world(GANG) as one:

        async def fail(request: web.Request) -> web.Response | None:
            return status(500, "InternalError", "etcd is away") if request.method == "PUT" else None

        one.api.faults.append(fail)
        with pytest.raises(Retryable, match="etcd is away"):
            await one.cluster.write_status(one.job, Status(attempt=1))
        assert one.job.status.attempt == 0


async def test_a_status_that_is_refused_is_terminal_with_the_words() -> None:
    async with world(GANG) as one:

        async def refuse(request: web.Request) -> web.Response | None:
            return status(422, "Invalid", "status.attempt: too large") if request.method == "PUT" else None

        one.api.faults.append(refuse)
        with pytest.raises(Terminal, match=r"the status of gang g can't be stored: status\.attempt: too large"):
            await one.cluster.write_status(one.job, Status(attempt=1))


async def test_a_pod_that_was_created_is_seen_at_once_and_once() -> None:
    async with world(GANG) as one:
        await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == ["g-worker-0-0"]
        await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == ["g-worker-0-0"]


async def test_a_pod_that_another_gang_of_the_name_left_is_waited_for() -> None:
    async with world(GANG, ("pods", pod(owner="old", label="old"))) as one:
        with pytest.raises(Retryable, match="another pod has the name g-worker-0-0"):
            await one.cluster.create_pod(one.job, FIRST)
        assert one.names() == []


async def test_the_budget_of_a_gang_is_there_before_its_first_pod_and_follows_its_roles() -> None:
    async with world(GANG) as one:
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
        await eventually(lambda: one.job.spec.roles[0].spares == 2)
        await one.cluster.create_pod(one.job, CreatePod("worker-5", 0))
        assert one.api.objects["poddisruptionbudgets", "default", "g"]["spec"]["minAvailable"] == 5


async def test_a_budget_that_can_not_be_had_stops_no_pod(caplog: pytest.LogCaptureFixture) -> None:
    async with world(GANG) as one:

        async def forbid(request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "no budgets here") if "poddisruption" in request.path else None

        one.api.faults.append(forbid)
        for at in range(3):
            await one.cluster.create_pod(one.job, CreatePod(f"worker-{at}", 0))
        assert len(one.names()) == 3
    assert sum("no budgets here" in text for text in caplog.messages) == 1


async def test_a_dry_run_says_whether_the_pods_are_taken() -> None:
    async with world(GANG) as one:
        assert one.cluster.pod_rejections(UID) is None
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())
        dry = [query for method, _, query in one.api.requests if method == "POST"]
        assert dry == [{"dryRun": "All", "fieldValidation": "Strict"}]
        assert one.names() == []
        assert one.notified[-1] == UID


async def test_what_a_dry_run_was_refused_for_is_told_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RECHECK_SECONDS", 0.05)
    async with world(GANG) as one:

        async def forbid(request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "exceeded quota: small") if "dryRun" in request.query else None

        one.api.faults.append(forbid)
        await eventually(lambda: one.cluster.pod_rejections(UID) == ("role worker: exceeded quota: small",))
        one.api.faults.clear()
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_webhook_that_can_not_be_asked_refuses_nothing() -> None:
    async with world(GANG) as one:

        async def webhook(request: web.Request) -> web.Response | None:
            words = 'admission webhook "x.example.com" does not support dry run'
            return status(400, "BadRequest", words) if "dryRun" in request.query else None

        one.api.faults.append(webhook)
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())


async def test_new_roles_are_asked_about_again_and_other_changes_are_not() -> None:
    async with world(GANG) as one:
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())
        changed = gang()
        changed["metadata"]["generation"] = 2
        changed["spec"]["suspend"] = True
        await one.api.put("gangjobs", changed)
        await eventually(lambda: one.job.spec.suspend)
        assert one.cluster.pod_rejections(UID) == ()
        changed["metadata"]["generation"] = 3
        changed["spec"]["roles"][0]["replicas"] = 5
        await one.api.put("gangjobs", changed)
        await eventually(lambda: one.job.metadata.generation == 3)
        assert one.cluster.pod_rejections(UID) is None
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_pod_that_is_refused_for_real_is_a_refusal_until_it_is_taken() -> None:
    async with world(GANG) as one:
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())

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


async def test_a_quota_that_many_pods_are_charged_to_at_once_is_tried_again() -> None:
    async with world(GANG) as one:

        async def busy(request: web.Request) -> web.Response | None:
            real = request.method == "POST" and request.path.endswith("/pods") and not request.query
            return status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas") if real else None

        one.api.faults.append(busy)
        with pytest.raises(Retryable, match="resourcequotas"):
            await one.cluster.create_pod(one.job, FIRST)
        await eventually(lambda: one.cluster.pod_rejections(UID) == ())


async def test_a_pod_is_deleted_by_its_uid_alone() -> None:
    async with world(GANG, ("pods", pod())) as one:
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "another", 5))
        assert one.names() == ["g-worker-0-0"]
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "uid-g-worker-0-0", 5))
        await eventually(lambda: one.names() == [])
        await one.cluster.delete_pod(one.job, DeletePod("g-worker-0-0", "uid-g-worker-0-0", 5))


async def test_a_pod_that_is_ending_is_seen_as_that_at_once() -> None:
    async with world(GANG, ("pods", pod())) as one:

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


async def test_a_gang_that_was_deleted_is_gone_at_once() -> None:
    async with world(GANG) as one:
        old = one.job
        await one.cluster.delete_gang(old)
        assert one.cluster.gang(UID) is None
        assert ("gangjobs", "default", "g") not in one.api.objects
        await one.cluster.delete_gang(old)


async def test_while_a_watch_is_broken_nobody_has_listened_for_long() -> None:
    async with world(GANG) as one:
        before = one.cluster.listening_since
        one.cluster.leading_since = before + 5
        assert one.cluster.listening_since == before + 5
        one.cluster.leading_since = 0.0

        async def away(_request: web.Request) -> web.Response:
            return status(503, "ServiceUnavailable", "starting")

        one.api.faults.append(away)
        await one.api.cut()
        await eventually(lambda: one.cluster.stale_seconds > 0)
        one.api.faults.clear()
        await eventually(lambda: one.cluster.stale_seconds == 0)
        assert one.cluster.listening_since == before


async def test_watching_anew_shows_nothing_of_what_was_seen_before() -> None:
    async with serving() as (api, client):
        await api.put("gangjobs", gang())
        await api.put("pods", pod())
        one = World(api, client)
        async with one.watching():
            assert one.names() == ["g-worker-0-0"]
        del api.objects["pods", "default", "g-worker-0-0"]
        async with one.watching():
            assert one.names() == []
            assert one.notified == [UID, UID]
