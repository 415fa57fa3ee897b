"""The records of nodes in a whole controller on a fake API server: faults, conflicts, other leaders, new pods."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from aiohttp import web

from gangctl.annexes.node_records import companion, records, stored
from gangctl.annexes.node_records.records import NodeRecord
from gangctl.api.model import rfc3339
from gangctl.api.roles import roles_hash
from gangctl.cluster.kube.projections import GANGS
from tests.cluster.kube.fakeapi import FakeApi, Fault, status
from tests.cluster.kube.objects import gang, node, pod
from tests.controller.replicas import replica
from tests.wait import until_async

ON = ("--node-records", "true")
MAP = ("configmaps", "default", "gangctl-node-records")
GARBAGE = '{"faults": 7}'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(companion, "RETRY_SECONDS", 0.02)


@pytest.fixture(autouse=True)
async def _nodes(api: FakeApi) -> None:
    await api.put("nodes", node("n1"))
    await api.put("nodes", node("n2"))


def ended(name: str, reason: str = "DeviceLost", namespace: str = "default", node: str = "n1") -> dict[str, Any]:
    """A gang that has ended after an incident on a node."""
    cause = {"reason": reason, "member": "worker-0", "node": node, "time": rfc3339(time.time())}
    incident = {"attempt": 2, "time": rfc3339(time.time()), "cause": cause, "settled": True, "outcome": "Restarted"}
    made = gang(name, f"uid-{namespace}-{name}", status={"phase": "Succeeded", "attempt": 2, "incidents": [incident]})
    made["metadata"]["namespace"] = namespace
    return made


def found(api: FakeApi) -> records.Records:
    text = api.objects.get(MAP, {"data": {stored.KEY: GARBAGE}})["data"][stored.KEY]
    return {} if text == GARBAGE else stored.read(text)


def weights(api: FakeApi, name: str = "n1") -> dict[str, float]:
    """The namespaces' weights on a node, in tenths."""
    return {key: round(weight, 1) for key, weight in found(api).get(name, NodeRecord()).namespaces.items()}


async def until_stored(api: FakeApi, expected: dict[str, float]) -> None:
    await until_async(f"the record of n1 is {expected}", lambda: weights(api) == expected)


def once(method: str, part: str, answer: web.Response) -> Fault:
    left = [answer]

    async def fault(request: web.Request) -> web.StreamResponse | None:
        return left.pop() if request.method == method and part in request.path and left else None

    return fault


