"""Show that the tests have teeth: ``python tests/simulation/mutants.py [--only WORD]``.

Each mistake of ``mistakes.py`` is made in a copy of the sources, never in the work tree, and the suite must catch it. A
copy without a mistake must pass. The exit code is 1 if a mistake survives, if a patch doesn't apply any more, or if the
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

from tests.simulation.mistakes import MISTAKES, Mistake

ROOT = Path(__file__).parents[2]
COPIED = ("gangctl", "sidecar/gangsidecar", "tests/simulation", "tests/core")
FILES = ("pyproject.toml", "tests/conftest.py")
JOBS = 2
NO_MISTAKE = Mistake("(no mistake)", ())


class StalePatchError(Exception):
    """A patch's text isn't there exactly once: the source has moved on, and the mistake must be made anew."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mistake."""

    name: str
    by: str
    after: str
    said: str
    seconds: float


def main() -> int:
    """Judge all of them and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only mistakes whose name has this in it")
    arguments = parser.parse_args()
    chosen = [mistake for mistake in MISTAKES if arguments.only in mistake.name]
    began = time.monotonic()
    with ThreadPoolExecutor(JOBS) as pool:
        verdicts = []
        for verdict in pool.map(judge, [NO_MISTAKE, *chosen]):
            print(row(verdict), flush=True)
            verdicts.append(verdict)
    survived = [verdict.name for verdict in verdicts[1:] if not verdict.by]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mistakes were caught in {time.monotonic() - began:.0f} s")
    if verdicts[0].by:
        print(f"the sources as they are do not pass: {verdicts[0].said}")
    for name in survived:
        print(f"not caught: {name}")
    return 1 if survived or verdicts[0].by else 0


def judge(mistake: Mistake, arguments: Sequence[str] = ()) -> Verdict:
    """Make the mistake in a copy and run the suite there. A patch that doesn't apply is caught by nothing."""
    with tempfile.TemporaryDirectory(prefix="gangctl-mutant-") as directory:
        copy = Path(directory)
        for part in COPIED:
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, copy / name)
        try:
            make(mistake, copy)
        except StalePatchError as error:
            return Verdict(mistake.name, "", "the patch does not apply any more", str(error).replace("\n", " "), 0.0)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'sidecar'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ended = subprocess.run(
            [sys.executable, "-m", "tests.simulation.catching", *arguments],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no word"])[-1]
        return Verdict(mistake.name, "crash", "", last, 0.0)
    told = json.loads(ended.stdout.splitlines()[-1])
    return Verdict(mistake.name, told["by"], told["after"], told["said"], told["seconds"])


def make(mistake: Mistake, copy: Path) -> None:
    """Apply the patches in the copy.

    Raises:
        StalePatchError: a text is not there exactly once.
    """
    for patch in mistake.patches:
        path = copy / patch.file
        text = path.read_text()
        if text.count(patch.old) != 1:
            raise StalePatchError(f"{mistake.name}: {patch.file} has this {text.count(patch.old)} times:\n{patch.old}")
        path.write_text(text.replace(patch.old, patch.new))


def row(verdict: Verdict) -> str:
    """One line of the table."""
    caught = " ".join(filter(None, (verdict.by or "NOT CAUGHT", f"({verdict.after})" if verdict.after else "")))
    return f"{verdict.name:58} {verdict.seconds:5.1f} s  {caught:40} {verdict.said[:110]}"


if __name__ == "__main__":
    sys.exit(main())
