"""A status is changed only by functions that mypy checks: a wrong field or a wrong type fails `make lint`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mypy import api as mypy

ROOT = Path(__file__).parents[2]
HEAD = """
from typing import TypedDict
from gangctl.api.model import changed
from gangctl.api.status import in_phase
from gangctl.api.incident import Cause, Incident
from gangctl.api.status import GangPhase, Status

status = Status()
cause = Cause(reason="Hang", time=1.0)
class Right(TypedDict, total=False):
    barrier_timeouts: int
class Wrong(TypedDict, total=False):
    barrier_timeouts: str
right: Right = {"barrier_timeouts": 3}
wrong: Wrong = {"barrier_timeouts": "x"}
"""
RIGHT = """
changed(status, barrier_timeouts=3, deadline_time=None, message="")
changed(status, **right)
in_phase(status, GangPhase.HELD, 1.0, 2, barrier_timeouts=3)
changed(cause, tied=("worker-1",))
"""
WRONG = {
    "a field that does not exist": "changed(status, barrier_timeout=3)",
    "a value of another type": 'changed(status, barrier_timeouts="x")',
    "a field of another model": "changed(cause, barrier_timeouts=3)",
    "a list in place of a tuple": 'changed(cause, tied=["worker-1"])',
    "the phase": "changed(status, phase=GangPhase.HELD)",
    "the time of the phase": "changed(status, phase_time=1.0)",
    "the attempt": "changed(status, attempt=2)",
    "a wrong field beside the phase": "in_phase(status, GangPhase.HELD, 1.0, 2, barrier_timeout=3)",
    "a wrong type beside the phase": 'in_phase(status, GangPhase.HELD, 1.0, 2, barrier_timeouts="x")',
    "the attempt twice": "in_phase(status, GangPhase.HELD, 1.0, 2, attempt=2)",
    "a wrong field of several": "changed(status, **wrong)",
}


def errors(tmp_path: Path, text: str) -> list[str]:
    """What mypy says of a file with this text, by the project's own settings."""
    path = tmp_path / "snippet.py"
    path.write_text(HEAD + text)
    config, cache = ROOT / "pyproject.toml", ROOT / ".mypy_cache"
    out, error, _ = mypy.run([str(path), f"--config-file={config}", f"--cache-dir={cache}", "--no-error-summary"])
    assert not error, error
    return [line for line in out.splitlines() if ": error:" in line]


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_mypy_accepts_right_changes_and_refuses_each_wrong_one(tmp_path: Path) -> None:
    first = (HEAD + RIGHT).count("\n") + 1
    found = errors(tmp_path, RIGHT + "\n".join(WRONG.values()) + "\n")
    lines = {int(line.split(":")[1]) for line in found}
    assert lines == set(range(first, first + len(WRONG))), found


def test_no_other_code_copies_a_model_with_changes() -> None:
    for path in sorted((ROOT / "gangctl").rglob("*.py")):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        copies = any(isinstance(func, ast.Attribute) and func.attr == "model_copy" for func in calls)
        assert not copies or str(path.relative_to(ROOT)) in {"gangctl/api/model.py", "gangctl/api/status.py"}, path
