"""A file holds one topic. One that grows over 320 lines holds two: split it by topic."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = 320
GENERATED = {"gangctl/api/changes.py"}


def test_no_file_is_too_long() -> None:
    command = ["git", "ls-files", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = {path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path in set(listed) - GENERATED}
    assert {path: count for path, count in lines.items() if count > LINES} == {}
