"""Run tests many times, without load and beside busy loops, and print what failed how often.

A test that fails on a busy machine is a defect. ``make flaky N=20 T="tests/cli -k run"`` finds it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest import CollectReport, TestReport  # noqa: PT013 - the name of the module is that of a process here

RESULTS = "GANGCTL_FLAKY_RESULTS"
"""Names the file for what pytest tells."""
XDIST_WORKER = "PYTEST_XDIST_WORKER"
LOADS = (0, 4)
"""Busy loops per core, where none are asked for."""
BUSY = "import os, select, sys\nwhile not select.select([0], [], [], 0)[0]: sum(range(100_000))"
"""It ends when its standard input does. No other process has the other end, so it never outlives the command."""
ENDING_SECONDS = 60.0
"""For a run that is interrupted: its fixtures end what they started."""
WIDEST = 100
"""Characters of an error in the table."""
EXAMPLES = """\
examples:
  python -m tests.flaky tests/client/test_calls.py           20 times without load, 20 times under it
  python -m tests.flaky --times 10 -- tests/cli -k run -n 3  whatever pytest takes, after --
  python -m tests.flaky --load 8 -- tests/test_wait.py        only beside 8 busy loops per core

A failed fixture, a file that can't be imported, a worker of pytest-xdist that died and a run that was killed count as
failures. The output of failed runs is kept. The exit code is 1 if anything failed."""


@dataclass
class Outcomes:
    """How the tests of all runs ended."""

    ran: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By test and load."""
    failed: Counter[tuple[str, int]] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    """The first line of the last error of each test that failed."""

    def add(self, load: int, errors: dict[str, str | None]) -> None:
        """Count one run: the error of each test, None where it passed."""
        for test, error in errors.items():
            self.ran[test, load] += 1
            if error is not None:
                self.failed[test, load] += 1
                self.errors[test] = error

    def table(self, loads: Sequence[int]) -> str:
        """Show the tests that failed, most often first."""
        often = {test: sum(self.failed[test, load] for load in loads) for test in self.errors}
        rows = [("failed of runs", *(f"load {load}" for load in loads), "last error")]
        for test in sorted(often, key=lambda test: (-often[test], test)):
            counts = (f"{self.failed[test, load]}/{self.ran[test, load]}" for load in loads)
            rows.append((test, *counts, self.errors[test][:WIDEST]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Run it; the exit code says whether all tests passed each time."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.flaky",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=20, metavar="N", help="runs at each load (default 20)")
    parser.add_argument(
        "--load",
        type=int,
        action="append",
        metavar="LOOPS",
        help="busy loops per core that this process may use; may be given again (default: 0, then 4)",
    )
    parser.add_argument("words", nargs="+", metavar="WORD", help="what pytest is to run, and its options after --")
    arguments = parser.parse_args()
    for ends in (signal.SIGINT, signal.SIGTERM):  # A shell starts its background commands with SIGINT ignored.
        signal.signal(ends, signal.default_int_handler)
    loads: list[int] = arguments.load or list(LOADS)
    outcomes, outputs = Outcomes(), Path(tempfile.mkdtemp(prefix="gangctl-flaky-"))
    done, interrupted = 0, False
    try:
        for load in loads:
            with busy(load * len(os.sched_getaffinity(0))):
                for number in range(1, arguments.times + 1):
                    say(f"load {load}, run {number} of {arguments.times}: ", end="")
                    say(run(arguments.words, load, outcomes, outputs / f"load-{load}-run-{number}.txt"))
                    done += 1
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted")
    tests = len({test for test, _ in outcomes.ran})
    if outcomes.errors:
        say(f"\n{outcomes.table(loads)}\n\nThe output of the failed runs is in {outputs}.")
    else:
        shutil.rmtree(outputs)
        say(f"\nNone of {tests} tests failed in {done} runs.")
    return 1 if outcomes.errors or interrupted else 0


def say(text: str, end: str = "\n") -> None:
    """Print it at once, into a pipe too."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep so many processes busy."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        words = [sys.executable, "-c", BUSY]  # In sessions of their own: Ctrl-C is for this command.
        started.extend(subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) for _ in range(loops))
        yield
    finally:
        for loop in started:
            loop.kill()
            loop.wait()


def run(words: Sequence[str], load: int, outcomes: Outcomes, output: Path) -> str:
    """Run pytest once, count how each test ended, and return the line about it."""
    results, began = output.with_suffix(".jsonl"), time.monotonic()
    results.touch()
    command = [sys.executable, "-m", "pytest", "-p", __spec__.name, *words]
    env = {**os.environ, RESULTS: str(results)}
    env.pop(XDIST_WORKER, None)  # of a test of this command
    with output.open("wb") as file:  # In a session of its own, so that Ctrl-C in a terminal comes once.
        pytest = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=env)
        try:
            code = pytest.wait()
        except KeyboardInterrupt:
            _end(pytest)
            outcomes.add(load, _read(results))
            raise
    errors = _read(results)
    failed = sum(error is not None for error in errors.values())
    if code < 0 or (code and not failed):
        last = output.read_text(errors="replace").strip().rpartition("\n")[2]
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        errors["(the run itself)"] = f"{how}: {last}"
        failed += 1
    outcomes.add(load, errors)
    if not failed:
        output.unlink()
    results.unlink()
    return f"{len(errors) - failed} passed, {failed} failed, {time.monotonic() - began:.1f} s"


def _end(pytest: subprocess.Popen[bytes]) -> None:
    """Let it end as after Ctrl-C; kill what is left."""
    try:
        pytest.send_signal(signal.SIGINT)
        pytest.wait(ENDING_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(pytest.pid, signal.SIGKILL)
        pytest.wait()


def _read(results: Path) -> dict[str, str | None]:
    """Return the error of each test, None where it passed; without those that were skipped."""
    errors: dict[str, str | None] = {}
    for line in results.read_text().splitlines():
        test, error = json.loads(line)
        errors[test] = errors.get(test) or error
    return errors


def pytest_runtest_logreport(report: TestReport) -> None:
    """Note how a test ended, at once: a run that is killed later has told it. This module is a plugin of pytest."""
    if report.failed or (report.passed and report.when == "call"):
        _note(report)


def pytest_collectreport(report: CollectReport) -> None:
    """Note a file that can't be imported."""
    if report.failed:
        _note(report)


def _note(report: TestReport | CollectReport) -> None:
    if XDIST_WORKER in os.environ:
        return  # Its controller gets the same report.
    error = None
    if report.failed:  # The error itself is marked by pytest; where it shows none, its last line says most.
        marked = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
        crash = getattr(report.longrepr, "reprcrash", None)
        error = crash.message if crash is not None else (marked or report.longreprtext.splitlines() or [""])[-1]
        error = error.partition("\n")[0]
    with Path(os.environ[RESULTS]).open("a") as results:
        results.write(f"{json.dumps((report.nodeid, error))}\n")


if __name__ == "__main__":
    sys.exit(main())
