"""Which checks can see which mutant: those that have reached its place, recorded in ``mutants/reached.json``.

``make mutants RECORD=1`` records it: it runs each check once, in a copy of the sources that notes when a place of a
mutant is reached. A place belongs to its mutant by name, and not by file or line.
"""

from __future__ import annotations

import ast
import json
import math
import os
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutant import LISTS, MUTANTS, Mutant
from tests.simulation.mutant_places import Slot, Sources, find, node_at, parsed
from tests.simulation.mutant_suite import CALLED, SCENARIOS, Check, checks, first_objection
from tests.simulation.mutant_trials import copied, started

RECORD = LISTS / "reached.json"
RECORDED_LIVES = 40
"""The first ones. Any life may reach what one of these has reached."""
UNHURRIED_SECONDS = 1000.0
NOTED = "reached.txt"
"""A file in the copy: a line for each place that was reached since it was emptied."""
NOTES = """\
def _gangctl_reached(name):
    import os, sys
    known = sys.__dict__.setdefault("gangctl_reached", set())
    if name not in known:
        known.add(name)
        file = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(file, (name + "\\n").encode())
        os.close(file)
"""


@dataclass(frozen=True)
class Reach:
    """What was recorded."""

    seconds: Mapping[str, float]
    """Name of a check -> what it takes."""
    reached: Mapping[str, frozenset[str]]
    """Name of a mutant -> names of the checks that reach it."""

    @classmethod
    def recorded(cls) -> Reach:
        """Read it. Nothing is known if there is no record."""
        if not RECORD.exists():
            return cls({}, {})
        stored = json.loads(RECORD.read_text())
        names = list(stored["seconds"])
        bits = {mutant: int(mask, 16) for mutant, mask in stored["reached"].items()}
        return cls(
            stored["seconds"],
            {
                mutant: frozenset(name for at, name in enumerate(names) if mask >> at & 1)
                for mutant, mask in bits.items()
            },
        )

    def write(self) -> None:
        """Write it: of each mutant, a hexadecimal number with a bit for each check, the first check has the lowest."""
        names = list(self.seconds)
        masks = {
            mutant: f"{sum(1 << at for at, name in enumerate(names) if name in found):x}"
            for mutant, found in self.reached.items()
        }
        stored = {"seconds": {name: round(seconds, 2) for name, seconds in self.seconds.items()}, "reached": masks}
        RECORD.write_text(json.dumps(stored, indent=1) + "\n")

    def with_check(self, check: str, seconds: float, sees: AbstractSet[str], placed: AbstractSet[str]) -> Reach:
        """Return the record in which a check reaches these mutants, of those whose places are known.

        A mutant that is new is one that all checks recorded before may reach, until they are recorded again.
        """
        reached = {name: self.reached.get(name, frozenset(self.seconds)) - {check} for name in placed}
        reached |= {name: reached[name] | {check} for name in sees}
        return Reach({**self.seconds, check: seconds}, reached)

    def can_see(self, mutant: Mutant, before: str, known: Mapping[str, Check]) -> list[Check]:
        """Return the checks to run for a mutant: what caught it last time, then what reaches it, the cheapest first.

        A check or a mutant of which nothing is recorded is one that any mutant, or any check, may reach.

        Args:
            mutant: the one to catch.
            before: the name of the check that caught it last time.
            known: all checks by name.
        """
        seen_by = self.reached.get(mutant.name, frozenset(known))
        lives = any(name.startswith("simulation") for name in seen_by)
        found = [
            check
            for name, check in known.items()
            if (name in seen_by or name not in self.seconds)
            and (check.kind != "simulation" or lives)
            and (check.kind != SCENARIOS or mutant.told)
        ]
        first = [known[before]] if before in known else []
        others = dict.fromkeys(("simulation", *CALLED), 1.0)  # What starts processes or searches comes last.
        rest = sorted(found, key=lambda check: self.seconds.get(check.name, others.get(check.kind, math.inf)))
        return [*first, *(check for check in rest if check not in first)]


