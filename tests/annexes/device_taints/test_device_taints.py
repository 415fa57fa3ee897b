"""Which pods have tainted devices, and that their gangs are told, in a whole controller on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from aiohttp import web

from gangctl.annexes.device_taints import companion
from gangctl.annexes.device_taints.taints import DeviceClaim, pod_signals, read_claim
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.events import EventRecorder
from gangctl.cluster.kube.informers import Informers
from gangctl.cluster.kube.settings import KubeSettings
from gangctl.controller.companions import House
from gangctl.core.facts.world import NodeAnswer, NodeSignal
from gangctl.kubernetes.device_taints import TaintSource, read_rule, read_slice
from tests.cluster.kube.fakeapi import FakeApi, Object
from tests.cluster.kube.objects import UID, gang, node, pod
from tests.wait import until_async

EARLY, LATE = "2026-11-27T08:00:00Z", "2026-11-27T09:00:00Z"


def taint(effect: str = "NoSchedule", time: str = EARLY, key: str = "sick") -> dict[str, str]:
    return {"key": key, "effect": effect, "timeAdded": time}


def resource_slice(*taints: dict[str, str], name: str = "gpu-0", pool: str = "n1") -> Object:
    devices = [{"name": name, "taints": list(taints)}, {"name": "sound"}]
    spec = {"driver": "d", "nodeName": pool, "pool": {"name": pool}, "devices": devices}
    return {"metadata": {"name": f"{pool}-{name}", "uid": f"{pool}-{name}"}, "spec": spec}


def rule(its: dict[str, str], **selector: str) -> Object:
    return {"metadata": {"name": "r", "uid": "r"}, "spec": {"deviceSelector": selector, "taint": its}}


def claim(*devices: str, pods: tuple[str, ...] = ("p",), tolerations: list[dict[str, str]] | None = None) -> Object:
    results = [
        {"request": "one", "driver": "d", "pool": "n1", "device": name, "tolerations": tolerations or []}
        for name in devices
    ]
    reserved = [{"resource": "pods", "name": one, "uid": one} for one in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return {"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "status": status}


def told(*sources: Object, has: Object | None = None) -> dict[str, str]:
    """Pod -> what is told of it."""
    read = [read_rule(one) if "deviceSelector" in one["spec"] else read_slice(one) for one in sources]
    found = pod_signals(read, [read_claim(claim("gpu-0") if has is None else has)])
    assert all(one.answer is NodeAnswer.LEAVE_AT_RESTART and one.pod == uid for uid, one in found.items())
    return {uid: one.what for uid, one in found.items()}


SICK = {"p": "the taint sick:NoSchedule of device d/n1/gpu-0"}


def test_a_driver_taints_a_device_that_a_pod_has() -> None:
    assert told(resource_slice(taint())) == SICK
    assert told(resource_slice(taint()), has=claim("sound")) == {}
    assert told(resource_slice(taint(), pool="n2")) == {}, "a device of the same name in another pool"
    assert told(resource_slice()) == {}
    assert told(resource_slice(taint("None"))) == {}, "it only informs"
    assert set(told(resource_slice(taint()), has=claim("sound", "gpu-0", pods=("p", "q")))) == {"p", "q"}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({"driver": "d", "pool": "n1", "device": "gpu-0"}, True),
        ({"driver": "d", "pool": "n1"}, True),
        ({"device": "gpu-0"}, True),
        ({}, True),
        ({"driver": "other"}, False),
        ({"pool": "n1", "device": "gpu-1"}, False),
    ],
)
def test_an_administrator_taints_devices_by_a_rule(selector: dict[str, str], *, selects: bool) -> None:
    assert told(rule(taint(), **selector)) == (SICK if selects else {})


def test_a_rule_without_a_selector_selects_nothing() -> None:
    without = rule(taint())
    del without["spec"]["deviceSelector"]
    assert read_rule(without).taints == ()


def test_a_taint_that_the_claim_tolerates_does_not_count() -> None:
    tolerated = claim("gpu-0", tolerations=[{"key": "sick", "operator": "Exists", "effect": "NoSchedule"}])
    assert told(resource_slice(taint()), has=tolerated) == {}
    assert "other" in told(resource_slice(taint(), taint(key="other")), has=tolerated)["p"]


def test_the_newest_taint_is_told_with_its_time() -> None:
    sources = [read_slice(resource_slice(taint())), read_rule(rule(taint(time=LATE, key="worse")))]
    (found,) = pod_signals(sources, [read_claim(claim("gpu-0"))]).values()
    assert "worse" in found.what
    assert found.since == pod_signals(sources[1:], [read_claim(claim("gpu-0"))])["p"].since


def test_half_made_objects_are_read() -> None:
    bare: dict[str, Any] = {"metadata": {"name": "x", "uid": "x"}}
    assert read_slice(bare).taints == ()
    assert read_rule(bare).taints == ()
    assert read_claim(bare).devices == ()


@pytest.mark.parametrize("served", ["v1", "v1beta2"])
async def test_a_gang_is_told_of_the_taint_of_its_device(
    served: str, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(companion, "PAUSE_SECONDS", 0.02)

    async def discovery(request: web.Request) -> web.Response | None:
        if request.path == f"{companion.GROUP}/{served}":
            return web.json_response({"resources": [{"name": "devicetaintrules"}]})
        return web.json_response({"resources": []}) if request.path == f"{companion.GROUP}/v1" else None

    api.faults.append(discovery)
    await api.put("nodes", node("n1"))
    await api.put("gangjobs", gang())
    one = pod("worker-0", spec={"nodeName": "n1", "containers": [{"name": "m"}]})
    await api.put("pods", one)
    await api.put("resourceclaims", claim("gpu-0", pods=(one["metadata"]["uid"],)))
    changed: list[str] = []
    settings = KubeSettings(namespace="default", sidecar_image="i", url="wss://h", server_name="h")
    async with Client(api.credentials()) as client, asyncio.TaskGroup() as tasks:
        informers = Informers(client)
        watching = companion.DeviceTaints(House(client, settings, EventRecorder(client), informers, [], [], {}))
        running = [tasks.create_task(informers.run(changed.append)), tasks.create_task(watching.watch())]
        await api.put("devicetaintrules", rule(taint(time=LATE), driver="d"))
        await until_async("the node shows it", lambda: "n1" in informers.shown())
        (signal,) = informers.shown()["n1"].signals
        assert (signal.pod, signal.answer) == (one["metadata"]["uid"], NodeAnswer.LEAVE_AT_RESTART)
        await until_async("its gang is looked at", lambda: UID in changed)
        await api.remove("devicetaintrules", "", "r")
        await until_async("it is gone", lambda: not informers.shown())
        await api.put("resourceslices", resource_slice(taint()))
        await until_async("the driver's counts too", lambda: "n1" in informers.shown())
        for task in running:
            task.cancel()
    assert watching.results == {"shown": 2, "gone": 1}


async def test_a_burst_of_claims_costs_few_looks_at_all_of_them(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(sources: Iterable[TaintSource], claims: Collection[DeviceClaim]) -> Mapping[str, NodeSignal]:
        looks.append(len(claims))
        return pod_signals(sources, claims)

    monkeypatch.setattr(companion, "pod_signals", look)
    await api.put("resourceslices", resource_slice(taint()))
    for at in range(100):
        one = claim("gpu-0", pods=(f"p{at}",))
        await api.put(
            "resourceclaims", {**one, "metadata": {"name": f"c{at}", "namespace": "default", "uid": f"c{at}"}}
        )
    settings = KubeSettings(namespace="default", sidecar_image="i", url="wss://h", server_name="h")
    async with Client(api.credentials()) as client:
        informers = Informers(client)
        watching = companion.DeviceTaints(House(client, settings, EventRecorder(client), informers, [], [], {}))
        running = asyncio.create_task(watching.watch())
        await until_async("all pods are shown", lambda: len(informers.pod_signals) == 100)
        running.cancel()
    assert len(looks) <= 5
