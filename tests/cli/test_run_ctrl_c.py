"""Ctrl-C typed at the terminal of `gangctl run`, whose workers are forks below a shell."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from tests.cli.here import Here, manifest
from tests.cli.test_run_known_imports import started, templates
from tests.wait import until

SCRIPT = """
import decimal, os, subprocess, time
import gangclient
gang = gangclient.connect()
subprocess.Popen(["sleep", "1000000"])
for step in range(1, 1_000_000):
    gang.progress(step)
    with open(os.environ["GANG_MEMBER"] + "-" + os.environ["GANG_ATTEMPT"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(0.1)
"""
SHELL = f"{sys.executable} train.py; exit $$?"
CTRL_C = b"\x03"


@pytest.mark.parametrize("how", [("bash", "-c", SHELL), ("bash", "-mc", SHELL)], ids=["a shell", "job control"])
def test_ctrl_c_at_the_terminal_ends_forks_and_what_they_have_started(folder: Here, how: tuple[str, ...]) -> None:
    (folder.path / "train.py").write_text(SCRIPT)
    document = manifest(how, replicas=2)
    document["spec"]["roles"][0]["start"] = {"type": "Fork"}
    folder.write(document)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = ["setsid", "--ctty", sys.executable, "-m", "gangctl", "run", "job.yaml"]
    with subprocess.Popen(
        command,
        cwd=folder.path,
        env=folder.env(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as run:
        os.set_blocking(ours, False)
        seen = bytearray()

        def reads() -> bool:
            """Read the screen, since a program waits whose screen isn't read."""
            with suppress(OSError):
                seen.extend(os.read(ours, 1 << 16))
            return True

        until("templates", lambda: reads() and templates(folder) == 2)
        assert folder.gangctl("restart", "g").returncode == 0
        until("forks", lambda: reads() and started(folder) == (2, 0, ""))
        until("they train", lambda: reads() and len(list(folder.path.glob("worker-?-2"))) == 2)
        until("a step is shown that isn't stored", lambda: reads() and re.search(rb"attempt 2 .* step [1-9]\d", seen))
        os.write(ours, CTRL_C)
        until("it ends", lambda: reads() and run.poll() is not None)
        assert run.returncode == 130, seen.decode()
    assert folder.left() == []
    screen = seen.decode(errors="replace")
    assert "no process of g is left" in screen
    steps = re.findall(r"attempt 2  ready \S+  step (\d+|-)", screen)
    assert len(steps[-1]) > 1, "the last picture keeps the step"
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
