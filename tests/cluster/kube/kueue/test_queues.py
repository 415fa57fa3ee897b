"""What is known of Kueue's Workloads: when Kueue is away or removed, and after a write that the watch shows later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import web

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube import queues
from gangctl.core.facts.world import Queue
from gangctl.core.policy.admission import PodsAsked, QueueVerb, TellQueue
from tests.cluster.kube.fakeapi import FakeApi, serving, status
from tests.cluster.kube.livecluster import FIRST, NODE, SETTINGS, LiveCluster
from tests.cluster.kube.objects import UID, gang
from tests.wait import until_async

GROUP = "kueue.x-k8s.io"
ADMITTED = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOKING_SECONDS", 0.05)


@dataclass
class Kueue:
    """A Kueue that can go away: a fake, which admits what the test says."""

    live: LiveCluster
    failure: int = 0
    """The code that its API answers with; 0 = it works."""

    @property
    def queue(self) -> Queue:
        """What the controller knows of the gang's queue."""
        return self.live.cluster.queue(UID)

    @property
    def workload(self) -> dict[str, Any]:
        """The Workload that is stored."""
        return next(one for (plural, _, _), one in self.live.api.objects.items() if plural == "workloads")

    async def answer(self, request: web.Request) -> web.StreamResponse | None:
        """The fault of the fake API server."""
        if self.failure and GROUP in request.path:
            return status(self.failure, "Failed", "Kueue is away")
        if request.path == f"/apis/{GROUP}":
            return web.json_response({"versions": [{"version": "v1beta2"}]})
        return None

    async def admit(self, **fields: Any) -> None:
        """The gang asks, and is admitted."""
        await self.live.cluster.tell_queue(self.live.job, TellQueue(QueueVerb.JOIN))
        await self.live.api.put("workloads", {**self.workload, "status": {"conditions": ADMITTED, **fields}})
        await until_async("it is admitted", lambda: self.is_admitted)

    @property
    def is_admitted(self) -> bool:
        """As the controller knows it."""
        return self.queue.known and self.queue.workload is not None and self.queue.workload.admitted

    async def fails(self, code: int) -> None:
        """Its API answers with this code from now on, and watches end."""
        self.failure = code
        await self.live.api.cut()


@asynccontextmanager
async def kueue() -> AsyncIterator[Kueue]:
    """A gang that names a queue, in a cluster with Kueue."""
    async with serving() as (api, client):
        named = gang()
        named["metadata"]["labels"] = {f"{GROUP}/queue-name": "team-a"}
        await api.put("gangjobs", named)
        await api.put(*NODE)
        made = Kueue(LiveCluster(api, client, replace(SETTINGS, kueue=True)))
        api.faults.append(made.answer)
        async with made.live.watching():
            await until_async("Kueue is found", lambda: made.queue.known)
            yield made


def pods(api: FakeApi) -> list[str]:
    return [name for plural, _, name in api.objects if plural == "pods"]


async def test_a_new_leader_leads_while_kueue_is_away_and_does_not_know_what_queues_say() -> None:
    async with kueue() as one:
        await one.admit()
        since = one.queue.known_since
        await one.fails(503)
        await one.live.cluster.refresh()
        assert not one.queue.known
        one.failure = 0
        await until_async("it is known again", lambda: one.is_admitted)
        assert one.queue.known_since > since


async def test_a_watch_that_breaks_makes_nothing_unknown() -> None:
    async with kueue() as one:
        await one.admit()
        await one.fails(503)
        await asyncio.sleep(0.2)  # waits for nothing: several looks pass
        assert one.is_admitted


async def test_once_kueue_is_removed_nothing_is_known_and_gangs_are_woken_when_it_is_back() -> None:
    async with kueue() as one:
        await one.admit()
        await one.live.api.remove("workloads", "default", one.workload["metadata"]["name"])
        await until_async("its Workload is gone", lambda: one.queue.workload is None)
        await one.fails(404)
        await until_async("it is unknown", lambda: not one.queue.known)
        await until_async("the gang is told", lambda: UID in one.live.notified)
        await asyncio.sleep(0.1)  # waits for nothing: a look passes
        one.live.notified.clear()
        one.failure = 0
        await until_async("it is known", lambda: one.queue.known)
        await until_async("the gang is woken", lambda: UID in one.live.notified)


async def test_a_workload_that_was_deleted_admits_nothing_though_the_watch_still_shows_it() -> None:
    async with kueue() as one:
        await one.admit()
        release = asyncio.Event()

        async def silent(request: web.Request) -> None:
            if "watch" in request.query and "workloads" in request.path:
                await release.wait()

        one.live.api.faults.append(silent)
        await one.live.api.cut()
        await one.live.cluster.tell_queue(one.live.job, TellQueue(QueueVerb.LEAVE))
        assert one.queue.workload is None
        release.set()


