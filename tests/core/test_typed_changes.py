"""A status is changed only by functions that mypy checks: a wrong field or a wrong type fails `make lint`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mypy import api as mypy

from gangctl.api import changes
from gangctl.api.change_types import PHASE_FIELDS, source

ROOT = Path(__file__).parents[2]
HEAD = """
from gangctl.api.changes import changed
from gangctl.api.incident import Cause, Incident
from gangctl.api.status import GangPhase, Status

status = Status()
cause = Cause(reason="Hang", time=1.0)
"""
RIGHT = """
changed(status, barrier_timeouts=3, deadline_time=None, message="")
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


def test_the_typed_changes_are_those_of_the_models() -> None:
    assert Path(changes.__file__).read_text() == source(), "make generate"


def test_no_other_code_copies_a_model_with_changes() -> None:
    allowed = {"gangctl/api/changes.py", "gangctl/cluster/local/pod_record.py"}
    for path in sorted((ROOT / "gangctl").rglob("*.py")):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        copies = any(isinstance(func, ast.Attribute) and func.attr == "model_copy" for func in calls)
        assert not copies or str(path.relative_to(ROOT)) in allowed, path


def test_the_fields_of_a_transition_are_not_among_those_of_other_changes() -> None:
    assert not set(PHASE_FIELDS) & set(changes.StatusChanges.__annotations__)
