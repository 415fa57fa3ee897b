"""Every interleaving of a small gang with a few faults: all states are visited, and the invariants hold in each."""

from __future__ import annotations

import pytest

from gangctl.core.facts import barrier
from tests.simulation.exhaustive import MANY, QUICK, Search, explore


@pytest.mark.parametrize("search", QUICK, ids=Search.name)
def test_the_invariants_hold_in_every_state(search: Search, capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(search)
    with capsys.disabled():
        print(f"\n  {found.text()} ", end="")
    assert found.complete
    assert found.rests


@pytest.mark.parametrize("search", MANY, ids=Search.name)
def test_the_invariants_hold_in_every_state_when_awaited_pods_are_not_named(
    search: Search, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier, "MAX_AWAITED", 0)
    found = explore(search)
    with capsys.disabled():
        print(f"\n  {found.text()} ", end="")
    assert found.complete
    assert found.rests
