"""The suite has teeth: a few mistakes are made with every test run, all of them by ``make mutants``."""

from __future__ import annotations

import pytest

from tests.simulation.mistakes import MISTAKES, Mistake
from tests.simulation.mutants import NO_MISTAKE, ROOT, judge

FEW = {
    "members are told before the status is stored",
    "the barrier is short by one pod",
    "the budget is charged twice",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_mistake_can_still_be_made(mistake: Mistake) -> None:
    for patch in mistake.patches:
        assert (ROOT / patch.file).read_text().count(patch.old) == 1


@pytest.mark.parametrize("mistake", [one for one in MISTAKES if one.name in FEW], ids=lambda mistake: mistake.name)
def test_a_mistake_is_caught_by_the_simulation(mistake: Mistake) -> None:
    assert judge(mistake, ["--short", "--lives", "60"]).by == "simulation"


def test_sources_without_a_mistake_are_objected_to_by_nobody() -> None:
    assert not judge(NO_MISTAKE, ["--short", "--lives", "60"]).by
