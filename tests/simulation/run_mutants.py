"""Show that the tests catch mistakes: ``python tests/simulation/run_mutants.py [--only WORDS] [--jobs 2]``.

It puts each mutant into a process of its own, never into the work tree, and runs the checks that can see it: first what
caught it last time, then the cheapest. Each result is written into the table of RESULTS.md at once, so a run may be cut
short. In the end, what has caught a mutant must pass without one. The exit code is 1 if a mutant survives, if its place
isn't there any more, or if a check objects to the sources as they are.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from tests.simulation import mutant_reach
from tests.simulation.mutant import MUTANTS, Mutant
from tests.simulation.mutant_places import ROOT, MisplacedError, Sources
from tests.simulation.mutant_reach import Reach
from tests.simulation.mutant_suite import Check, Objection, checks
from tests.simulation.mutant_trials import tried

RESULTS = ROOT / "tests/simulation/RESULTS.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
NOT_TRIED = "not tried yet"
NOTHING = "**nothing**"
BROKEN = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError")
"""A mutant that fails so is no mistake that anyone would make; it must be made anew."""


class Row(NamedTuple):
    """What the table of RESULTS.md says of a mutant."""

    caught: str = NOT_TRIED
    seconds: str = ""


def main() -> int:
    """Judge them, print a line for each, and write the table of RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"only those with this in their row: {NOT_TRIED}, search, a pod")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument(
        "--anew", action="store_true", help="begin with the cheapest, not with what caught it last time"
    )
    parser.add_argument("--record", action="store_true", help="record what such checks reach, and try nothing")
    arguments = parser.parse_args()
    if arguments.record:
        mutant_reach.record(arguments.only)
        return 0
    rows, known, reach, sources = rows_before(), checks(), Reach.recorded(), Sources.of_this_tree()
    chosen = [one for one in MUTANTS if arguments.only in f"{one.name} | {rows.get(one.name, Row()).caught}"]
    assert sources.places  # Here, and not again in each process.
    began, bad, catchers = time.monotonic(), list[str](), dict[str, Check]()
    work = []
    for mutant in chosen:
        before = "" if arguments.anew else rows.get(mutant.name, Row()).caught
        work.append(partial(judge, mutant, reach.can_see(mutant, before, known), sources, reach.seconds))
    for number, (at, result) in enumerate(spread(work, arguments.jobs), 1):
        name = chosen[at].name
        print(f"{number:3}/{len(chosen)} {line(name, result)}", flush=True)
        rows[name] = Row(result.check or NOTHING, f"{result.seconds:.1f}")
        write_table(rows)
        if result.check:
            catchers[result.check] = known[result.check]
        else:
            bad.append(f"not caught: {name}: {result.said}")
    control = [partial(judge, Mutant("no mutant"), [check], sources, reach.seconds) for check in catchers.values()]
    bad += [f"without a mutant, {one.check} says: {one.said}" for _, one in spread(control, arguments.jobs) if one.said]
    print("\n".join([*bad, f"{len(chosen)} mutants were tried in {time.monotonic() - began:.0f} s"]))
    return 1 if bad else 0


def judge(mutant: Mutant, seen_by: Sequence[Check], sources: Sources, usual: Mapping[str, float]) -> Objection:
    """Make the mutant in this process and run the checks. One that can't be made is caught by nothing.

    Args:
        mutant: the one to catch.
        seen_by: the checks, in the order in which they are tried.
        sources: where it is put.
        usual: name of a check -> seconds that it takes.
    """
    try:
        found = tried(sources.mutated(mutant.changes), seen_by, usual)
    except MisplacedError as error:
        return Objection(said=str(error))
    if found.said.startswith(BROKEN):
        return Objection(said=f"the mutant is broken: {found.said}")
    return found


def spread(work: Sequence[Callable[[], Objection]], jobs: int) -> Iterator[tuple[int, Objection]]:
    """Do each piece of work in a process of its own, so many at a time. Returns their numbers and what they found."""
    fork, waiting, running = get_context("fork"), [*enumerate(work)][::-1], dict[Connection, int]()
    while waiting or running:
        while waiting and len(running) < jobs:
            at, piece = waiting.pop()
            ours, theirs = fork.Pipe(duplex=False)
            fork.Process(target=_send, args=(theirs, piece)).start()
            theirs.close()
            running[ours] = at
        for ended in wait([*running]):
            assert isinstance(ended, Connection)
            try:
                found = ended.recv()
            except EOFError:
                found = Objection(said="its process crashed")
            yield running.pop(ended), found


def _send(to: Connection, piece: Callable[[], Objection]) -> None:
    try:
        found = piece()
    except BaseException as error:  # noqa: BLE001 - what the process dies of belongs into the table
        found = Objection(said=f"its process crashed: {error!r}")
    to.send(found)
    to.close()


def rows_before() -> dict[str, Row]:
    """Name -> its row, as RESULTS.md has it."""
    table = RESULTS.read_text().partition(BEGIN)[2].partition(END)[0]
    return {name: Row(*rest) for name, *rest in re.findall(r"^\| (.+?) \| (.+?) \| ([\d.]*) ?\|$", table, re.MULTILINE)}


def write_table(rows: Mapping[str, Row]) -> None:
    """Write what caught each mutant into RESULTS.md, between the two markers."""
    known = {one.name: rows.get(one.name, Row()) for one in MUTANTS}
    untried = sum(one.caught == NOT_TRIED for one in known.values())
    lasted = sum(float(one.seconds or 0) for one in known.values())
    told = sum(one.told for one in MUTANTS)
    head = [
        f"{len(MUTANTS)} mutants, written by `make mutants`; {untried} of them were not tried yet. {told} of them",
        "change what people are told and nothing else; only for those the golden files of the scenarios are asked. The",
        f"seconds, {lasted:.0f} in all, are CPU time (tests of the hub and of the supervisor: by the clock).",
        "",
        "| the mistake | what catches it | seconds |",
        "| --- | --- | ---: |",
    ]
    lines = [f"| {name} | {one.caught} | {one.seconds} |" for name, one in known.items()]
    before, _, rest = RESULTS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    RESULTS.write_text("\n".join([before + BEGIN, "", *head, *lines, "", END + after]))


def line(name: str, result: Objection) -> str:
    """One line of what is printed."""
    return f"{name:58} {result.seconds:5.1f} s  {result.check or 'NOT CAUGHT':40} {result.said[:110]}"


if __name__ == "__main__":
    sys.exit(main())
