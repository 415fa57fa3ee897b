"""Show that the tests catch mistakes: ``python tests/simulation/run_mutants.py [--only WORDS] [--jobs 2]``.

It applies each mutant of ``mutants.py`` to a copy of the sources, never to the work tree, and the suite must catch it.
What caught it last time comes first. Each result is written into the table of the docs at once, so a run may be cut
short. In a run of all of them, a copy without a patch must pass. The exit code is 1 if a mutant survives, if a patch
does not apply any more, or if the suite objects to the sources as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.simulation import mutants_of_hub, mutants_of_warm_starts
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
COPIED = (
    "crds",
    "gangctl",
    "sidecar/gangsidecar",
    "tests/simulation",
    "tests/core",
    "tests/sidecar/machine",
    "tests/controller",
    "tests/cluster",
    "tests/sidecar/supervisor",
)
FILES = ("pyproject.toml", "tests/conftest.py", "tests/wait.py", "tests/ports.py", "tests/pythons.py")
HUB_TESTS = (
    "tests/controller/test_hub_terms.py",
    "tests/controller/test_hub.py",
    "tests/controller/test_hub_connections.py",
    "tests/controller/test_hub_tls.py",
    "tests/controller/test_turns.py",
    "tests/controller/test_shares.py",
    "tests/controller/test_intake.py",
)
WARM_TESTS = (
    "tests/sidecar/supervisor/test_warm_start_memory.py",
    "tests/sidecar/supervisor/test_warm_start_imports.py",
    "tests/sidecar/supervisor/test_warm_start.py",
    "tests/sidecar/supervisor/test_warm_start_obstacles.py",
)
DOCS = ROOT / "docs/correctness.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
NO_TEST_RAN = 5
"""The exit code of pytest."""
NOT_TRIED = "not tried yet"
NOTHING = "**nothing**"
NO_MUTATION = Mutant("(no mutation)", ())
NO_MUTATION_OF_HUB = Mutant("(no mutation, tests of the hub)", ())
NO_MUTATION_OF_WARM_STARTS = Mutant("(no mutation, tests of warm starts)", ())
WITH_TESTS = {
    "test of the hub": ({NO_MUTATION_OF_HUB, *mutants_of_hub.MUTANTS}, HUB_TESTS, "not flood"),
    "test of the supervisor": (
        {NO_MUTATION_OF_WARM_STARTS, *mutants_of_warm_starts.MUTANTS},
        WARM_TESTS,
        "not any_moment",
    ),
}
"""What does I/O has its own tests, with real sockets and processes: mutants, files, and which of their tests."""
SUITE = ("-m", "tests.simulation.mutant_suite")
TESTS = (
    "-m",
    "pytest",
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "--no-header",
    "--tb=line",
)


class StalePatchError(Exception):
    """A patch's text isn't there exactly once: the source has moved on, and the mutant must be made anew."""


@dataclass(frozen=True)
class MutantResult:
    """What became of one mutant."""

    name: str
    by: str
    after: str
    said: str
    seconds: float
    """Of CPU time; where tests wait for sockets or processes, of the clock."""


class Row(NamedTuple):
    """What the table of the docs says of a mutant."""

    caught: str = NOT_TRIED
    seconds: str = ""


def main() -> int:
    """Judge them, print a line for each, and write the table of the docs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"only those with this in their row: {NOT_TRIED}, search, a pod")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    arguments = parser.parse_args()
    rows = rows_before()
    chosen = [one for one in MUTANTS if arguments.only in f"{one.name} | {rows.get(one.name, Row()).caught}"]
    all_of_it = [] if arguments.only else [NO_MUTATION, NO_MUTATION_OF_HUB, NO_MUTATION_OF_WARM_STARTS]
    began, bad = time.monotonic(), []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for number, result in enumerate(pool.map(judge, [*all_of_it, *chosen]), 1 - len(all_of_it)):
            print(f"{number:3}/{len(chosen)} {line(result)}", flush=True)
            if number < 1:
                bad += [f"the sources as they are do not pass: {result.said}"] if result.by else []
                continue
            rows[result.name] = Row(caught(result) or NOTHING, f"{result.seconds:.0f}")
            write_table(rows)
            bad += [] if result.by else [f"not caught: {result.name}"]
    print("\n".join([*bad, f"{len(chosen)} mutants were tried in {time.monotonic() - began:.0f} s"]))
    return 1 if bad else 0


