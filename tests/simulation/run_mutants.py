"""Show that the tests catch mistakes: ``python tests/simulation/run_mutants.py [--only WORD]``.

It applies each mutant of ``mutants.py`` to a copy of the sources, never to the work tree, and the suite must catch it.
A copy without a patch must pass. The exit code is 1 if a mutant survives, if a patch does not apply any more, or if the
suite objects to the sources as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.simulation import mutants_of_hub
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
COPIED = (
    "crds",
    "gangctl",
    "sidecar/gangsidecar",
    "tests/simulation",
    "tests/core",
    "tests/controller",
    "tests/cluster",
)
FILES = ("pyproject.toml", "tests/conftest.py", "tests/wait.py")
HUB_TESTS = (
    "tests/controller/test_hub_terms.py",
    "tests/controller/test_hub.py",
    "tests/controller/test_hub_connections.py",
    "tests/controller/test_hub_tls.py",
)
JOBS = 2
DOCS = ROOT / "docs/correctness.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
NOT_TRIED = "not tried yet"
NO_MUTATION = Mutant("(no mutation)", ())
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
    "-k",
    "not flood",
    *HUB_TESTS,
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


def main() -> int:
    """Judge all of them, print a line for each, and write the table of the docs if none was left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only mutants whose name has this in it")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    began = time.monotonic()
    with ThreadPoolExecutor(JOBS) as pool:
        results = []
        for result in pool.map(judge, [NO_MUTATION, *chosen]):
            print(row(result), flush=True)
            results.append(result)
    write_table(results[1:])
    survived = [result.name for result in results[1:] if not result.by]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants were caught in {time.monotonic() - began:.0f} s")
    if results[0].by:
        print(f"the sources as they are do not pass: {results[0].said}")
    for name in survived:
        print(f"not caught: {name}")
    return 1 if survived or results[0].by else 0


def judge(mutant: Mutant, arguments: Sequence[str] = ()) -> MutantResult:
    """Make the mutant in a copy and run the suite there. A patch that doesn't apply is caught by nothing."""
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
        if mutant in mutants_of_hub.MUTANTS:
            return _tested(mutant, copy, environment)
        more = ["--told"] if mutant.told else []
        ended = _python(copy, environment, *SUITE, *more, "--first", _caught_before(mutant), *arguments)
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no word"])[-1]
        return MutantResult(mutant.name, "", "", f"the suite crashed: {last}", 0.0)
    told = json.loads(ended.stdout.splitlines()[-1])
    return MutantResult(mutant.name, told["by"], told["after"], told["said"], told["seconds"])


def _tested(mutant: Mutant, copy: Path, environment: dict[str, str]) -> MutantResult:
    """The hub does I/O: its own tests, with real sockets, are to catch it."""
    began = time.monotonic()
    ended = _python(copy, environment, *TESTS)
    failed = [line.split("::")[-1] for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    name = failed[0].partition(" - ")[0].removeprefix("test_").replace("_", " ") if failed else ""
    by = "" if ended.returncode == 0 else "test of the hub"
    return MutantResult(mutant.name, by, name, ended.stdout[-100:], time.monotonic() - began)


def _python(copy: Path, environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


def _caught_before(mutant: Mutant) -> str:
    """What caught it last time is the likeliest to catch it again."""
    by, _, after = _row_before(mutant).partition(" (")
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


def write_table(results: Sequence[MutantResult]) -> None:
    """Write what caught each mutant into the docs, between the two markers. Who was left out keeps its row."""
    found = {result.name: caught(result) or "**nothing**" for result in results}
    rows = [f"| {one.name} | {found.get(one.name) or _row_before(one) or NOT_TRIED} |" for one in MUTANTS]
    told = sum(one.told for one in MUTANTS)
    head = [
        f"{len(MUTANTS)} mutants, written by `make mutants`. {told} of them change what people are told and nothing",
        "else; only for those the golden files of the scenarios are asked.",
        "",
        "| the mistake | what catches it |",
        "| --- | --- |",
    ]
    before, _, rest = DOCS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text("\n".join([before + BEGIN, "", *head, *rows, "", END + after]))


def _row_before(mutant: Mutant) -> str:
    """What the table says that caught it last time."""
    row = next((line for line in DOCS.read_text().splitlines() if line.startswith(f"| {mutant.name} | ")), "")
    return row.removesuffix(" |").rpartition(" | ")[2]


def caught(result: MutantResult) -> str:
    """Return what caught it and after how much; empty if nothing did."""
    return " ".join(filter(None, (result.by, f"({result.after})" if result.after else ""))) if result.by else ""


def row(result: MutantResult) -> str:
    """One line of the table."""
    return f"{result.name:58} {result.seconds:5.1f} s  {caught(result) or 'NOT CAUGHT':40} {result.said[:110]}"


if __name__ == "__main__":
    sys.exit(main())
