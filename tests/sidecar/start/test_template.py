"""A template, as the supervisor speaks with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import gangsidecar
from gangsidecar.start.entry import ENTER
from gangsidecar.start.link import receive, send, send_with
from tests.wait import SECONDS

PACKAGES = str(Path(gangsidecar.__path__[0]).parent)


def asked(template: socket.socket, pid: int) -> str:
    """Ask for a fork that runs the program of this process; returns the answer."""
    ours, its_end = socket.socketpair()
    with ours, its_end:
        other: dict[str, Any] = {"pid": pid, "words": [], "numbers": [], "blocked": [], "unbuffered": False}
        files = [its_end.fileno()]
        send_with(template, files, fork=dict(os.environ), command=["train.py"], **{"for": other})
        ours.settimeout(SECONDS)
        return receive(ours)[0]


def test_an_interpreter_that_has_ended_since_it_asked_hinders_no_other_fork() -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    ours, its_end = socket.socketpair()
    with ours, its_end:
        command = [sys.executable, "-c", ENTER, PACKAGES, "", str(its_end.fileno()), "train.py"]
        with subprocess.Popen(command, pass_fds=[its_end.fileno()]) as process:
            its_end.close()
            send(ours, preload=[], beside=False)
            ours.settimeout(SECONDS)
            assert '"obstacle": ""' in receive(ours)[0]
            for _ in range(2):  # It still answers.
                answer = asked(ours, int(gone.stdout))
                assert '"only": true' in answer
                assert "the process that asked can't be read: [Errno 2]" in answer
            ours.close()
            assert process.wait(SECONDS) == 0
