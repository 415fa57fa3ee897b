"""Which nodes are suspected, and that this is announced once, by the replica that leads, until it isn't so any more."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gangctl.annexes.node_records import companion, hand_over, records, stored, suspicion
from gangctl.annexes.node_records.records import AVOIDED, DAY, HOUR, Finding, NodeRecord, Records
from gangctl.kubernetes.objects import SUSPECTED, Node
from tests.cluster.kube.fakeapi import FakeApi, Object, status
from tests.cluster.kube.objects import node
from tests.controller.replicas import replica
from tests.wait import until_async

NOW = 20_000 * DAY
ON = ("--node-condition", "1", "--maintenance-requests", "1")
MAP = "gangctl-node-records"


def bad(now: float, *namespaces: str, gangs: int = 1) -> NodeRecord:
    """The record of a node that has just failed in gangs of these namespaces."""
    found = [
        Finding("n", name, f"g{at}", "DeviceLost", "", now, is_fault=True) for name in namespaces for at in range(gangs)
    ]
    return records.with_findings({}, found, now)["n"]


def there(count: int, **fields: Any) -> list[Node]:
    return [Node(name=f"n{at}", **fields) for at in range(1, count + 1)]


def suspects(
    made: Records, nodes: list[Node], announced: tuple[str, ...] = (), namespaces: int = 3, days: float = 0
) -> set[str]:
    return set(suspicion.suspected(made, nodes, announced, NOW + days * DAY, namespaces))


def test_a_node_is_suspected_after_faults_in_so_many_namespaces() -> None:
    one_team, three_teams = bad(NOW, "a", gangs=4), bad(NOW, "a", "b", "c")
    made = {"n1": one_team, "n2": three_teams}
    assert suspects(made, there(40)) == {"n2"}
    assert suspects(made, there(40), namespaces=1) == {"n1", "n2"}
    assert suspects({"n1": bad(NOW, "a", "b", gangs=4)}, there(40)) == set()
    assert suspects({"n1": bad(NOW, "a", "b", gangs=4)}, there(40), namespaces=2) == {"n1"}


def test_a_suspicion_ends_half_as_high_as_it_begins_and_with_the_record() -> None:
    made = {"n1": bad(NOW, "a", "b", "c")}
    assert suspects(made, there(9), days=3) == set(), "it has faded before it was announced"
    assert suspects(made, there(9), ("n1",), days=6) == {"n1"}
    assert suspects(made, there(9), ("n1",), days=10) == set()
    assert suspects({"n1": made["n1"].cleared()}, there(9), ("n1",)) == set()
    assert suspects({}, there(9), ("n1",)) == set()


def test_a_node_that_is_gone_or_was_made_anew_is_not_suspected() -> None:
    made = {"n1": bad(NOW, "a", "b", "c"), "gone": bad(NOW, "a", "b", "c")}
    assert suspects(made, there(9), ("gone",)) == {"n1"}
    assert suspects(made, there(9, created_at=NOW + 1), ("n1",)) == set()


weights = st.dictionaries(st.integers(1, 40).map("n{}".format), st.integers(0, 4), max_size=40)


@given(weights, st.integers(1, 40), st.sets(st.integers(1, 40).map("n{}".format), max_size=6))
def test_few_nodes_are_suspected_at_once_and_a_new_look_changes_nothing(
    found: dict[str, int], count: int, announced: set[str]
) -> None:
    made = {name: bad(NOW, "a", gangs=gangs) for name, gangs in found.items() if gangs}
    nodes = there(count)
    now_announced = suspicion.suspected(made, nodes, announced, NOW, 1)
    assert len(now_announced) <= max(1, count // suspicion.SHARE, len(announced))
    assert {one for one in now_announced if one not in announced} <= {
        name for name, one in made.items() if one.score(NOW, "a") >= AVOIDED
    }
    assert set(suspicion.suspected(made, nodes, now_announced, NOW, 1)) == set(now_announced)


def test_the_worst_of_too_many_are_suspected() -> None:
    made = {"n1": bad(NOW, "a", gangs=3), "n2": bad(NOW, "a", "b", gangs=4), "n3": bad(NOW, "a", gangs=3)}
    assert suspects(made, there(9), namespaces=1) == {"n2"}
    assert suspects(made, there(9), ("n3",), namespaces=1) == {"n3"}, "it was announced before"


def test_a_passed_check_clears_what_its_own_namespace_has_met() -> None:
    later = NOW + HOUR
    made = {"n1": bad(NOW, "a", "b")}
    assert records.with_passed(made, "n1", "a", later - 1) is made, "faults come and go"
    assert records.with_passed(made, "n1", "c", later) is made
    passed = records.with_passed(made, "n1", "a", later)
    assert passed["n1"].namespaces == {"b": 1.0}
    assert passed["n1"].kinds == {"DeviceLost": 1.0}
    assert records.with_passed(passed, "n1", "a", later) is passed
    again = Finding("n1", "a", "other", "DeviceLost", "", later + 1, is_fault=True)
    faulty = records.with_findings(passed, [again], later + 1)
    assert records.with_passed(faulty, "n1", "a", later) is faulty, "an old check doesn't clear a new fault"
    assert records.with_passed(passed, "n1", "b", later)["n1"].score(NOW) == 0


def test_long_names_of_nodes_have_names_of_requests() -> None:
    names = [suspicion.request_name(f"{at}{'n' * 252}") for at in "ab"]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 64
    assert suspicion.request_name("node-7") == "gangctl-node-7"


# In a whole controller on a fake API server


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