async def test_no_pod_is_created_for_a_gang_that_is_admitted_no_more() -> None:
    async with kueue() as one:
        await one.admit()
        await one.live.cluster.create_pod(one.live.job, FIRST)
        assert pods(one.live.api) == ["g-worker-0-0"]
        await one.live.api.put("workloads", {**one.workload, "status": {}})
        await until_async("it is admitted no more", lambda: not one.is_admitted)
        with pytest.raises(Retryable, match="queue team-a doesn't admit the gang any more"):
            await one.live.cluster.create_pod(one.live.job, FIRST._replace(incarnation=1))
        assert pods(one.live.api) == ["g-worker-0-0"]


async def test_the_pods_of_a_gang_that_waits_are_tried_all_the_same() -> None:
    async with kueue() as one:
        await until_async("they are tried", lambda: one.live.cluster.pod_rejections(UID) == ())
        assert pods(one.live.api) == []


async def test_an_older_version_that_the_watch_shows_after_a_deletion_admits_nothing() -> None:
    async with kueue() as one:
        await one.admit()
        left = one.workload
        await one.live.cluster.tell_queue(one.live.job, TellQueue(QueueVerb.LEAVE))
        await until_async("the deletion is seen", lambda: not _shows(one.live.api))
        one.live.notified.clear()
        await one.live.api.send_event("workloads", "MODIFIED", left)
        await until_async("the older version is seen", lambda: UID in one.live.notified)
        assert one.queue.workload is None


def _shows(api: FakeApi) -> bool:
    return any(plural == "workloads" for plural, _, _ in api.objects)


async def test_a_workload_without_its_label_is_told_and_not_asked_for_again_and_again() -> None:
    async with kueue() as one:
        await one.admit()
        stripped = {**one.workload, "metadata": {**one.workload["metadata"], "labels": {}}}
        await one.live.api.put("workloads", stripped)
        await until_async("it is lost", lambda: one.queue.workload is None)
        with pytest.raises(Retryable, match="has lost its label"):
            await one.live.cluster.tell_queue(one.live.job, TellQueue(QueueVerb.JOIN))


async def test_a_gang_that_was_decided_about_while_nothing_was_known_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with kueue() as one:
        await one.admit()
        since, reads = one.queue.known_since, one.live.cluster
        monkeypatch.setattr(queues.Queues, "_can_be_read", lambda _self: False)
        assert not reads.queue(UID).known
        monkeypatch.undo()
        one.live.notified.clear()
        await until_async("the gang is woken", lambda: UID in one.live.notified)
        assert one.queue.known_since > since


async def test_what_a_gang_grows_by_is_asked_for_on_its_own_nodes_and_given_back_alone() -> None:
    async with kueue() as one:
        flavor = {"metadata": {"uid": "f", "name": "pool-a"}, "spec": {"nodeLabels": {"pool": "a"}}}
        await one.live.api.put("resourceflavors", flavor)
        assigned = [{"name": "worker", "count": 2, "flavors": {"cpu": "pool-a"}}]
        await one.admit(admission={"podSetAssignments": assigned})
        first = one.queue.workload
        assert first is not None
        more = TellQueue(QueueVerb.GROW, pods=(PodsAsked("worker", 1, 1),))

        async def ask() -> None:
            await one.live.cluster.tell_queue(one.live.job, more)

        await ask()
        await ask()
        (asked,) = one.queue.more
        stored = next(found for (_, _, name), found in one.live.api.objects.items() if name == asked.name)
        assert stored["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
        assert one.queue.workload == first
        await one.live.cluster.tell_queue(one.live.job, TellQueue(QueueVerb.LEAVE, workload=asked.name))
        assert (one.queue.workload, one.queue.more) == (first, ())


async def test_a_workload_of_other_roles_gives_no_quota_and_is_shown_as_left_over() -> None:
    """A leader that was deposed has asked for it, late. Kueue may write it at any time."""
    async with kueue() as one:
        await one.admit()
        own = one.queue.workload
        old = deepcopy(one.workload)
        old["metadata"] |= {"name": "gangjob-g-0ld", "uid": "uid-old", "annotations": {"gangctl.io/roles-hash": "old"}}
        await one.live.api.put("workloads", {**old, "status": {"conditions": ADMITTED}})
        await until_async("it is shown", lambda: bool(one.queue.more))
        (left,) = one.queue.more
        assert (left.name, left.roles_hash, left.pods) == ("gangjob-g-0ld", "old", {})
        assert one.queue.workload == own, "though the other is newer"
        await one.live.cluster.tell_queue(one.live.job, TellQueue(QueueVerb.LEAVE, workload=left.name))
        assert (one.queue.workload, one.queue.more) == (own, ())
        assert one.is_admitted
