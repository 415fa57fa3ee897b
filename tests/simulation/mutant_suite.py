"""The suite that must catch a mutant: simulation, regressions, oracles, search, scenarios; the first that does ends it.

``run_mutants.py`` runs it in a copy of the sources. It prints one line of JSON: what caught the mutant, after how much,
and what it said. The mutant survived if ``by`` is empty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from traceback import extract_tb

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gangctl.core.facts import barrier
from tests.core import test_bounds, test_brake, test_oracles, test_restart_backoff, test_ties
from tests.simulation import test_finished_regressions, test_regressions, test_silence_regressions
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
    modules = (test_bounds, test_regressions, test_finished_regressions, test_silence_regressions)
    regressions = [
        (name, test) for module in modules for name, test in vars(module).items() if name.startswith("test_")
    ]
    for name, regression in () if short else regressions:
        try:
            regression()
        except Exception as error:  # noqa: BLE001 - as above
            yield "regression", name.removeprefix("test_").replace("_", " "), _said(error)
    if not short:
        yield "oracles", "", _oracles()
        yield from _rules()
    for search in () if short else QUICK:
        try:
            states += explore(search).states
        except Exception as error:  # noqa: BLE001 - as above
            yield "search", f"after {states} states of earlier searches", _said(error)
    barrier.MAX_AWAITED = 0  # type: ignore[misc]  # this process ends after it
    for search in () if short else MANY:
        try:
            states += explore(search).states
        except Exception as error:  # noqa: BLE001 - as above
            yield "search", f"after {states} states of earlier searches", _said(error)
    if not short and SCENARIOS.exists():
        yield "scenarios", "", _scenarios()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removeprefix("ViolationError: ").partition("\n")[0]


def _oracles() -> str | None:
    agrees = test_oracles.test_the_core_agrees_with_its_oracles.hypothesis.inner_test  # type: ignore[attr-defined]
    unshrunk = settings(test_oracles.STATES, phases=[Phase.generate])
    try:
        unshrunk(given(st.data())(agrees))()
    except Exception as error:  # noqa: BLE001 - a mutant may show as a crash as well
        disagrees = extract_tb(error.__traceback__)[-1].name
        return f"not so: {disagrees.replace('_', ' ')}"
    return None


def _rules() -> Iterator[tuple[str, str, str | None]]:
    """Rules that are stated a second time, and compared over drawn lives."""
    for module in (test_restart_backoff, test_ties, test_brake):
        for name, test in [(name, test) for name, test in vars(module).items() if name.startswith("test_")]:
            if hasattr(test, "pytestmark"):
                continue
            try:
                test()
            except Exception as error:  # noqa: BLE001 - a mutant may show as a crash as well
                yield "oracles", name.removeprefix("test_").replace("_", " "), _said(error)


def _scenarios() -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    ended = subprocess.run([*command, str(SCENARIOS)], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return None
    lines = ended.stdout.splitlines()
    return next((line for line in lines if line.startswith(("FAILED", "ERROR"))), ended.stdout[-200:])


if __name__ == "__main__":
    sys.exit(main())
