"""A template, as the supervisor speaks with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gangsidecar
from gangsidecar.start.entry import ENTER
from gangsidecar.start.link import receive, send, send_with
from tests.wait import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def template() -> Iterator[socket.socket]:
    """The supervisor's end of its connection. It ends with that."""
    ours, its_end = socket.socketpair()
    with ours, its_end:
        command = [sys.executable, "-c", ENTER, PACKAGES, "", str(its_end.fileno()), "train.py"]
        with subprocess.Popen(command, pass_fds=[its_end.fileno()]) as process:
            its_end.close()
            ours.settimeout(SECONDS)
            yield ours
            ours.close()
            assert process.wait(SECONDS) == 0


def preloaded(template: socket.socket, *names: str) -> Any:
    """Have it import these; returns the answer."""
    send(template, preload=names, beside=False)
    return json.loads(receive(template)[0])


def test_an_interpreter_that_has_ended_since_it_asked_hinders_no_other_fork(template: socket.socket) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert preloaded(template)["obstacle"] == ""
    for _ in range(2):  # It still answers.
        answer = asked(template, int(gone.stdout))
        assert '"only": true' in answer
        assert "the process that asked can't be read: [Errno 2]" in answer


def test_a_template_that_has_a_module_can_not_be_forked_for_a_program_that_has_its_own(template: socket.socket) -> None:
    assert preloaded(template, "!mine", "colorsys")["obstacle"] == ""
    answer = preloaded(template, "!colorsys", "decimal")
    assert answer["obstacle"].startswith("the template has imported colorsys, and the program has its own: ")
    assert answer["by"] == "colorsys"
