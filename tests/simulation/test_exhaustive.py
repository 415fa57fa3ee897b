"""Every interleaving of a small gang with a few faults: all states are visited, and the invariants hold in each."""

from __future__ import annotations

import pytest

from tests.simulation.exhaustive import QUICK, Search, explore


@pytest.mark.parametrize("search", QUICK, ids=Search.name)
def test_all_states_are_visited_and_the_invariants_hold(search: Search, capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(search)
    with capsys.disabled():
        print(f"\n  {found.text()} ", end="")
    assert found.complete
    assert found.rests
