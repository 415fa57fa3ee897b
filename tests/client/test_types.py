"""A user's script is checked against the installed gangclient: the package has its types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GOOD = """
import gangclient

gang: gangclient.Client = gangclient.connect()
start = gang.restore.step if gang.restore else 0


def stopped(stop: gangclient.Event) -> None:
    print(stop.reason, stop.seconds_left or 0.0)


gang.on_stop(stopped)
with gang.loading():
    pass
gang.progress(start + 1)
try:
    gang.checkpoint_completed(start, "ram", "/dev/shm/1")
except gangclient.GangError as error:
    print(error.reason)
"""
BAD = """
import gangclient

gang = gangclient.connect()
gang.progress("one")
gang.progress(stpe=1)
"""


def test_mypy_checks_a_users_script(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", "good.py", "bad.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\S+?):(\d+): error: .*\[(\S+)\]$", checked.stdout, re.MULTILINE)
    assert found == [("bad.py", "5", "arg-type"), ("bad.py", "6", "call-arg")], checked.stdout + checked.stderr
