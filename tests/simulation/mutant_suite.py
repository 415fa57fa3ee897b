"""The checks that must catch a mutant: regressions, lives, oracles, searches, and tests of what does I/O.

A check is known by the name that the table of the docs gives it, such as ``simulation (life 17)``. The golden files of
the scenarios are asked only where a mutant changes no more than what people are told.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import product
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from gangctl.core.facts import barrier
from tests.conftest import PROFILE
from tests.simulation.exhaustive import MANY, QUICK, explore
from tests.simulation.seeds import drawn

ROOT = Path(__file__).parents[2]
REGRESSIONS = ("", "adaptive_", "disk_", "finished_", "hang_", "request_", "signal_", "silence_", "vanished_")
MACHINE = "any_order checks directives ends fork_trust framework parked parked_searched parking run stacks timers"
CHECKED = "granted dead_containers requeues"
ORACLES = f"oracles {CHECKED} restart_backoff ties brake checkpoint_oracle failed_starts log_lines rolling"
CORE = "bounds stored_times degradation node_signals directives older_step suspects held_up evictions checks"
CORE += " first_checkpoint roles sizes quota"
NODES = "records suspicion gate gate_of_gangs"
CALLED = {
    "regression": (
        *(f"tests.core.test_{name}" for name in CORE.split()),
        *(f"tests.simulation.test_{name}regressions" for name in REGRESSIONS),
        "tests.simulation.test_fencing",
    ),
    "test of the machine": tuple(f"tests.sidecar.machine.test_{name}" for name in MACHINE.split()),
    "test of the sidecar": ("tests.sidecar.agent.test_attempt_gate",),
    "test of node records": tuple(f"tests.annexes.node_records.test_{name}" for name in NODES.split()),
    "oracles": (
        *(f"tests.core.test_{name}" for name in ORACLES.split()),
        "tests.simulation.test_queues",
        "tests.simulation.test_checks",
        "tests.simulation.test_elastic",
        "tests.simulation.test_kept",
        "tests.simulation.test_relays",
        "tests.controller.test_backoff",
        "tests.controller.test_brake_sums",
    ),
}
"""Kind -> modules of short tests, and of rules that are stated a second time."""
HUB, SUPERVISOR, START = "test of the hub", "test of the supervisor", "test of the start"
HUB_TESTS = "hub_terms hub hub_pods hub_connections hub_tls turns shares intake groups links relays"
SUPERVISOR_TESTS = "looks warm_start_templates warm_start_memory warm_start_imports warm_start warm_start_obstacles"
SUPERVISOR_TESTS += " late_forks handover import_lists unsafe_modules parking real_shells warm_start_pythons"
WITH_PYTEST = {
    HUB: ("tests/controller", HUB_TESTS.split(), "flood"),
    SUPERVISOR: ("tests/sidecar/supervisor", SUPERVISOR_TESTS.split(), "any_moment"),
    START: ("tests/sidecar/start", ["stand_in", "template"], "any_moment"),
}
"""Kind -> folder and files of tests with real sockets and processes, and those with this in their name are left out."""
PYTEST = (
    *("-x", "-q", "--tb=short", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
)
"""Hypothesis' plugin objects to strategies that were used before it, as they are here."""
LIVES = 300
MAX_AWAITED = barrier.MAX_AWAITED
SCENARIOS = "scenarios"
ORACLE_EXAMPLES = 400
"""Of the test of all oracles, which draws less in a run of all tests."""
CPU_SECONDS = 15.0
CLOCK_SECONDS = 5.0
TIMES = 5
UNRECORDED_SECONDS = 60.0
"""A check objects when it takes these seconds and five times what it usually takes: a mutant may let it go on without
end. Checks with sockets and processes are timed by the clock, all others by CPU time.
One of which nothing is recorded is taken for one that takes a minute."""


@dataclass(frozen=True)
class Check:
    """One of them. It objects by an error."""

    kind: str
    which: str
    run: Callable[[float], None]
    """Its argument: the seconds that it may take."""

    @property
    def name(self) -> str:
        """As the docs have it."""
        return f"{self.kind} ({self.which})" if self.which else self.kind

    @property
    def is_by_the_clock(self) -> bool:
        """Whether it waits for sockets or processes."""
        return self.kind in WITH_PYTEST

    @property
    def needs_files(self) -> bool:
        """Whether it starts processes, which read the sources from files."""
        return self.kind in {SUPERVISOR, START}


@dataclass(frozen=True)
class Objection:
    """The check that caught a mutant (no name: none did), what it said, and what all checks until then took."""

    check: str = ""
    said: str = ""
    seconds: float = 0.0


class CheckFailedError(Exception):
    """A test that pytest ran has failed."""


