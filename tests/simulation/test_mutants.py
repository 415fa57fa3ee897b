"""The suite catches deliberate mistakes. Every test run tries a few mutants, ``make mutants`` tries all of them."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.run_mutants import NO_MUTATION, ROOT, judge

FEW = {
    "members are told before the status is stored",
    "the barrier is short by one pod",
    "the budget is charged twice",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_still_applies(mutant: Mutant) -> None:
    for patch in mutant.patches:
        assert (ROOT / patch.file).read_text().count(patch.old) == 1


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name in FEW], ids=lambda mutant: mutant.name)
def test_the_simulation_catches_a_mutant(mutant: Mutant) -> None:
    assert judge(mutant, ["--short", "--lives", "60"]).by == "simulation"


def test_the_suite_passes_without_a_mutant() -> None:
    assert not judge(NO_MUTATION, ["--short", "--lives", "60"]).by
