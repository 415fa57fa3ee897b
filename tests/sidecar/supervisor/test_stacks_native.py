"""Native frames in the stacks of a hang, from the real py-spy where the image has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gangctl.api.incident import Stacks
from gangctl.core.record.incidents import innermost
from tests.sidecar.supervisor.supervised import Member
from tests.sidecar.supervisor.test_stacks import HUNG, hang, script, told

BESIDE = Path(sys.executable).parent
"""Where the real py-spy is."""


@pytest.fixture(scope="module")
def archive(patient_archive: Path) -> Path:
    return patient_archive


@pytest.fixture
def _with_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (BESIDE / "py-spy").is_file()
    monkeypatch.setenv("PATH", f"{BESIDE}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("_with_py_spy")
@pytest.mark.parametrize("offers", [True, False])
def test_native_frames_are_told_beside_those_of_python(member: Member, *, offers: bool) -> None:
    report = hang(member, *script(member, HUNG + "all_reduce()\n"), offers=offers)
    text = told(report)
    assert "PyThread_acquire_lock_timed" in text
    assert "\n    all_reduce (" in text
    assert innermost(Stacks(member="worker-0", text=text)).startswith("all_reduce ("), "the line of Python is named"
