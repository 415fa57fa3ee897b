"""The suite catches deliberate mistakes. Every test run tries a few mutants, ``make mutants`` tries all of them."""

from __future__ import annotations

import pytest

from tests.simulation.faults import FAULTS
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.run_mutants import BEGIN, DOCS, END, NO_MUTATION, ROOT, judge

pytestmark = pytest.mark.timeout(900)  # A minute of work; other work on the machine may multiply it.
FEW = {
    "members are told before the status is stored",
    "the barrier is short by one pod",
    "the budget is charged twice",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_still_applies(mutant: Mutant) -> None:
    for patch in mutant.patches:
        assert (ROOT / patch.file).read_text().count(patch.old) == 1


def test_each_mutant_is_another_one() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    changed = {
        tuple((one.file, (ROOT / one.file).read_text().replace(one.old, one.new)) for one in mutant.patches)
        for mutant in MUTANTS
    }
    assert len(changed) == len(MUTANTS)


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name in FEW], ids=lambda mutant: mutant.name)
def test_the_simulation_catches_a_mutant(mutant: Mutant) -> None:
    assert judge(mutant, ["--short", "--lives", "60"]).by == "simulation"


def test_the_suite_passes_without_a_mutant() -> None:
    assert not judge(NO_MUTATION, ["--short", "--lives", "60"]).by


def test_the_docs_list_every_mutant_and_count_the_kinds_of_fault() -> None:
    text = DOCS.read_text()
    table = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    listed = [line.split(" | ")[0].removeprefix("| ") for line in table if line.startswith("| ")]
    assert [name for name in listed if name not in {"the mistake", "---"}] == [mutant.name for mutant in MUTANTS]
    assert f"{len(MUTANTS)} mutants, written by" in text
    assert f"{len(FAULTS)} kinds of fault" in text
