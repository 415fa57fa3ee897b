"""Who holds whose copies."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gangclient.memory._keeping import Where, peers


def gang(nodes: list[int], processes: int) -> list[Where]:
    """So many members on each node, with so many ranks each."""
    places = [f"node-{at}" for at, members in enumerate(nodes) for _ in range(members)]
    return [
        Where(member * processes + local, f"worker-{member}", node)
        for member, node in enumerate(places)
        for local in range(processes)
    ]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(1, 3))
def test_every_copy_is_on_another_node(nodes: list[int], processes: int) -> None:
    where = {one.rank: one for one in gang(nodes, processes)}
    for rank, peer in peers(list(where.values())).items():
        assert peer is not None
        assert where[peer].node != where[rank].node


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 3))
def test_equal_nodes_hold_equally_many_copies(nodes: int, members: int, processes: int) -> None:
    held = Counter(peers(gang([members] * nodes, processes)).values())
    assert set(held.values()) == {1}
    assert len(held) == nodes * members * processes


@given(st.integers(2, 5), st.integers(1, 3))
def test_on_one_node_another_member_holds_the_copy(members: int, processes: int) -> None:
    where = {one.rank: one for one in gang([members], processes)}
    found = peers(list(where.values()))
    assert all(peer is not None and where[peer].member != where[rank].member for rank, peer in found.items())
    assert len(set(found.values())) == len(found)


def test_one_member_alone_has_no_copy() -> None:
    assert peers(gang([1], 2)) == {0: None, 1: None}
