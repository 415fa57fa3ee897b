"""The verbs nodes and gate against a fake API server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from aiohttp import web

from gangctl.annexes.node_records import gate_verb, records, stored
from gangctl.annexes.node_records.records import HOUR, Finding, Hour, NodeRecord, Records
from gangctl.api.model import rfc3339
from gangctl.cli.main import main
from tests.cli.kube import Shell, job, on, pod, shell
from tests.cluster.kube.fakeapi import status
from tests.cluster.kube.objects import node
from tests.wait import until_async

MAP = {"name": "gangctl-node-records", "namespace": "gangctl-system"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        for at in range(12):
            made = node(f"n{at}", nodeInfo={"kubeletVersion": "v1.37.2" if at < 4 else "v1.36.3"})
            made["metadata"]["labels"] = {"pool": "canary" if at < 4 else "old"}
            await one.api.put("nodes", made)
        yield one


async def store(here: Shell, made: Records) -> None:
    text = stored.write(made, time.time())
    await here.api.put("configmaps", {"metadata": dict(MAP), "data": {stored.KEY: text}})


def with_faults(made: Records, *where: tuple[str, str, str]) -> Records:
    """The records with faults, by node, namespace and gang."""
    now = time.time()
    found = [Finding(*one, "DeviceLost", "gpu-3", now - 60, is_fault=True) for one in where]
    return records.with_findings(made, found, now)


def observed(bad: Iterable[int] = (), hours: int = 47) -> Records:
    """Twelve nodes with two days under gangs; each of the first hours of the bad ones has a fault."""
    this = int(time.time() // HOUR)
    seen = {hour: Hour(HOUR) for hour in range(this - hours + 1, this + 1)}
    faults = dict.fromkeys(list(seen)[-6:], Hour(HOUR, fault=True, restart=True))
    return {f"n{at}": NodeRecord(time.time(), hours={**seen, **(faults if at in bad else {})}) for at in range(12)}


GATE = ("gate", "--candidate", "pool=canary", "--baseline", "pool=old", "--since", "2d")


async def test_nodes_shows_the_worst_first_and_for_whom_they_are_avoided(here: Shell) -> None:
    all_of_them = [("n2", name, "g") for name in ("a", "b", "c")]
    await store(
        here, with_faults(observed(), ("n1", "a", "x"), *[("n3", "a", f"g{at}") for at in range(3)], *all_of_them)
    )
    done = await here.gangctl("nodes", "-n", "research")
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[0] for line in lines] == ["NODE", "n2", "n3", "n1", "9"]
    assert lines[1][1:6] == ["2.4", "all", "gangs", "DeviceLost", "3.0"]
    assert lines[2][1:5] == ["0.8", "a", "DeviceLost", "3.0"]
    assert lines[3][1:3] == ["0.8", "-"]
    assert done.out.endswith("9 nodes without a fault\n")


async def test_one_node_and_all_as_json(here: Shell) -> None:
    await store(here, with_faults(observed(), ("n1", "a", "x")))
    done = await here.gangctl("nodes", "n1", "-n", "research")
    assert "gpu-3 1.0" in done.out
    assert "checks      -" in done.out
    assert "a/x" in done.out
    assert "47.0 h" in done.out
    done = await here.gangctl("nodes", "-o", "json", "-n", "research")
    document = json.loads(done.out)
    assert document["kind"] == "NodeRecords"
    first = document["nodes"][0]
    assert (first["name"], first["faults"], first["gangs"]) == ("n1", {"DeviceLost": 1.0}, ["a/x"])
    assert (first["avoided"], first["hoursWithFaults"], len(document["nodes"])) == (False, 1, 12)


async def test_why_says_who_avoids_a_node_and_whether_it_is_suspected(here: Shell) -> None:
    three = [("n2", name, "g") for name in ("a", "b", "c")]
    await store(here, with_faults(observed(), ("n1", "a", "x"), *three, *[("n3", name, "g") for name in ("a", "b")]))
    bad = node("n2", conditions=[{"type": "GangctlSuspected", "status": "True"}])
    await here.api.put("nodes", bad)
    done = await here.gangctl("why", "node/n2", "-n", "research")
    assert (done.code, done.err) == (0, "")
    answered = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert answered["gangs"] == "a/g, b/g, c/g"
    assert answered["suspected"].startswith("yes: its condition GangctlSuspected is True")
    assert answered["next"].startswith("new pods prefer other nodes until")
    assert "gangctl nodes -n research n2 --clear" in answered["do"]
    done = await here.gangctl("why", "node/n1", "-n", "research", "-o", "json")
    document = json.loads(done.out)
    assert (document["kind"], document["node"]["gangs"]) == ("NodeAnswer", ["a/x"])
    assert document["suspected"] == "no: it would be from a score of 2.4 on"
    assert document["next"].startswith("nothing")
    for name, said in (("n3", "no: it would be"), ("n5", "no: it would be")):
        done = await here.gangctl("why", f"node/{name}", "-n", "research")
        assert (done.code, said in done.out) == (0, True)
    done = await here.gangctl("why", "node/n77", "-n", "research")
    assert (done.code, "did you mean n7?" in done.err) == (2, True)


async def test_a_repaired_node_is_cleared(here: Shell) -> None:
    await store(here, with_faults(observed(), ("n1", "a", "x"), ("n2", "a", "x")))
    done = await here.gangctl("nodes", "n1", "--clear", "-n", "research")
    assert (done.code, done.err) == (0, "")
    found = stored.read(here.api.objects["configmaps", "gangctl-system", MAP["name"]]["data"][stored.KEY])
    assert (found["n1"].kinds, found["n2"].kinds) == ({}, {"DeviceLost": 1.0})
    assert found["n1"].gangs.keys() == {"a/x"}


async def test_errors_say_what_to_do(here: Shell) -> None:
    done = await here.gangctl("nodes", "-n", "research")
    assert done.code == 2
    assert "there is no ConfigMap gangctl-node-records in namespace gangctl-system: set nodeRecords.enabled" in done.err
    await store(here, observed())
    done = await here.gangctl("nodes", "n77", "-n", "research")
    assert (done.code, "did you mean n7?" in done.err) == (2, True)
    for wrong in ("system", "a/", "../x", "a/b/c"):
        done = await here.gangctl("nodes", "--controller", wrong, "-n", "research")
        assert done.code == 2, wrong

    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", 'User "me" cannot')

    here.api.faults.append(on("gangctl-node-records", no))
    done = await here.gangctl("nodes", "-n", "research")
    assert (done.code, "you lack the right to get ConfigMap" in done.err) == (2, True)


async def test_the_gate_passes_fails_and_abstains(here: Shell) -> None:
    await store(here, observed())
    done = await here.gangctl(*GATE, "-n", "research")
    assert (done.code, done.err) == (0, "")
    assert "candidate: 4 nodes observed for 7.8" in done.out
    assert "PASS: " in done.out
    await store(here, observed(range(4)))
    done = await here.gangctl(*GATE, "-n", "research", "-o", "json")
    document = json.loads(done.out)
    assert (done.code, document["outcome"]) == (1, "Fail")
    assert document["candidate"]["events"] == {"faults-per-node-day": 24, "restarts-per-node-day": 24}
    assert [one["failed"] for one in document["comparisons"]] == [True, True]
    await store(here, observed(hours=2))
    done = await here.gangctl(*GATE, "-n", "research")
    assert (done.code, "NOT ENOUGH DATA" in done.out) == (3, True)


async def test_the_gate_knows_versions_and_limits(here: Shell) -> None:
    await store(here, observed(range(12)))
    by_version = ("gate", "--candidate", "node.kubelet=v1.37.2", "--baseline", "node.kubelet=v1.36.3", "--since", "48h")
    done = await here.gangctl(*by_version, "--detect", "5", "-n", "research")
    assert (done.code, "PASS" in done.out) == (0, True)
    slo = ("--slo", "restarts-per-node-day=0.5,faults-per-node-day=100")
    done = await here.gangctl(*by_version, *slo, "-n", "research")
    assert done.code == 1
    assert "FAIL: restarts-per-node-day of" in done.out
    assert "limit 0.5" in done.out


async def test_the_gate_refuses_sets_that_overlap_or_are_empty(here: Shell) -> None:
    await store(here, observed())
    done = await here.gangctl("gate", "--candidate", "pool=canary", "--baseline", "pool", "-n", "research")
    assert (done.code, "n0, n1, n2 and n3 are selected by both" in done.err) == (2, True)
    done = await here.gangctl("gate", "--candidate", "pool=x", "--baseline", "pool", "-n", "research")
    assert (done.code, "--candidate selects no node" in done.err) == (2, True)
    for wrong in (("--since", "3d"), ("--since", "1"), ("--slo", "x=1"), ("--detect", "0"), ("--candidate", "a=b=c")):
        done = await here.gangctl(*GATE, *wrong, "-n", "research")
        assert done.code == 2, wrong


async def test_the_gate_watches_until_there_is_an_answer(
    here: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate_verb, "WATCH_SECONDS", 0.05)
    monkeypatch.setenv("KUBECONFIG", str(here.config))
    await store(here, observed(hours=2))
    refusals = [status(503, "ServiceUnavailable", "try again")]

    async def refuse(_: web.Request) -> web.Response | None:
        return refusals.pop() if refusals else None

    here.api.faults.append(on("gangctl-node-records", refuse))
    watching = asyncio.create_task(asyncio.to_thread(main, [*GATE, "--watch", "-o", "json", "-n", "research"]))
    await until_async("it has looked a few times", lambda: here.api.count("GET", MAP["name"]) > 4)
    assert not watching.done()
    await store(here, observed())
    assert await watching == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["outcome"] == "Pass", "the only document"
    assert "the next look is in" in err


async def test_the_gate_compares_gangs_that_do_the_same_work(here: Shell) -> None:
    await store(here, observed())
    for at in range(12):
        name, share = f"bench{at}", 50.0 if at < 4 else 90.0 + at
        made = job(name, spent={"training": share, "recovery": 10.0})
        made["metadata"] |= {"labels": {"work": "bench"}, "creationTimestamp": rfc3339(time.time() - 60)}
        await here.api.put("gangjobs", made)
        worker = pod("worker-0", gang=name)
        worker["metadata"] |= {"name": f"{name}-worker-0-0", "uid": f"pod-{name}"}
        await here.api.put("pods", {**worker, "spec": {**worker["spec"], "nodeName": f"n{at}"}})
    done = await here.gangctl(*GATE, "--gangs", "work=bench", "-n", "research")
    assert (done.code, "FAIL: goodput of the candidates" in done.out) == (1, True)
    assert "0.833 (4 gangs)" in done.out
    done = await here.gangctl(*GATE, "--gangs", "work=other", "-n", "research", "-o", "json")
    assert (done.code, json.loads(done.out)["candidate"]["gangs"]) == (0, {})
    done = await here.gangctl(*GATE, "--gangs", "work=other", "--slo", "goodput=0.9", "-n", "research")
    assert (done.code, "a change of goodput could go unnoticed" in done.out) == (3, True)
    done = await here.gangctl(*GATE, "--slo", "step-time=2", "-n", "research")
    assert (done.code, "select those that do the same work, with --gangs" in done.err) == (2, True)


async def test_the_gate_compares_gangs_by_the_images_of_their_workers(here: Shell) -> None:
    for at in range(9):
        name, share, tag = f"bench{at}", *((50.0, "v2") if at < 4 else (90.0 + at, "v1"))
        made = job(name, spent={"training": share, "recovery": 10.0})
        made["metadata"] |= {"labels": {"work": "bench"}, "creationTimestamp": rfc3339(time.time() - 60)}
        await here.api.put("gangjobs", made)
        one = pod("worker-0", gang=name)
        one["metadata"] |= {"name": f"{name}-worker-0-0", "uid": f"pod-{name}"}
        one["metadata"]["annotations"] = {"gangctl.io/worker-container": "main"}
        one["spec"]["containers"] = [{"name": "main", "image": f"hub.example/bench:{tag}"}, {"name": "x", "image": "x"}]
        one["status"]["containerStatuses"][0]["imageID"] = f"hub.example/bench@sha256:{tag * 4}"
        await here.api.put("pods", one)
    for new, old in (("bench:v2", "bench:v1"), ("sha256:v2v2*", "sha256:v1v1v1v1")):
        images = ("gate", "--candidate-image", new, "--baseline-image", old, "-n", "research")
        done = await here.gangctl(*images, "--gangs", "work=bench")
        assert (done.code, "FAIL: goodput of the candidates" in done.out) == (1, True), done.err
        assert "candidate: 4 gangs observed" in done.out
    done = await here.gangctl("gate", "--candidate-image", old, "--baseline-image", new, "--gangs", "work=bench")
    assert (done.code, "PASS: the candidates' gangs do no worse" in done.out) == (0, True)
    done = await here.gangctl(*images, "--gangs", "work=other")
    assert (done.code, "NOT ENOUGH DATA" in done.out) == (3, True)
    for wrong in (
        (),
        ("--gangs", "a=b", "--candidate", "pool=canary"),
        ("--gangs", "a=b", "--slo", "faults-per-node-day=1"),
    ):
        done = await here.gangctl(*images, *wrong)
        assert done.code == 2, wrong