def checks() -> dict[str, Check]:
    """Return all of them by name, in the order in which they are tried if nothing is known about them."""
    found = [*_called("regression"), *_called("test of the machine"), *_called("test of the sidecar")]
    found += _called("test of node records")
    found += [Check("simulation", f"life {seed}", partial(_timed, drawn(seed).run)) for seed in range(LIVES)]
    found += [*_called("oracles"), *(check for kind in WITH_PYTEST for check in _with_pytest(kind))]
    searches = reversed(range(len(QUICK) + len(MANY)))
    found += [Check("search", f"number {at + 1}", partial(_timed, partial(_search, at))) for at in searches]
    return {
        check.name: check for check in [*found, Check(SCENARIOS, "", partial(_test, "tests/core/test_scenarios.py"))]
    }


def first_objection(tried: Sequence[Check], usual: Mapping[str, float]) -> Objection:
    """Run the checks until one objects.

    Args:
        tried: in this order.
        usual: name of a check -> seconds that it takes.
    """
    settings.load_profile(PROFILE)
    spent = 0.0
    for check in tried:
        clock = time.monotonic if check.is_by_the_clock else time.process_time
        began = clock()
        try:
            check.run(
                (CLOCK_SECONDS if check.is_by_the_clock else CPU_SECONDS)
                + TIMES * usual.get(check.name, UNRECORDED_SECONDS)
            )
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - a mutant may show as a crash as well
            said = f"{type(error).__name__}: {error}".removeprefix("ViolationError: ").partition("\n")[0]
            return Objection(check.name, said, spent + clock() - began)
        spent += clock() - began
    return Objection(seconds=spent)


def _called(kind: str) -> Iterator[Check]:
    for module in CALLED[kind]:
        for name, test in vars(import_module(module)).items():
            marks = getattr(test, "pytestmark", ())
            if name.startswith("test_") and all(one.name == "parametrize" for one in marks):
                known = {one for mark in marks for one in _names(mark)}
                assert known == {*signature(test).parameters}, f"{name} has a fixture, which only pytest can give it"
                yield Check(kind, _sentence(name), partial(_timed, partial(_of_each, _unshrunk(test), marks)))


def _names(mark: pytest.Mark) -> Sequence[str]:
    names: str | Sequence[str] = mark.args[0]
    return (names,) if isinstance(names, str) else names


def _of_each(test: Callable[..., object], marks: Sequence[pytest.Mark]) -> None:
    """Run a test with each of its parameters, as pytest does."""
    for some in product(*(mark.args[1] for mark in marks)):
        given = dict[str, object]()
        for mark, one in zip(marks, some, strict=True):
            names = _names(mark)
            given |= zip(names, (one,) if len(names) == 1 else one, strict=True)
        test(**given)


def _unshrunk(test: Callable[[], object]) -> Callable[[], object]:
    """An example that fails is enough: the smallest one is not read."""
    drawn_by = getattr(test, "_hypothesis_internal_use_settings", None)
    if drawn_by is not None:
        most = ORACLE_EXAMPLES if test.__name__ == "test_the_core_agrees_with_its_oracles" else drawn_by.max_examples
        phases = (Phase.explicit, Phase.generate)
        test._hypothesis_internal_use_settings = settings(drawn_by, phases=phases, max_examples=most)  # type: ignore[attr-defined]  # noqa: SLF001 - @settings sets the same
    return test


def _timed(run: Callable[[], object], seconds: float) -> None:
    signal.signal(signal.SIGVTALRM, _does_not_end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        run()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _does_not_end(_signum: int, _frame: object) -> None:
    raise TimeoutError("it does not end")


def _search(number: int) -> None:
    barrier.MAX_AWAITED = 0 if number >= len(QUICK) else MAX_AWAITED  # type: ignore[misc]
    try:
        explore([*QUICK, *MANY][number])
    finally:
        barrier.MAX_AWAITED = MAX_AWAITED  # type: ignore[misc]


def _with_pytest(kind: str) -> Iterator[Check]:
    folder, files, without = WITH_PYTEST[kind]
    for file in files:
        path = f"{folder}/test_{file}.py"
        for node in ast.parse((ROOT / path).read_text()).body:
            name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""
            if name.startswith("test_") and without not in name:
                yield Check(kind, _sentence(name), partial(_test, f"{path}::{name}"))


class _Failures:
    """A plugin of pytest that keeps what the failed tests said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each part of a test."""
        if report.failed:
            self.said += report.longreprtext.strip().splitlines()[-1:]


def _test(test: str, seconds: float) -> None:
    failures = _Failures()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main([*PYTEST, "--rootdir", str(ROOT), f"--timeout={seconds:.0f}", str(ROOT / test)], [failures])
    if code == pytest.ExitCode.INTERNAL_ERROR:
        sys.exit(f"pytest itself fails on {test}")  # No objection: it says nothing of the mutant.
    if code != pytest.ExitCode.OK:
        raise CheckFailedError(next(iter(failures.said), str(code)))


def _sentence(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")
