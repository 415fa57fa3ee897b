"""The command that runs tests many times counts what failed, and leaves no busy loop behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.wait import until

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[1]
EACH_SECOND_TIME = """
import pathlib
def test_fails_each_second_time():
    count = pathlib.Path("count")
    count.write_text(count.read_text() + "." if count.exists() else ".")
    assert len(count.read_text()) % 2, "an even time"
def test_passes():
    pass
"""
BROKEN_FIXTURE = """
import pytest
@pytest.fixture
def broken():
    raise OSError("no room")
def test_is_not_reached(broken):
    pass
"""
KILLED = "import os, signal\ndef test_dies():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
FAILED_AND_KILLED = f"def test_fails():\n    assert False, 'it is so'\n{KILLED}"
WAITS = """
import os, pathlib, time
def test_waits_for_the_end_of_what_started_it():
    pathlib.Path("begun").touch()
    started_by = os.getppid()
    while os.getppid() == started_by:
        time.sleep(0.02)
"""


def command(folder: Path, source: str, *options: str) -> subprocess.Popen[str]:
    """Start it for one file of tests, in a folder of its own."""
    (folder / "test_it.py").write_text(source)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    words = [sys.executable, "-m", "tests.flaky", *options, "--", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.Popen(words, cwd=folder, env={**env, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True)


def ended(folder: Path, source: str, *options: str) -> tuple[int, list[str]]:
    """Return its exit code and what it printed."""
    process = command(folder, source, *options)
    out, _ = process.communicate()
    return process.returncode, out.splitlines()


def test_a_test_that_fails_each_second_time_is_counted_at_each_load(tmp_path: Path) -> None:
    code, lines = ended(tmp_path, EACH_SECOND_TIME, "--times", "2", "--load", "0", "--load", "1")
    assert code == 1
    assert [line.rpartition(",")[0] for line in lines[:4]] == [
        "load 0, run 1 of 2: 2 passed, 0 failed",
        "load 0, run 2 of 2: 1 passed, 1 failed",
        "load 1, run 1 of 2: 2 passed, 0 failed",
        "load 1, run 2 of 2: 1 passed, 1 failed",
    ]
    assert lines[5].split() == ["failed", "of", "runs", "load", "0", "load", "1", "last", "error"]
    assert lines[6].startswith("test_it.py::test_fails_each_second_time  1/2     1/2     AssertionError: an even time")
    kept = sorted(path.name for path in Path(lines[-1].rpartition(" in ")[2].rstrip(".")).iterdir())
    assert kept == ["load-0-run-2.txt", "load-1-run-2.txt"]


def test_tests_that_pass_leave_nothing_behind(tmp_path: Path) -> None:
    code, lines = ended(tmp_path, "def test_passes():\n    pass\n", "--times", "2", "--load", "0")
    assert (code, lines[-1]) == (0, "None of 1 tests failed in 2 runs.")
    assert not list(tmp_path.glob("gangctl-flaky-*"))


@pytest.mark.parametrize(
    ("source", "row"),
    [
        (BROKEN_FIXTURE, ["test_it.py::test_is_not_reached", "1/1", "OSError: no room"]),
        ("import nothing_of_that_name", ["test_it.py", "1/1", "ModuleNotFoundError: No module"]),
        (KILLED, ["(the run itself)", "1/1", "killed by SIGKILL: "]),
        ("", ["(the run itself)", "1/1", "exit code 5: "]),
    ],
    ids=["a fixture", "a collection", "a killed run", "no test"],
)
def test_what_fails_outside_a_test_is_counted_too(tmp_path: Path, source: str, row: list[str]) -> None:
    code, lines = ended(tmp_path, source, "--times", "1", "--load", "0")
    assert code == 1
    shown = [cell.strip() for cell in lines[3].split("  ") if cell]
    assert shown[:2] == row[:2]
    assert shown[2].startswith(row[2].strip())


def test_what_failed_before_a_run_was_killed_is_counted(tmp_path: Path) -> None:
    code, lines = ended(tmp_path, FAILED_AND_KILLED, "--times", "1", "--load", "0")
    assert code == 1
    assert [line.partition("  ")[0] for line in lines[3:5]] == ["(the run itself)", "test_it.py::test_fails"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_busy_loop_outlives_the_command(tmp_path: Path, ending: signal.Signals) -> None:
    process = command(tmp_path, WAITS, "--times", "1", "--load", "1")
    until("the test begins", (tmp_path / "begun").exists)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == len(os.sched_getaffinity(0)) + 1
    process.send_signal(ending)
    out, _ = process.communicate()
    for child in children:
        until("it has ended", partial(_is_gone, child))
    if ending != signal.SIGKILL:
        assert process.returncode == 1
        assert "interrupted" in out


def _is_gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