async def test_a_node_that_failed_in_three_gangs_is_avoided_by_the_pods_of_a_fourth(api: FakeApi) -> None:
    for name in ("a", "b", "c"):
        await api.put("gangjobs", ended(name))
    async with replica(api, "a", *ON):
        await until_stored(api, {"default": 3.0})
        await api.put("gangjobs", gang("fourth", "uid-fourth"))
        key = ("pods", "default", "fourth-worker-0-0")
        await until_async("it has a pod", lambda: key in api.objects)
    (term,) = api.objects[key]["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]
    assert term["weight"] < 100, "below the nodes that the gang itself has left"


async def test_a_tenant_that_attacks_a_node_reaches_nobody_elses_pods(api: FakeApi) -> None:
    for at in range(20):
        await api.put("gangjobs", ended(f"g{at}", "Stuck", "evil"))
        await api.put("gangjobs", ended(f"h{at}", "ExitCode", "evil"))
    async with replica(api, "a", *ON):
        await until_stored(api, {"evil": 4.0})
        await api.put("gangjobs", gang("victim", "uid-victim"))
        key = ("pods", "default", "victim-worker-0-0")
        await until_async("it has a pod", lambda: key in api.objects)
    assert "affinity" not in api.objects[key]["spec"]
    assert found(api)["n1"].score(time.time()) <= records.AVOIDED / 3


async def test_a_new_leader_counts_nothing_twice(api: FakeApi) -> None:
    await api.put("gangjobs", ended("a"))
    async with replica(api, "a", *ON):
        await until_stored(api, {"default": 1.0})
    async with replica(api, "b", *ON):
        await api.put("gangjobs", ended("b"))
        await until_stored(api, {"default": 2.0})
    assert found(api)["n1"].gangs.keys() == {"default/a", "default/b"}


async def test_a_check_that_passes_after_the_repair_clears_the_record(api: FakeApi) -> None:
    await api.put("gangjobs", ended("a"))
    passed = {"name": "gpu", "result": "Passed", "nodes": ["n1"], "time": rfc3339(time.time() + records.HOUR)}
    async with replica(api, "a", *ON):
        await until_stored(api, {"default": 1.0})
        checked = {"phase": "Succeeded", "attempt": 1, "checks": {"attempt": 1, "results": [passed]}}
        await api.put("gangjobs", gang("b", "uid-b", status=checked))
        await until_stored(api, {})
    assert found(api)["n1"].checks == {}, "its time is yet to come"


async def test_checks_are_stored_with_a_fault(api: FakeApi) -> None:
    passed = {"name": "gpu", "result": "Passed", "nodes": ["n1"], "time": rfc3339(time.time() - 60)}
    checked = {"phase": "Succeeded", "attempt": 1, "checks": {"attempt": 1, "results": [passed]}}
    await api.put("gangjobs", gang("b", "uid-b", status=checked))
    await api.put("gangjobs", ended("a"))
    async with replica(api, "a", *ON):
        await until_stored(api, {"default": 1.0})
    assert found(api)["n1"].checks == {"Passed": pytest.approx(1.0, abs=0.01)}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("text", ["<html>log in</html>", "{}", '{"metadata": null}'])
async def test_a_proxy_that_answers_in_place_of_the_api_server_ends_nothing(
    api: FakeApi, method: str, text: str
) -> None:
    page = web.Response(text=text, content_type="text/html")
    api.faults.append(once(method, "/configmaps", page))
    await api.put("gangjobs", ended("a"))
    async with replica(api, "a", *ON):
        await until_stored(api, {"default": 1.0})
        await api.put("gangjobs", ended("b"))
        await until_stored(api, {"default": 2.0})


async def test_a_gang_that_is_deleted_at_once_counts(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion, "LOOK_SECONDS", 0.5)
    async with replica(api, "a", *ON):
        await until_async("it is stored", lambda: MAP in api.objects)
        await api.put("gangjobs", ended("a"))
        await api.remove("gangjobs", "default", "a")
        await until_stored(api, {"default": 1.0})


async def test_a_conflict_keeps_what_both_have_written(api: FakeApi) -> None:
    async with replica(api, "a", *ON):
        await until_async("it is stored", lambda: MAP in api.objects)
        theirs = records.with_findings(
            {}, [records.Finding("n1", "x", "g", "Stuck", "", time.time(), is_fault=True)], time.time()
        )
        await api.put("configmaps", {**api.objects[MAP], "data": {stored.KEY: stored.write(theirs, time.time())}})
        await api.put("gangjobs", ended("a"))
        await until_stored(api, {"x": 1.0, "default": 1.0})
        cleared = {name: one.cleared() for name, one in found(api).items()}
        await api.put("configmaps", {**api.objects[MAP], "data": {stored.KEY: stored.write(cleared, time.time())}})
        await api.put("gangjobs", ended("b", node="n2"))
        await until_async("the other fault is stored", lambda: weights(api, "n2"))
    assert weights(api) == {}, "a record that was cleared stays clear"


async def test_what_fails_is_tried_again_and_what_cannot_be_read_begins_anew(api: FakeApi) -> None:
    garbage = {"metadata": {"name": MAP[2], "namespace": "default"}, "data": {stored.KEY: GARBAGE}}
    await api.put("configmaps", garbage)
    api.faults.append(once("GET", "/configmaps", status(403, "Forbidden", "configmaps is forbidden")))
    api.faults.append(once("PUT", "/configmaps", status(503, "ServiceUnavailable", "try again")))
    await api.put("gangjobs", ended("a"))
    async with replica(api, "a", *ON) as one:
        await until_stored(api, {"default": 1.0})
        await one.until_ready()


async def test_the_time_under_running_gangs_is_kept(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion, "OBSERVE_SECONDS", 0.05)
    monkeypatch.setattr(companion, "STORE_SECONDS", 0.2)
    monkeypatch.setattr(stored, "TENTH", 0.01)
    stored_gang = GANGS.item(json.dumps(gang()).encode())
    assert stored_gang is not None
    assert stored_gang.job is not None
    hashed = roles_hash(stored_gang.job.spec.roles)
    running = {"phase": "Running", "attempt": 1, "startedAttempt": 1, "phaseTime": rfc3339(time.time())}
    await api.put("gangjobs", gang(status={**running, "attemptGeneration": 1, "rolesHash": hashed}))
    for at in range(4):
        one = pod(f"worker-{at}", spec={"nodeName": "n1", "containers": [{"name": "m"}]})
        await api.put("pods", {**one, "status": {"phase": "Running"}})
    async with replica(api, "a", *ON):
        await until_async("n1 was observed", lambda: "n1" in found(api) and found(api)["n1"].hours)
    assert "n2" not in found(api)


async def test_without_the_flag_nothing_is_read_or_written(api: FakeApi) -> None:
    await api.put("gangjobs", ended("a"))
    async with replica(api, "a"):
        await api.put("gangjobs", gang("next", "uid-next"))
        await until_async("it has a pod", lambda: ("pods", "default", "next-worker-0-0") in api.objects)
    assert not [path for _, path, _ in api.requests if "configmaps" in path]


def test_the_stored_text_is_json_with_a_line_for_each_node() -> None:
    made = {name: NodeRecord(0.0, namespaces={"a": 1.0}) for name in ("n1", "n2")}
    text = stored.write(made, 60.0)
    assert json.loads(text)["faults"].keys() == {"n1", "n2"}
    assert text.count("\n") == 7


def test_gauges_show_the_worst_nodes_and_how_many_are_avoided() -> None:
    now = time.time()
    faults = [("n1", name, "g") for name in "abc"] + [("n2", "a", f"g{at}") for at in range(3)] + [("n3", "a", "g")]
    found = records.with_findings({}, [records.Finding(*one, "Stuck", "", now, is_fault=True) for one in faults], now)
    scores, avoided = companion.gauges(records.with_observed(found, int(now // records.HOUR), {"n4": 60.0}), now)
    assert dict(scores.values) == {
        name: pytest.approx(score) for name, score in (("n1", 2.4), ("n2", 0.8), ("n3", 0.8))
    }
    assert avoided.values == {"all": 1, "some": 1}
    many = {f"n{at}": found["n1"] for at in range(1000)}
    assert len(companion.gauges(many, now)[0].values) <= 200
