"""The device guard in a whole controller on a fake API server, with shorter times."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web

from gangctl.annexes.device_guard import loop, policy
from gangctl.annexes.device_guard.loop import DeviceGuard
from gangctl.annexes.device_guard.pods import WatchedPods
from gangctl.annexes.device_guard.policy import GuardedPod
from gangctl.cluster import clock
from gangctl.cluster.kube.client import NoAnswer
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event
from tests.cluster.kube.fakeapi import FakeApi, status
from tests.cluster.kube.objects import pod as pod_of_a_gang
from tests.controller.replicas import Replica, replica
from tests.wait import until_async

ON = ("--device-guard", "true")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(policy, "WINDOW_SECONDS", 0.3)
    monkeypatch.setattr(policy, "FIRST_WAIT_SECONDS", 0.05)


def pod(name: str, uid: str = "", health: str = "Unhealthy", **labels: str) -> dict[str, Any]:
    resources = [{"name": "example.com/gpu", "resources": [{"resourceID": "gpu-7", "health": health}]}]
    running = {"name": "m", "state": {"running": {}}, "allocatedResourcesStatus": resources}
    labels = {"gangctl.io/device-guard": "true", **{key.replace("_", "-"): value for key, value in labels.items()}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid or name, "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "m"}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }


def evictions(api: FakeApi) -> list[str]:
    """The names of the pods whose eviction was requested."""
    return [path.split("/")[-2] for method, path, _ in api.requests if method == "POST" and path.endswith("/eviction")]


def notes(api: FakeApi) -> dict[str, list[str]]:
    """The notes of Events by the name of the pod."""
    found: dict[str, list[str]] = {}
    for (plural, *_), one in api.objects.items():
        if plural == "events" and one["regarding"]["kind"] == "Pod":
            found.setdefault(one["regarding"]["name"], []).append(f"{one['reason']}: {one['note']}")
    return found


async def evicted_after(api: FakeApi, one: Replica, name: str) -> None:
    await one.until_it_leads()
    await until_async(f"{name} is evicted", lambda: name in evictions(api))


async def test_a_guarded_pod_with_an_unhealthy_device_is_evicted_once_and_no_other_pod_is(api: FakeApi) -> None:
    plain = pod("plain")
    del plain["metadata"]["labels"]
    member = pod_of_a_gang()
    member["status"] = pod("x")["status"]
    member["metadata"]["labels"]["gangctl.io/device-guard"] = "true"
    for found in (plain, member, pod("healthy", health="Healthy"), pod("sick"), pod("later")):
        await api.put("pods", found)
    async with replica(api, "one", *ON) as one:
        await evicted_after(api, one, "later")
        await until_async("both Events are stored", lambda: notes(api).keys() == {"sick", "later"})
        async with replica(api, "two", *ON) as two:
            await two.until_ready()
            one.ended.set()
            await two.until_it_leads()
            await api.put("pods", pod("last"))
            await evicted_after(api, two, "last")
    assert sorted(evictions(api)) == ["last", "later", "sick"]
    (note,) = notes(api)["sick"]
    assert note == (
        "DeviceGuardEvicted: Device gpu-7 (example.com/gpu) on node n1 is unhealthy. The pod was evicted; its owner "
        "replaces it."
    )


async def test_a_budget_that_holds_is_told_once_and_asked_again(api: FakeApi) -> None:
    api.held = "The disruption budget inference needs 2 healthy pods and has 2 currently"
    await api.put("pods", pod("sick"))
    async with replica(api, "one", *ON) as one:
        await one.until_it_leads()
        await until_async("it is asked three times", lambda: len(evictions(api)) >= 3)
        assert "deletionTimestamp" not in api.objects["pods", "default", "sick"]["metadata"]
        api.held = ""
        await until_async("it is evicted", lambda: len(notes(api).get("sick", [])) == 2)
    assert not [one for (plural, *_), one in api.objects.items() if plural == "events" and "series" in one]
    held, evicted = notes(api)["sick"]
    assert held.startswith("DeviceGuardRefused: ")
    assert held.endswith(
        "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget inference needs 2 "
        "healthy pods and has 2 currently"
    )
    assert evicted.startswith("DeviceGuardEvicted: ")


async def test_the_next_pod_of_the_same_name_is_never_evicted_for_the_last_one(api: FakeApi) -> None:
    await api.put("pods", pod("server-0", uid="old"))
    bodies: list[dict[str, Any]] = []

    async def replaced_before(request: web.Request) -> web.StreamResponse | None:
        """The pod is deleted and created anew just before the request arrives, which the watch can't have shown."""
        if request.path.endswith("/eviction") and not bodies:
            bodies.append(json.loads(await request.read()))
            await api.remove("pods", "default", "server-0")
            await api.put("pods", pod("server-0", uid="new", health="Healthy"))
        return None

    api.faults.append(replaced_before)
    async with replica(api, "one", *ON) as one:
        await evicted_after(api, one, "server-0")
        await api.put("pods", pod("other"))
        await until_async("the Event of the other is stored", lambda: notes(api).keys() == {"other"})
    assert bodies[0]["deleteOptions"]["preconditions"] == {"uid": "old"}
    assert "deletionTimestamp" not in api.objects["pods", "default", "server-0"]["metadata"]
    assert evictions(api) == ["server-0", "other"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: status(403, "Forbidden", "a webhook says no"), "a webhook says no"),
        (lambda: status(500, "InternalError", "This pod has more than one PodDisruptionBudget"), "more than one"),
        (lambda: web.Response(status=429, text="Too many requests, please try again later."), "Too many requests"),
    ],
)
async def test_an_eviction_that_fails_is_told_with_the_reason_and_does_not_stop_others(
    api: FakeApi, answer: Any, said: str
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse | None:
        return answer() if request.path.endswith("/a/eviction") else None

    api.faults.append(refuse)
    for name in ("a", "b"):
        await api.put("pods", pod(name))
    async with replica(api, "one", *ON) as one:
        await evicted_after(api, one, "b")
        await until_async("it is told", lambda: notes(api).keys() == {"a", "b"})
    (note,) = notes(api)["a"]
    assert said in note


async def test_without_the_flag_no_such_pod_is_even_listed(api: FakeApi) -> None:
    await api.put("pods", pod("sick"))
    async with replica(api, "one") as one:
        await one.until_it_leads()
    assert evictions(api) == []
    assert not [query for _, _, query in api.requests if "device-guard" in query.get("labelSelector", "")]


class Pods:
    """Guarded pods with a watch that can break, and an API server that may not answer."""

    def __init__(self, *names: str) -> None:
        unhealthy = (Device("gpu", "gpu-7", "Unhealthy"),)
        self.pods = tuple(GuardedPod(name, "default", name, "n1", unhealthy) for name in names)
        self.changed = asyncio.Event()
        self.is_broken = self.answers = False
        self.looks = 0
        self.requests: list[tuple[str, float]] = []
        self.told: list[str] = []
        self._began = clock.now()

    @property
    def fresh(self) -> float | None:
        self.looks += 1
        return None if self.is_broken else self._began

    @property
    def health(self) -> WatchHealth:
        return WatchHealth("guardedpods", 0, 0)

    async def run(self) -> None:
        """They are always fresh."""

    async def evict(self, pod: GuardedPod) -> bool:
        self.requests.append((pod.uid, time.monotonic()))
        if not self.answers:
            raise NoAnswer("the API server did not answer")
        return True

    def tell(self, pod: GuardedPod, event: Event) -> None:
        self.told.append(f"{pod.name} {event.reason}")


@asynccontextmanager
async def guarding(pods: Pods) -> AsyncIterator[DeviceGuard]:
    guard = DeviceGuard(cast("WatchedPods", pods))
    task = asyncio.create_task(guard.lead())
    try:
        yield guard
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_nothing_is_evicted_while_the_watch_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "BROKEN_SECONDS", 0.1)
    pods = Pods("a")
    pods.is_broken = pods.answers = True
    async with guarding(pods) as guard:
        await until_async("it has looked for more than a window and a settled device", lambda: pods.looks >= 10)
        assert pods.requests == []
        pods.is_broken = False
        await until_async("it is evicted", lambda: guard.counts["evicted"] == 1)
    assert pods.told == ["a DeviceGuardEvicted"]


