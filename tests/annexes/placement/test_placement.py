"""Placement: strategies on small boards, the survey of a cluster, the verb, and that the simulation can be repeated."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.placement import CLASSES, year
from gangctl.annexes.placement.strategies import Board, Cost, Host, HostFault, Strategy, Unit, cost, replay
from gangctl.annexes.placement.survey import Report, report
from gangctl.api.gangjob import GangJob
from gangctl.api.names import pod_labels
from tests.cli.kube import Shell, shell
from tests.explain.why.clusters import GPU, cluster, node, pod, raw_pod

MIG = "nvidia.com/mig-1g.10gb"
HOSTS = [Host(f"n{at}", f"r{at // 2}", {GPU: Decimal(8)}) for at in range(4)]
HOSTNAME = "kubernetes.io/hostname"


def units(gang: str, pods: int, gpus: int, service: str = "") -> list[Unit]:
    return [Unit(f"{gang}-{at}", gang, {GPU: Decimal(gpus)}, service) for at in range(pods)]


def where(board: Board) -> dict[str, str]:
    return {name: host.name for name, (_, host) in board.placed.items()}


def test_pack_fills_a_node_then_its_rack_and_spread_takes_other_racks() -> None:
    packed, spread = Board(HOSTS), Board(HOSTS)
    assert packed.place(units("a", 3, 4), Strategy.PACK) == ()
    assert where(packed) == {"a-0": "n0", "a-1": "n0", "a-2": "n1"}
    assert spread.place(units("a", 3, 4), Strategy.SPREAD) == ()
    assert where(spread) == {"a-0": "n0", "a-1": "n2", "a-2": "n1"}
    assert (packed.stranded(GPU, 8), spread.stranded(GPU, 8)) == (4, 12)


def test_a_pod_without_room_is_left_and_one_that_goes_makes_room() -> None:
    board = Board(HOSTS[:1])
    first, second = units("a", 2, 5)
    assert board.place([first, second], Strategy.PACK) == (second,)
    board.remove(first.name)
    assert board.place([second], Strategy.SPREAD) == ()


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), max_size=8), st.sampled_from(Strategy))
def test_no_host_gets_more_than_it_has_room_for(gangs: list[tuple[int, int]], strategy: Strategy) -> None:
    board = Board(HOSTS)
    asked = [unit for at, (pods, gpus) in enumerate(gangs) for unit in units(f"g{at}", pods, gpus)]
    left = board.place(asked, strategy)
    for host in HOSTS:
        used = sum(unit.devices for unit, its in board.placed.values() if its is host)
        assert used == 8 - board.free(host, GPU) <= 8
        assert all(unit.devices > 8 - used for unit in left)
    assert len(board.placed) + len(left) == len(asked)


def test_a_rack_takes_a_packed_service_and_one_replica_of_a_spread_one() -> None:
    fault = HostFault(frozenset({"n0", "n1"}), whole=True)
    asked = [*units("a", 2, 1, "web"), *units("b", 2, 1, "web")]
    costs = {}
    for strategy in Strategy:
        board = Board(HOSTS)
        board.place(asked, strategy)
        costs[strategy] = cost(replay(board, [fault]), asked, {"a": 10.0, "b": 20.0})
    assert costs[Strategy.PACK] == Cost(stops=2, pods=4, several=2, outages=1, device_seconds=60.0)
    assert costs[Strategy.SPREAD] == Cost(stops=2, pods=2, several=0, outages=1, device_seconds=60.0)
    one_each = [*units("a", 1, 1, "web"), *units("b", 1, 1, "web")]
    board = Board(HOSTS)
    board.place(one_each, Strategy.SPREAD)
    assert cost(replay(board, [fault]), one_each, {"a": 10.0, "b": 20.0}).outages == 0


def test_a_fault_of_a_device_takes_one_pod_in_turn() -> None:
    board = Board(HOSTS)
    board.place([*units("a", 1, 1), *units("b", 1, 1)], Strategy.PACK)
    fault = HostFault(frozenset({"n0"}), whole=False)
    assert replay(board, [fault, fault, HostFault(frozenset({"n3"}), whole=False)]) == [["a"], ["b"], []]


def incident(attempt: int, node_name: str, time: float, *replaced: str) -> dict[str, Any]:
    """A lost node with the members that were there; it took ten seconds, eight of them for new pods."""
    at = f"2026-11-27T08:{int(time) // 60:02}:{int(time) % 60:02}Z"
    return {
        "attempt": attempt,
        "time": at,
        "cause": {"reason": "NodeLost", "member": replaced[0], "node": node_name, "level": "Pod", "time": at},
        "level": "Pod",
        "settled": True,
        "settledTime": at,
        "outcome": "Restarted",
        "milliseconds": {"detect": 1000, "replace": 8000, "barrier": 500, "start": 300, "firstStep": 200},
        "members": [{"member": one, "incarnation": 1, "part": "Replaced", "phase": "Replace"} for one in replaced],
    }


def gang(name: str, *incidents: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "m", "image": "i", "command": ["w"]}]}}
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name, "namespace": "lab", "uid": f"uid-{name}", "generation": 1},
        "spec": {"roles": [{"name": "worker", "replicas": 2, "template": template}], **spec},
        "status": {"phase": "Running", "attempt": 3, "incidents": list(incidents)},
    }


def member(of: str, at: int, gpus: int, on: str, **more: Any) -> dict[str, Any]:
    labels = pod_labels(of, f"uid-{of}", f"worker-{at}", 0)
    return raw_pod(f"{of}-{at}", gpus, on=on, metadata={"labels": labels}, **more)


def surveyed(nodes: list[Any], pods: list[Any], jobs: list[dict[str, Any]], key: str = HOSTNAME) -> Report:
    read = [pod(one["metadata"]["name"], 0, on=one["spec"].get("nodeName", ""), **_more(one)) for one in pods]
    waiting = [one for one in read if not one.node]
    return report(cluster(nodes, *(one for one in read if one.node)), waiting, [GangJob(**job) for job in jobs], key)


def _more(raw: dict[str, Any]) -> dict[str, Any]:
    spec = {name: value for name, value in raw["spec"].items() if name != "nodeName"}
    return {"metadata": raw["metadata"], **spec}


def test_devices_in_small_parts_are_stranded_and_a_pod_waits_for_them() -> None:
    nodes = [node("n1"), node("n2"), node("n3", cordoned=True)]
    pods = [member("a", 0, 5, "n1"), member("a", 1, 4, "n2"), member("b", 0, 6, "")]
    (use,) = surveyed(nodes, pods, [gang("a"), gang("b")]).resources
    assert (use.nodes, use.total, use.free, use.free_elsewhere) == (2, 16, 7, 8)
    assert (use.largest_pod, use.stranded, use.pods_waiting) == (6, 7, 1)


def test_each_mig_profile_is_a_resource_of_its_own() -> None:
    parts = {MIG: "7", "nvidia.com/mig-3g.40gb": "2"}
    nodes = [node("n1", gpus=0, allocatable=parts), node("n2", gpus=0, allocatable=parts)]
    asks = {"containers": [{"name": "m", "resources": {"limits": {MIG: "4"}}}]}
    pods = [member("a", 0, 0, "n1", **asks), member("a", 1, 0, "n2", **asks), member("b", 0, 0, "", **asks)]
    found = surveyed(nodes, pods, [gang("a"), gang("b")])
    uses = {use.resource: use for use in found.resources}
    assert (uses[MIG].total, uses[MIG].free, uses[MIG].stranded, uses[MIG].pods_waiting) == (14, 6, 6, 1)
    assert (uses["nvidia.com/mig-3g.40gb"].free_elsewhere, uses["nvidia.com/mig-3g.40gb"].largest_pod) == (4, 0)
    assert found.domains[0].devices == 4


def test_the_history_is_replayed_for_both_strategies() -> None:
    nodes = [node(f"n{at}", labels={"rack": f"r{at // 2}"}) for at in range(4)]
    pods = [member(of, at, 2, "n3") for of in "ab" for at in (0, 1)]
    lost = incident(2, "n0", 60, "worker-0", "worker-1")
    jobs = [
        gang("a", lost, replicaGroup={"name": "web"}, placement={"strategy": "Pack"}),
        gang("b", incident(2, "n0", 61, "worker-0"), replicaGroup={"name": "web"}),
    ]
    found = surveyed(nodes, pods, jobs, key="rack")
    assert [(one.name, one.nodes, one.gangs, one.pods, one.devices) for one in found.domains] == [("r1", 2, 2, 4, 8)]
    assert [(one.gang, one.strategy, one.nodes, one.most) for one in found.gangs] == [
        ("lab/a", "Pack", 1, 2),
        ("lab/b", "None", 1, 2),
    ]
    history = found.history
    assert (history.faults, history.several, history.replacements, history.replace_seconds) == (2, 1, 2, 16.0)
    was, packed, spread = found.alternatives
    assert was.cost == Cost(stops=2, pods=3, several=1, outages=1, device_seconds=80.0)
    assert packed.cost == Cost(stops=2, pods=4, several=2, outages=1, device_seconds=80.0)
    assert spread.cost == Cost(stops=1, pods=1, several=0, outages=0, device_seconds=40.0)
    assert (packed.stranded, spread.stranded, packed.pods_left) == (0, 0, 0)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        for at in range(2):
            amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "8"}
            status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            await one.api.put("nodes", {"metadata": {"name": f"n{at}"}, "spec": {}, "status": status})
        yield one


async def test_the_verb_prints_tables_and_json(here: Shell) -> None:
    await here.api.put("gangjobs", gang("a", incident(2, "n1", 60, "worker-0", "worker-1")))
    for at in (0, 1):
        await here.api.put("pods", member("a", at, 3, "n1"))
    done = await here.gangctl("placement", "-n", "lab")
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert [GPU, "2", "16", "10", "0", "3", "4", "0"] in lines
    assert ["n1", "1", "1", "2", "6"] in lines
    assert ["as", "it", "was", "1", "2", "1", "0", "0.02", "4", "0"] in lines
    assert done.out.endswith("1 of several members of a gang at once; gangs waited 8 s for new pods in 1 incident\n")
    done = await here.gangctl("placement", "-n", "lab", "-o", "json")
    document = json.loads(done.out)
    assert (document["kind"], document["domainLabel"]) == ("Placement", HOSTNAME)
    assert document["resources"][0]["stranded"] == 4
    assert document["alternatives"][0]["cost"]["deviceSeconds"] == 60.0
    assert document["history"]["since"] == "2026-11-27T08:01:00.000000Z"


async def test_an_empty_cluster_has_nothing_to_show(here: Shell) -> None:
    done = await here.gangctl("placement", "-n", "lab")
    assert done.code == 0
    assert done.out.endswith("no gang has had an incident\n")
    assert "PLACED" not in done.out


def test_the_simulation_can_be_repeated() -> None:
    training, serving = CLASSES
    assert str(year(training, Strategy.PACK, 3)) == str(year(training, Strategy.PACK, 3))
    packed, spread = (year(serving, strategy, 20) for strategy in Strategy)
    assert packed.free == spread.free  # All gangs had room.
    assert packed.stranded < spread.stranded
