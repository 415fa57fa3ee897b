"""What holds in whatever cluster: no pod fits where a filter refuses it, and moves make the room that they say."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangctl.explain.why.filters import neighbours, refusals
from gangctl.explain.why.walk import moves, pack, scheduler_message, walk, with_pod, without_pod
from gangctl.explain.why.world import Inventory
from gangctl.kubernetes.objects import Node, WholePod
from tests.effort import examples
from tests.explain.why.clusters import GPU, cluster, node, pod

CALM = examples(300)
KEYS = ("gpu", "spot")
TAINTS = st.lists(
    st.builds(lambda key: {"key": key, "value": "", "effect": "NoSchedule"}, st.sampled_from(KEYS)), max_size=2
)
POOLS = st.sampled_from(["x", "y"])


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    return [
        node(
            f"node-{at}",
            draw(st.integers(0, 8)),
            cordoned=draw(st.booleans()) and draw(st.booleans()),
            taints=draw(TAINTS) if draw(st.booleans()) else [],
            labels={"pool": draw(POOLS)},
            allocatable={"cpu": str(draw(st.integers(1, 16)))},
        )
        for at in range(draw(st.integers(0, 5)))
    ]


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "") -> WholePod:
    gang = draw(st.sampled_from(["p", "q"]))
    spec: dict[str, Any] = {"metadata": {"labels": {"gang": gang}}}
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in draw(st.sets(st.sampled_from(KEYS)))]
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"pool": draw(POOLS)}
    if draw(st.integers(0, 3)) == 0:
        term = {"labelSelector": {"matchLabels": {"gang": gang}}, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    requests = {GPU: str(draw(st.integers(0, 4))), "cpu": f"{draw(st.integers(0, 4000))}m"}
    spec["containers"] = [{"name": "m", "resources": {"requests": requests}}]
    return pod(name, on=on, **spec)


@st.composite
def clusters(draw: st.DrawFn) -> Inventory:
    found = draw(nodes())
    names = [one.name for one in found]
    there = (
        [draw(pods(f"there-{at}", draw(st.sampled_from(names)))) for at in range(draw(st.integers(0, 8)))]
        if names
        else []
    )
    return cluster(found, *there)


def may_be(one: WholePod, on: Node, there: tuple[WholePod, ...]) -> bool:
    """The rules once more, as plainly as can be: what the documentation of Kubernetes says."""
    tolerated = {toleration["key"] for toleration in one.tolerations}
    if on.cordoned or any(taint.key not in tolerated for taint in on.taints):
        return False
    if any(on.labels.get(key) != value for key, value in one.node_selector.items()):
        return False
    for resource, needs in one.requests.items():
        used = sum((other.requests.get(resource, Decimal(0)) for other in there), Decimal(0))
        if used + needs > on.allocatable.get(resource, Decimal(0)):
            return False
    same = [other for other in there if other.labels["gang"] == one.labels["gang"]]
    return not (same and (one.apart or any(other.apart for other in same)))


@CALM
@given(st.data())
def test_a_pod_fits_where_the_rules_let_it_and_nowhere_else(data: st.DataObject) -> None:
    world, one = data.draw(clusters()), data.draw(pods("waits"))
    answers = walk(one, world)
    fits = {answer.node.name for answer in answers if not answer.refusals}
    assert fits == {on.name for on in world.nodes if may_be(one, on, world.pods.get(on.name, ()))}
    assert scheduler_message(answers).startswith(f"{len(fits)}/{len(world.nodes)} nodes are available")


@CALM
@given(st.data())
def test_pods_that_are_packed_fit_one_after_the_other_and_those_left_fit_nowhere(data: st.DataObject) -> None:
    world = data.draw(clusters())
    waiting = [data.draw(pods(f"waits-{at}")) for at in range(data.draw(st.integers(1, 4)))]
    packing = pack(waiting, world)
    assert len(packing.placed) + len(packing.left) == len(waiting)
    by_name = {on.name: on for on in world.nodes}
    for one, name in packing.placed:
        assert may_be(one, by_name[name], world.pods.get(name, ()))
        world = with_pod(world, one, name)
    assert world == packing.after
    assert not [one for one in packing.left for on in world.nodes if may_be(one, on, world.pods.get(on.name, ()))]


@CALM
@given(st.data())
def test_after_the_moves_the_pod_fits_and_so_does_each_that_moved(data: st.DataObject) -> None:
    world, one = data.draw(clusters()), data.draw(pods("waits"))
    answers = walk(one, world)
    found = moves(one, answers, world, frozenset())
    if found is None:
        return
    everyone = {each.full_name: each for there in world.pods.values() for each in there}
    by_name = {on.name: on for on in world.nodes}
    for move in found.moves:
        mover = everyone[move.pod]
        assert mover.node == found.node != move.to
        world = without_pod(world, mover)
        assert may_be(mover, by_name[move.to], world.pods.get(move.to, ()))
        world = with_pod(world, replace(mover, node=""), move.to)
    assert may_be(one, by_name[found.node], world.pods.get(found.node, ()))
    assert not refusals(one, by_name[found.node], world, neighbours(one, world))
