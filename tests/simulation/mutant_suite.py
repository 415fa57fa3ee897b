"""The suite that a mutant has to get past: simulation, stories, search and scenarios, up to the first that objects.

Run by ``mutants.py`` in a copy of the sources. It prints one line of JSON: what caught it, after how much, and what it
said; nothing is caught if ``by`` is empty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gangctl.core.facts import barrier
from tests.simulation import test_regressions
from tests.simulation.exhaustive import MANY, QUICK, explore
from tests.simulation.seeds import drawn

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "tests/core/test_scenarios.py"


def main() -> int:
    """Try one check after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lives", type=int, default=400, help="how many lives are simulated at most")
    parser.add_argument("--short", action="store_true", help="only the simulation")
    arguments = parser.parse_args()
    began = time.monotonic()
    for by, after, objection in _checks(arguments.lives, short=arguments.short):
        if objection is not None:
            print(json.dumps({"by": by, "after": after, "said": objection, "seconds": time.monotonic() - began}))
            return 0
    print(json.dumps({"by": "", "after": "", "said": "", "seconds": time.monotonic() - began}))
    return 0


def _checks(lives: int, *, short: bool) -> Iterator[tuple[str, str, str | None]]:
    moves = states = 0
    for seed in range(lives):
        try:
            moves += drawn(seed).run().moves
        except Exception as error:  # noqa: BLE001 - a mutant may show as a crash as well
            yield "simulation", f"{seed + 1} lives, {moves} moves", _said(error)
    stories = [(name, story) for name, story in vars(test_regressions).items() if name.startswith("test_")]
    for name, story in () if short else stories:
        try:
            story()
        except Exception as error:  # noqa: BLE001 - as above
            yield "story", name.removeprefix("test_").replace("_", " "), _said(error)
    for search in () if short else QUICK:
        try:
            states += explore(search).states
        except Exception as error:  # noqa: BLE001 - as above
            yield "search", f"{states} states and one search more", _said(error)
    barrier.MAX_AWAITED = 0  # type: ignore[misc]  # this process ends after it
    for search in () if short else MANY:
        try:
            states += explore(search).states
        except Exception as error:  # noqa: BLE001 - as above
            yield "search", f"{states} states and one search more", _said(error)
    if not short and SCENARIOS.exists():
        yield "scenarios", "", _scenarios()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removeprefix("ViolationError: ").partition("\n")[0]


def _scenarios() -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    ended = subprocess.run([*command, str(SCENARIOS)], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return None
    lines = ended.stdout.splitlines()
    return next((line for line in lines if line.startswith(("FAILED", "ERROR"))), ended.stdout[-200:])


if __name__ == "__main__":
    sys.exit(main())
