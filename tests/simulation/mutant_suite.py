"""The suite that must catch a mutant: regressions, simulation, oracles, search; the first that objects ends it.

The golden files of the scenarios are asked only where a mutant changes no more than what people are told.

``run_mutants.py`` runs it in a copy of the sources. It prints one line of JSON: what caught the mutant, after how much,
and what it said. The mutant survived if ``by`` is empty.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import extract_tb

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gangctl.core.facts import awaiting
from tests.conftest import PROFILE
from tests.core import (
    test_bounds,
    test_brake,
    test_checkpoint_oracle,
    test_degradation,
    test_failed_starts,
    test_log_lines,
    test_node_signals,
    test_oracles,
    test_restart_backoff,
    test_rolling,
    test_stored_times,
    test_ties,
)
from tests.sidecar.machine import (
    test_any_order,
    test_directives,
    test_ends,
    test_framework,
    test_parked,
    test_parked_searched,
    test_parking,
    test_run,
    test_stacks,
    test_timers,
)
from tests.simulation import (
    test_adaptive_regressions,
    test_disk_regressions,
    test_fencing,
    test_finished_regressions,
    test_hang_regressions,
    test_queues,
    test_regressions,
    test_request_regressions,
    test_signal_regressions,
    test_silence_regressions,
    test_vanished_regressions,
)
from tests.simulation.exhaustive import MANY, QUICK, explore
from tests.simulation.seeds import drawn

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "tests/core/test_scenarios.py"
MAX_AWAITED = awaiting.MAX_AWAITED
TESTS = {
    "regression": (
        test_bounds,
        test_stored_times,
        test_degradation,
        test_node_signals,
        test_regressions,
        test_finished_regressions,
        test_hang_regressions,
        test_signal_regressions,
        test_silence_regressions,
        test_vanished_regressions,
        test_adaptive_regressions,
        test_disk_regressions,
        test_request_regressions,
        test_fencing,
    ),
    "test of the machine": (
        test_any_order,
        test_directives,
        test_ends,
        test_framework,
        test_parked,
        test_parked_searched,
        test_parking,
        test_run,
        test_stacks,
        test_timers,
    ),
}
"""Short tests, by what they are called in the table. Those of the machine ask nothing but its pure functions."""


RULES = (
    test_restart_backoff,
    test_ties,
    test_brake,
    test_checkpoint_oracle,
    test_failed_starts,
    test_log_lines,
    test_queues,
    test_rolling,
)
"""Tests of rules that are stated a second time."""
LONGEST_SECONDS = 1200.0
"""CPU time of all of it. It takes a third; a mutant may let a test go on without end, which catches it."""
FIRST_LIVES = 40
"""Before oracles and searches; most mutants live no longer."""

SEARCHES = tuple(reversed(range(len(QUICK) + len(MANY))))
"""Their numbers. The first takes the longest: it comes last of all."""
Objection = tuple[str, str, str]
"""What caught the mutant, after how much, and what it said."""


def main() -> int:
    """Try one check after the other, beginning with the one that caught the mutant last time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lives", type=int, default=300, help="how many lives are simulated at most")
    parser.add_argument("--short", action="store_true", help="only the simulation")
    parser.add_argument("--told", action="store_true", help="golden files may catch it")
    parser.add_argument("--first", default="", help="what caught it last time, and after how much: simulation=life 17")
    arguments = parser.parse_args()
    settings.load_profile(PROFILE)
    signal.signal(signal.SIGVTALRM, _does_not_end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_SECONDS)
    by, after, said = next(_objections(arguments), ("", "", ""))
    print(json.dumps({"by": by, "after": after, "said": said, "seconds": time.process_time()}))
    return 0


def _objections(arguments: argparse.Namespace) -> Iterator[Objection]:
    kind, _, which = arguments.first.partition("=")
    lives = range(arguments.lives)
    if kind == "simulation" and which.removeprefix("life ").isdecimal():
        yield from _lives([int(which.removeprefix("life "))])
    if arguments.short:
        yield from _lives(lives)
        return
    if kind in TESTS:
        yield from _tests(kind, which)
    if kind == "oracles":
        yield from _oracles()
        yield from _rules()
    if kind == "search" and which.removeprefix("number ").isdecimal():
        yield from _searches([int(which.removeprefix("number ")) - 1])
    for one in TESTS:
        yield from _tests(one)
    yield from _lives(lives[:FIRST_LIVES])
    yield from _oracles()
    yield from _rules()
    yield from _searches(SEARCHES[:-1])
    yield from _lives(lives[FIRST_LIVES:])
    yield from _searches(SEARCHES[-1:])
    if arguments.told and SCENARIOS.exists():
        yield from _scenarios()


def _does_not_end(_signum: int, _frame: object) -> None:
    raise TimeoutError("it does not end")


def _lives(seeds: Iterable[int]) -> Iterator[Objection]:
    for seed in seeds:
        try:
            drawn(seed).run()
        except Exception as error:  # noqa: BLE001 - a mutant may show as a crash as well
            yield "simulation", f"life {seed}", _said(error)


def _tests(kind: str, only: str = "") -> Iterator[Objection]:
    for module in TESTS[kind]:
        for name, test in vars(module).items():
            sentence = name.removeprefix("test_").replace("_", " ")
            known = name.startswith("test_") and not hasattr(test, "pytestmark")
            if not known or (only and only != sentence):
                continue
            try:
                test()
            except Exception as error:  # noqa: BLE001 - as above
                yield kind, sentence, _said(error)


def _searches(numbers: Iterable[int]) -> Iterator[Objection]:
    for number in numbers:
        many = number >= len(QUICK)
        awaiting.MAX_AWAITED = 0 if many else MAX_AWAITED  # type: ignore[misc]  # this process ends after it
        try:
            explore([*QUICK, *MANY][number])
        except Exception as error:  # noqa: BLE001 - as above
            yield "search", f"number {number + 1}", _said(error)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removeprefix("ViolationError: ").partition("\n")[0]


def _oracles() -> Iterator[Objection]:
    agrees = test_oracles.test_the_core_agrees_with_its_oracles.hypothesis.inner_test  # type: ignore[attr-defined]
    unshrunk = settings(test_oracles.STATES, phases=[Phase.generate], max_examples=400)
    try:
        unshrunk(given(st.data())(agrees))()
    except Exception as error:  # noqa: BLE001 - a mutant may show as a crash as well
        disagrees = extract_tb(error.__traceback__)[-1].name
        yield "oracles", "", f"not so: {disagrees.replace('_', ' ')}"


def _rules() -> Iterator[Objection]:
    """Rules that are stated a second time, and compared over drawn lives."""
    for module in RULES:
        for name, test in [(name, test) for name, test in vars(module).items() if name.startswith("test_")]:
            if hasattr(test, "pytestmark"):
                continue
            try:
                test()
            except Exception as error:  # noqa: BLE001 - a mutant may show as a crash as well
                yield "oracles", name.removeprefix("test_").replace("_", " "), _said(error)


def _scenarios() -> Iterator[Objection]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    ended = subprocess.run([*command, str(SCENARIOS)], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        lines = ended.stdout.splitlines()
        failed = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), ended.stdout[-200:])
        yield "scenarios", "", failed


if __name__ == "__main__":
    sys.exit(main())
