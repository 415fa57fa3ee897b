"""The suite catches deliberate mistakes. Every test run tries one, ``make mutants`` all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.faults import FAULTS
from tests.simulation.mutant import MUTANTS, Mutant
from tests.simulation.mutant_places import ROOT, Change, MisplacedError, Sources, node_at, places
from tests.simulation.mutant_reach import Reach
from tests.simulation.mutant_trials import asked
from tests.simulation.run_mutants import BEGIN, END, RESULTS

pytestmark = pytest.mark.timeout(900)  # A minute of work; other work on the machine may multiply it.
ONE = "the barrier is short by one pod"
LIVES = [f"simulation (life {seed})" for seed in range(20)]
SOURCES = Sources.of_this_tree()
HALVES = Sources(
    {"halves.py": "class Half:\n    def of(self, n):\n        return n and n / 2\n\ndef of(n): return n + 1"}
)


@cache
def mutated(sources: Sources, mutant: Mutant) -> tuple[str, ...]:
    """The places that a mutant changes, as they are then."""
    trees, texts = sources.mutated(mutant.changes), []
    for change in mutant.changes:
        changed = [
            ast.dump(node_at(tree, position))
            for path, tree in trees.items()
            for name, position in places(tree)
            if change.place in {name, f"{Path(path).stem}.{name}"}
            and ast.dump(node_at(tree, position)) != ast.dump(node_at(sources.tree(path), position))
        ]
        texts += changed
    return tuple(texts)


def test_each_mutant_has_its_place_and_is_another_one() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutated(SOURCES, mutant) for mutant in MUTANTS), "each changes something"
    assert len({mutated(SOURCES, mutant) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.nightly
def test_each_mutant_survives_when_files_are_formatted_and_merged() -> None:
    """All that is left of the files of a folder is one file, without comments, and with other line breaks."""
    touched = {path for mutant in MUTANTS for path in SOURCES.mutated(mutant.changes)}
    merged: dict[str, list[str]] = {}
    for path in sorted(touched):
        merged.setdefault(str(Path(path).parent), []).append(ast.unparse(SOURCES.tree(path)))
    elsewhere = Sources({f"moved/{at}.py": "\n".join(texts) for at, texts in enumerate(merged.values())})
    assert not set(elsewhere.texts.values()) & set(SOURCES.texts.values())
    for mutant in MUTANTS:
        assert mutated(elsewhere, mutant) == mutated(SOURCES, mutant)


@pytest.mark.parametrize(
    ("place", "old", "new", "becomes"),
    [
        ("Half.of", "n / 2", "n", "return n and n"),
        ("Half.of", "n and n / 2", "n", "return n"),
        ("Half.of", "return n and n / 2", "n += 1\nreturn n", "n += 1\n        return n"),
        ("Half.of", "return n and n / 2", "", "pass"),
    ],
)
def test_a_mutant_replaces_expressions_and_statements(place: str, old: str, new: str, becomes: str) -> None:
    [tree] = HALVES.mutated((Change(place, old, new),)).values()
    assert ast.unparse(tree).startswith(f"class Half:\n\n    def of(self, n):\n        {becomes}\n")


def test_a_mutant_replaces_operands_and_arguments() -> None:
    sources = Sources({"a.py": "def f(x): return g(a=x and y and z, b=2)"})
    operands = Change("f", "y and z", "w")
    for other, call in (
        (Change("f", "b=2", ""), "g(a=x and w)"),
        (Change("f", "b=2", "b=3"), "g(a=x and w, b=3)"),
        (Change("f", "x and w", "v"), "g(a=v, b=2)"),
    ):
        [tree] = sources.mutated((operands, other)).values()
        assert ast.unparse(tree) == f"def f(x):\n    return {call}"


@pytest.mark.parametrize(("place", "old"), [("of", "n / 2"), ("Half.of", "n"), ("Half.off", "n / 2")])
def test_a_mutant_needs_its_place_exactly_once(place: str, old: str) -> None:
    with pytest.raises(MisplacedError, match=r"has this [023] times"):
        HALVES.mutated((Change(place, old, "0"),))


def test_a_module_says_which_of_two_places_is_meant() -> None:
    twice = Sources({"x/one.py": "def f(): return 1", "x/two.py": "def f(): return 1"})
    with pytest.raises(MisplacedError, match="f has this 2 times: 1"):
        twice.mutated((Change("f", "1", "2"),))
    assert [*twice.mutated((Change("two.f", "1", "2"),))] == ["x/two.py"]


def test_a_new_mutant_may_be_seen_by_each_check_until_that_is_recorded_again() -> None:
    reach = Reach({"one": 1.0, "two": 1.0}, {"old": frozenset({"one"})})
    after = reach.with_check("two", 1.0, set(), {"old", "new"})
    assert after.reached == {"old": {"one"}, "new": {"one"}}


def test_the_simulation_catches_a_mutant() -> None:
    assert asked(ROOT, ONE, LIVES, {}).check in LIVES


@pytest.mark.nightly
def test_the_suite_passes_without_a_mutant() -> None:
    assert not asked(ROOT, "", LIVES, {}).check


def test_the_results_list_every_mutant() -> None:
    text = RESULTS.read_text()
    table = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    listed = [line.split(" | ")[0].removeprefix("| ") for line in table if line.startswith("| ")]
    assert [name for name in listed if name not in {"the mistake", "---"}] == [mutant.name for mutant in MUTANTS]
    assert f"{len(MUTANTS)} mutants, written by" in text


def test_the_docs_count_the_kinds_of_fault() -> None:
    assert f"{len(FAULTS)} kinds of fault" in (ROOT / "docs/correctness.md").read_text()
