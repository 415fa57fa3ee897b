"""Suspected nodes are announced once, by the replica that leads, until they aren't suspected any more."""

from __future__ import annotations

import time

import pytest
from aiohttp import web

from gangctl.annexes.node_records import companion, hand_over, stored
from gangctl.annexes.node_records.records import Records
from gangctl.kubernetes.objects import SUSPECTED
from tests.annexes.node_records.test_suspicion import bad
from tests.cluster.kube.fakeapi import FakeApi, Object, status
from tests.cluster.kube.objects import node
from tests.controller.replicas import replica
from tests.wait import until_async

ON = ("--node-condition", "1", "--maintenance-requests", "1")
MAP = "gangctl-node-records"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(companion, "LOOK_SECONDS", 0.02)


async def store(api: FakeApi, made: Records) -> None:
    text = stored.write(made, time.time())
    await api.put("configmaps", {"metadata": {"name": MAP, "namespace": "default"}, "data": {stored.KEY: text}})


def condition(api: FakeApi, name: str = "n1") -> dict[str, str]:
    found = {one["type"]: one for one in api.objects["nodes", "", name]["status"]["conditions"]}
    its: dict[str, str] = found.get(SUSPECTED, {})
    return its


def requests(api: FakeApi) -> dict[str, Object]:
    return {key[2]: one for key, one in api.objects.items() if key[0] == "maintenancerequests"}


async def until_announced(api: FakeApi, *, announced: bool = True) -> None:
    await until_async(
        f"n1 is handed over: {announced}",
        lambda: condition(api).get("status") == str(announced) and ("gangctl-n1" in requests(api)) is announced,
    )


@pytest.fixture(autouse=True)
async def _nodes(api: FakeApi) -> None:
    for name in ("n1", "n2"):
        await api.put("nodes", node(name))


async def test_a_node_is_told_once_over_changes_of_the_leader_and_withdrawn_after_the_repair(api: FakeApi) -> None:
    await store(api, {"n1": bad(time.time(), "a", gangs=3), "n2": bad(time.time(), "a")})
    async with replica(api, "a", *ON):
        await until_announced(api)
    made = requests(api)["gangctl-n1"]
    first = condition(api)
    async with replica(api, "b", *ON):
        looks = api.count("GET", "maintenancerequests")
        await until_async("it has looked again", lambda: api.count("GET", "maintenancerequests") > looks + 3)
        assert (requests(api), condition(api)) == ({"gangctl-n1": made}, first)
        await store(api, {"n1": bad(time.time(), "a", gangs=3).cleared()})
        await until_announced(api, announced=False)
    assert api.count("POST", "maintenancerequests") == 1
    assert condition(api)["reason"] == "NoRecentFaults"
    assert condition(api, "n2") == {}
    event = made["spec"]["healthEvent"]
    assert (event["nodeName"], event["isHealthy"], event["errorCode"]) == ("n1", False, ["DeviceLost"])
    assert "a/g" not in event["message"], "no gang is named to those who may not read the records"


async def test_what_cannot_be_read_is_neither_told_nor_withdrawn(api: FakeApi) -> None:
    await store(api, {"n1": bad(time.time(), "a", gangs=3)})
    async with replica(api, "a", *ON):
        await until_announced(api)
        await api.put("configmaps", {"metadata": {"name": MAP, "namespace": "default"}, "data": {stored.KEY: "?"}})
        looks = api.count("GET", MAP)
        await until_async("it has looked again", lambda: api.count("GET", MAP) > looks + 5)
        await until_announced(api)


async def test_requests_of_others_stay_and_stand_for_ours(api: FakeApi) -> None:
    theirs = {"metadata": {"name": "csp"}, "spec": {"healthEvent": {"nodeName": "n1"}}}
    await api.put("maintenancerequests", theirs)
    await store(api, {"n1": bad(time.time(), "a", gangs=3)})
    async with replica(api, "a", *ON):
        await until_async("the node has its condition", lambda: condition(api).get("status") == "True")
        await store(api, {})
        await until_async("it has no more", lambda: condition(api).get("status") == "False")
        looks = api.count("GET", "maintenancerequests")
        await until_async("it has looked again", lambda: api.count("GET", "maintenancerequests") > looks + 3)
    assert set(requests(api)) == {"csp"}


async def test_a_request_that_is_refused_is_tried_again_and_delays_no_other(api: FakeApi) -> None:
    refused = True

    async def refuse(request: web.Request) -> web.StreamResponse | None:
        if (
            refused
            and request.method == "POST"
            and "maintenance" in request.path
            and b"gangctl-n1" in await request.read()
        ):
            return status(403, "Forbidden", "denied by NVSentinel")
        return None

    api.faults.append(refuse)
    for at in range(3, 21):
        await api.put("nodes", node(f"n{at}"))
    await store(api, {"n1": bad(time.time(), "a", gangs=4), "n2": bad(time.time(), "a", gangs=3)})
    async with replica(api, "a", *ON) as one:
        await until_async("the other one is requested", lambda: set(requests(api)) == {"gangctl-n2"})
        refused = False
        await until_announced(api)
        await one.until_ready()


async def test_without_the_flags_nothing_is_told(api: FakeApi) -> None:
    await store(api, {"n1": bad(time.time(), "a", gangs=3)})
    async with replica(api, "a", "--node-records", "true") as one:
        await one.until_it_leads()
    assert (requests(api), condition(api)) == ({}, {})