async def test_an_eviction_that_got_no_answer_counts_for_the_rate_and_is_told_by_none() -> None:
    pods = Pods("a", "b", "c")
    async with guarding(pods) as guard:
        await until_async("the third is asked for", lambda: "c" in dict(pods.requests))
        pods.answers = True
        await until_async("all are evicted", lambda: guard.counts["evicted"] == 3)
    at = dict(reversed(pods.requests))
    assert at["c"] - at["a"] >= 0.29, "a window later"
    assert set(pods.told) == {f"{name} DeviceGuardEvicted" for name in "abc"}


class Changing(Pods):
    """Guarded pods of which, during the first eviction, one recovers, one loses its label, and the watch breaks."""

    async def evict(self, pod: GuardedPod) -> bool:
        if not self.requests:
            healthy = (Device("gpu", "gpu-7", "Healthy"),)
            self.pods = tuple(replace(one, devices=healthy) if one.name == "b" else one for one in self.pods[:2])
            self.is_broken = True
            self.looks = 0
        return await super().evict(pod)


async def test_what_changes_during_an_eviction_counts_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "NODE_EVICTIONS", 5)
    monkeypatch.setattr(loop, "BROKEN_SECONDS", 0.01)
    pods = Changing("a", "b", "c")
    pods.answers = True
    async with guarding(pods) as guard:
        await until_async("the broken watch is looked at", lambda: pods.looks >= 10)
        assert guard.counts["evicted"] == 1
        pods.is_broken, pods.looks = False, 0
        await until_async("it is looked at again", lambda: pods.looks > 0)
        assert [name for name, _ in pods.requests] == ["a"]
