"""Pair checks against an oracle: all sets of bad nodes that explain the results."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable

from hypothesis import given
from hypothesis import strategies as st

from gangctl.core.policy.pairs import Nodes, Pair, Results, Verdict, joined, next_pairs, verdict

sizes = st.lists(st.integers(1, 5), min_size=3, max_size=7)
"""How many members each node has."""


def gang(of_nodes: Collection[int]) -> Nodes:
    names = [f"node-{at}" for at, size in enumerate(of_nodes) for _ in range(size)]
    return dict(enumerate(names))


def play(nodes: Nodes, bad: Collection[Hashable], missing: Collection[int] = ()) -> tuple[Verdict, Results, int]:
    """Run the pairs that are asked for until there are none: the verdict, all results, and the number of turns."""
    results: dict[Pair, bool | None] = {}
    for turn in itertools.count():
        if not (pairs := next_pairs(nodes, results)):
            return verdict(nodes, results), results, turn
        members = [member for pair in pairs for member in pair]
        assert len(members) == len(set(members)), "a member is in one pair at a time"
        for one, other in pairs:
            assert nodes[one] != nodes[other]
            assert (one, other) not in results
            assert (other, one) not in results
            heard = one not in missing and other not in missing
            results[one, other] = {nodes[one], nodes[other]}.isdisjoint(bad) if heard else None
    raise AssertionError


def explanations(nodes: Nodes, results: Results) -> list[frozenset[Hashable]]:
    """The oracle: each set of nodes that, if bad, gives these results."""
    names = set(nodes.values())
    sets = (frozenset(some) for size in range(len(names) + 1) for some in itertools.combinations(names, size))
    return [
        bad for bad in sets if all(result is {nodes[a], nodes[b]}.isdisjoint(bad) for (a, b), result in results.items())
    ]


def on_nodes(nodes: Nodes, members: Collection[int]) -> set[Hashable]:
    return {nodes[member] for member in members}


@given(sizes, st.data())
def test_a_single_bad_node_is_found(of_nodes: list[int], data: st.DataObject) -> None:
    nodes = gang(of_nodes)
    bad = data.draw(st.sampled_from(sorted(set(nodes.values()), key=str)))
    found, results, turns = play(nodes, {bad})
    assert on_nodes(nodes, found.bad) == {bad}
    tested = {member for pair in results for member in pair}
    assert set(found.bad) == {member for member in tested if nodes[member] == bad}
    assert turns <= 3


@given(sizes, st.data())
def test_only_nodes_that_must_be_bad_are_named(of_nodes: list[int], data: st.DataObject) -> None:
    nodes = gang(of_nodes)
    bad = data.draw(st.sets(st.sampled_from(sorted(set(nodes.values()), key=str))))
    found, results, _ = play(nodes, bad)
    certain = frozenset.intersection(*explanations(nodes, results))
    assert on_nodes(nodes, found.bad) <= certain <= bad
    for pair, passed in results.items():
        assert passed or set(pair) & {*found.bad, *found.unsure}, "a failed pair is explained, or its members unsure"


@given(sizes)
def test_a_healthy_gang_takes_one_round(of_nodes: list[int]) -> None:
    nodes = gang(of_nodes)
    found, results, turns = play(nodes, ())
    assert found.bad == found.unsure == ()
    assert turns == 1 + (len(nodes) % 2 or max(of_nodes) * 2 > len(nodes))
    assert on_nodes(nodes, [member for pair in results for member in pair]) == set(nodes.values())


@given(sizes, st.data())
def test_a_missing_result_accuses_no_member(of_nodes: list[int], data: st.DataObject) -> None:
    nodes = gang(of_nodes)
    missing = data.draw(st.sets(st.sampled_from(sorted(nodes))))
    bad = data.draw(st.sets(st.sampled_from(sorted(set(nodes.values()), key=str))))
    found, results, _ = play(nodes, bad, missing)
    assert on_nodes(nodes, found.bad) <= bad
    assert missing.isdisjoint(found.bad) or not missing.isdisjoint(found.untested) or not results


def test_two_nodes_can_not_be_told_apart() -> None:
    found, _, turns = play(gang([2, 2]), {"node-1"})
    assert (found.bad, found.unsure) == ((), (0, 1, 2, 3))
    assert turns == 2


def test_one_node_has_no_pair() -> None:
    assert play(gang([3]), ()) == (Verdict(untested=(0, 1, 2)), {}, 0)
    assert play({}, ()) == (Verdict(), {}, 0)


def test_a_connection_that_fails_alone_names_neither_end() -> None:
    nodes = gang([1, 1, 1, 1])
    results: dict[Pair, bool | None] = {}
    while pairs := next_pairs(nodes, results):
        results.update({pair: pair != (0, 2) for pair in pairs})
    assert verdict(nodes, results) == Verdict(unsure=(0, 2))


def test_a_pair_fails_if_one_end_says_so() -> None:
    assert joined((None, False)) is False
    assert joined((True, False)) is False
    assert joined((True, True)) is True
    assert joined((True, None)) is None
