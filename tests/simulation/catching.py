"""The suite that a mistake has to get past: simulation, stories, search and scenarios, up to the first that objects.

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

from tests.simulation.chance import drawn
from tests.simulation.exhaustive import QUICK, explore

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Try one check after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lives", type=int, default=500, help="how many lives are simulated at most")
    parser.add_argument("--short", action="store_true", help="only the simulation and the first search")
    arguments = parser.parse_args()
    began = time.monotonic()
    for by, after, objection in _checks(arguments.lives, short=arguments.short):
        if objection is not None:
            print(json.dumps({"by": by, "after": after, "said": objection, "seconds": time.monotonic() - began}))
            return 0
    print(json.dumps({"by": "", "after": "", "said": "", "seconds": time.monotonic() - began}))
    return 0


def _checks(lives: int, *, short: bool) -> Iterator[tuple[str, str, str | None]]:
    moves = 0
    for seed in range(lives):
        try:
            moves += drawn(seed).run().moves
        except Exception as error:  # noqa: BLE001 - a mistake may show as a crash as well
            yield "simulation", f"{seed + 1} lives, {moves} moves", _said(error)
    if not short:
        yield "stories", "", _tests("tests/simulation/test_found.py")
    states = 0
    for search in QUICK[: 1 if short else None]:
        try:
            states += explore(search).states
        except Exception as error:  # noqa: BLE001 - as above
            yield "search", f"{states} states and one search more", _said(error)
    scenarios = ROOT / "tests/core/test_scenarios.py"
    if not short and scenarios.exists():
        yield "scenarios", "", _tests(str(scenarios))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removeprefix("ViolationError: ")


def _tests(path: str) -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", path]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return None
    return next((line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), ended.stdout[-200:])


if __name__ == "__main__":
    sys.exit(main())