def judge(mutant: Mutant, arguments: Sequence[str] = ()) -> MutantResult:
    """Make the mutant in a copy and run the suite there. A patch that doesn't apply is caught by nothing."""
    before = rows_before().get(mutant.name, Row()).caught
    with tempfile.TemporaryDirectory(prefix="gangctl-mutant-") as directory:
        copy = Path(directory)
        for part in COPIED:
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, copy / name)
        try:
            make(mutant, copy)
        except StalePatchError as error:
            return MutantResult(
                mutant.name, "", "the patch does not apply any more", str(error).replace("\n", " "), 0.0
            )
        environment = {
            **os.environ,
            "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'sidecar'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for kind, (mutants, _, _) in WITH_TESTS.items():
            if mutant in mutants:
                return _tested(mutant, kind, copy, environment, before)
        more = ["--told"] if mutant.told else []
        ended = _python(copy, environment, *SUITE, *more, "--first", _first(before), *arguments)
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no word"])[-1]
        return MutantResult(mutant.name, "", "", f"the suite crashed: {last}", 0.0)
    told = json.loads(ended.stdout.splitlines()[-1])
    if told["said"].startswith("NameError"):
        return MutantResult(mutant.name, "", "", f"the patch is broken: {told['said']}", 0.0)
    return MutantResult(mutant.name, told["by"], told["after"], told["said"], told["seconds"])


def _tested(mutant: Mutant, kind: str, copy: Path, environment: dict[str, str], before: str) -> MutantResult:
    """Its own tests are to catch it."""
    began = time.monotonic()
    _, files, those = WITH_TESTS[kind]
    named = before.partition(" (")[2].removesuffix(")").partition("[")[0].replace(" ", "_")
    ended = _python(copy, environment, *TESTS, *files, "-k", f"{named} and {those}" if named else those)
    if named and ended.returncode in {0, NO_TEST_RAN}:
        ended = _python(copy, environment, *TESTS, *files, "-k", those)
    failed = [line.split("::")[-1] for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    after = failed[0].partition(" - ")[0].partition("[")[0].removeprefix("test_").replace("_", " ") if failed else ""
    by = "" if ended.returncode == 0 else kind
    return MutantResult(mutant.name, by, after, ended.stdout[-100:], time.monotonic() - began)


def _python(copy: Path, environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


def _first(before: str) -> str:
    """What caught it last time is the likeliest to catch it again."""
    by, _, after = before.partition(" (")
    return f"{by}={after.removesuffix(')')}"


def make(mutant: Mutant, copy: Path) -> None:
    """Apply the patches in the copy.

    Raises:
        StalePatchError: a text is not there exactly once.
    """
    for patch in mutant.patches:
        path = copy / patch.file
        text = path.read_text()
        if text.count(patch.old) != 1:
            raise StalePatchError(f"{mutant.name}: {patch.file} has this {text.count(patch.old)} times:\n{patch.old}")
        path.write_text(text.replace(patch.old, patch.new))


def rows_before() -> dict[str, Row]:
    """Name -> its row, as the table of the docs has it."""
    table = DOCS.read_text().partition(BEGIN)[2].partition(END)[0]
    return {name: Row(*rest) for name, *rest in re.findall(r"^\| (.+?) \| (.+?) \| (\d*) ?\|$", table, re.MULTILINE)}


def write_table(rows: Mapping[str, Row]) -> None:
    """Write what caught each mutant into the docs, between the two markers."""
    known = {one.name: rows.get(one.name, Row()) for one in MUTANTS}
    untried = sum(one.caught == NOT_TRIED for one in known.values())
    lasted = sum(int(one.seconds or 0) for one in known.values())
    told = sum(one.told for one in MUTANTS)
    head = [
        f"{len(MUTANTS)} mutants, written by `make mutants`; {untried} of them were not tried yet. {told} of them",
        "change what people are told and nothing else; only for those the golden files of the scenarios are asked. The",
        f"seconds, {lasted} in all, are CPU time (tests of the hub and of the supervisor: by the clock).",
        "",
        "| the mistake | what catches it | seconds |",
        "| --- | --- | ---: |",
    ]
    lines = [f"| {name} | {one.caught} | {one.seconds} |" for name, one in known.items()]
    before, _, rest = DOCS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text("\n".join([before + BEGIN, "", *head, *lines, "", END + after]))


def caught(result: MutantResult) -> str:
    """Return what caught it and after how much; empty if nothing did."""
    return " ".join(filter(None, (result.by, f"({result.after})" if result.after else ""))) if result.by else ""


def line(result: MutantResult) -> str:
    """One line of what is printed."""
    return f"{result.name:58} {result.seconds:5.1f} s  {caught(result) or 'NOT CAUGHT':40} {result.said[:110]}"


if __name__ == "__main__":
    sys.exit(main())