def record(only: str) -> None:
    """Run each check that has this in its name, see what it reaches, and write that at once."""
    trees = probed(Sources.of_this_tree())
    placed = set().union(*(mutants_in(tree) for tree in trees.values()))
    reach = Reach.recorded()
    with copied(trees) as copy:
        for path, tree in trees.items():
            notes = ast.parse(NOTES.format(path=str(copy / NOTED))).body
            after = next(at for at, node in enumerate(tree.body) if not _is_preamble(node))
            tree.body[after:after] = notes
            (copy / path).write_text(ast.unparse(tree))
        with started(copy, "tests.simulation.mutant_reach", only) as lines:
            for number, line in enumerate(lines, 1):
                check, seconds, said, places = json.loads(line)
                print(f"{number:3} {seconds:6.1f} s  {check}: reaches {len(places)} {said}", flush=True)
                reach = reach.with_check(check, seconds, placed.intersection(places), placed)
                reach.write()


def probed(sources: Sources) -> dict[str, ast.Module]:
    """Return the files that hold mutants, with a call that notes it before each statement that a mutant changes."""
    trees: dict[str, ast.Module] = {}
    marks: list[tuple[list[ast.stmt], ast.stmt, str]] = []
    for mutant in MUTANTS:
        for change in mutant.changes:
            path, position = sources.located(change, {})
            tree = trees.setdefault(path, ast.parse(sources.texts[path]))
            [slot] = find(node_at(tree, position), parsed(change.old, change.new)[0])
            if (where := _statement(tree, slot)) is not None:
                marks.append((*where, mutant.name))
    for block, statement, name in marks:
        block.insert(block.index(statement), ast.parse(f"_gangctl_reached({name!r})").body[0])
    return {path: ast.fix_missing_locations(tree) for path, tree in trees.items()}


def mutants_in(tree: ast.Module) -> set[str]:
    """Names of the mutants whose places are noted in it."""
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for called in [node.func]
        if isinstance(called, ast.Name) and called.id == "_gangctl_reached"
        for argument in node.args
        if isinstance(argument, ast.Constant)
        for name in [str(argument.value)]
    }


def _statement(tree: ast.Module, slot: Slot) -> tuple[list[ast.stmt], ast.stmt] | None:
    """The innermost statement that holds the slot, and its block; None outside functions."""
    inside = False
    found: tuple[list[ast.stmt], ast.stmt] | None = None
    node: ast.AST | None = tree
    while node is not None:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        deeper = None
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            value = getattr(node, field, None)
            block = value if isinstance(value, list) else []
            for at, statement in enumerate(block):
                is_it = node is slot.holder and field == slot.field and at == slot.first
                if is_it or any(one is slot.holder for one in ast.walk(statement)):
                    deeper = statement
                    if inside and isinstance(statement, ast.stmt):
                        found = (block, statement)
        node = deeper
    return found


def _is_preamble(node: ast.stmt) -> bool:
    """A docstring, or an import from the future."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def main() -> None:
    """Run each check in a child of its own, and print what it has reached. This runs in the copy."""
    notes, took = Path.cwd() / NOTED, Path.cwd() / "took.json"
    only = sys.argv[1]
    for check in checks().values():
        number = int(check.which.split()[1]) if check.kind == "simulation" else 0
        if only not in check.name or number >= RECORDED_LIVES:
            continue
        notes.write_text("")
        vars(sys).pop("gangctl_reached", None)
        child = os.fork()
        if not child:
            found = first_objection([check], {check.name: UNHURRIED_SECONDS})
            took.write_text(json.dumps([found.seconds, found.said]))
            os._exit(0)
        os.waitpid(child, 0)
        reached = sorted(set(notes.read_text().splitlines()))
        print(json.dumps([check.name, *json.loads(took.read_text()), reached]), flush=True)


if __name__ == "__main__":
    main()
