"""An interpreter that stands in for a fork, as the supervisor speaks with it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangsidecar.start import hook
from gangsidecar.start.link import WARM_STARTS
from tests.pythons import FIRST_MINOR, every, oldest
from tests.wait import SECONDS, until

GETS_A_SIGNAL_BEFORE_IT_WAITS = """
import ctypes, os, signal, sys
from itertools import starmap
from operator import call
from gangsidecar.start.hook import gang_handover

class Link(gang_handover.Link):
    waits = 0

    def recv(self, size):
        self.waits += 1
        before = [(ctypes.CDLL(None).kill, os.getpid(), signal.SIGTERM)] * (self.waits == 1)
        return list(starmap(call, [*before, (super().recv, size)]))[-1]  # Python runs no handler between the two.

gang_handover._stand_in(Link(fileno=int(sys.argv[1])), [], set())
"""


def test_a_signal_that_comes_just_before_a_stand_in_waits_is_passed_on() -> None:
    ours, its_end = socket.socketpair()
    with ours, its_end:
        command = [sys.executable, "-c", GETS_A_SIGNAL_BEFORE_IT_WAITS, str(its_end.fileno())]
        with subprocess.Popen(command, pass_fds=[its_end.fileno()]) as process:
            try:
                ours.settimeout(SECONDS)
                assert ours.recv(9) == bytes([signal.SIGTERM])
                ours.sendall(b"exit 7\n")
                assert process.wait(SECONDS) == 7
            finally:
                process.kill()


@contextmanager
def started(folder: Path, *command: str) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """Start an interpreter with the hook; yields the socket at which it asks, and the process."""
    path = folder / "asks"
    environment = {**os.environ, "PYTHONPATH": str(Path(hook.__file__).parent), WARM_STARTS: str(path)}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(SECONDS)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield server, process
            finally:
                process.kill()


def asked(server: socket.socket) -> socket.socket:
    """Return the connection on which the interpreter has asked."""
    link, _ = server.accept()
    link.settimeout(SECONDS)
    assert link.recv(1 << 16).endswith(b"\n")
    return link


def say(link: socket.socket, *pieces: bytes) -> None:
    """Send each piece when the one before has been read."""
    for piece in pieces:
        link.sendall(piece)
        until("the piece is read", lambda: fcntl.ioctl(link, termios.TIOCOUTQ, b"\0" * 4) == b"\0" * 4)


SAID = b"forked\nexit 3\n"


@pytest.mark.parametrize("python", [sys.executable, oldest()[1]])
@pytest.mark.parametrize(
    "pieces",
    [[SAID], [SAID[:9], SAID[9:]], [bytes([one]) for one in SAID]],
    ids=["together", "with a part of the next", "byte by byte"],
)
def test_a_program_runs_once_however_the_answers_arrive(tmp_path: Path, python: str, pieces: Sequence[bytes]) -> None:
    with started(tmp_path, python, "-c", "print('ran')") as (server, process), asked(server) as link:
        say(link, *pieces)
        assert (process.communicate(timeout=SECONDS)[0], process.returncode) == ("", 3)


def test_a_part_of_an_answer_that_came_before_a_signal_is_kept(tmp_path: Path) -> None:
    with started(tmp_path, sys.executable, "-c", "print('ran')") as (server, process), asked(server) as link:
        say(link, SAID[:4])
        process.send_signal(signal.SIGUSR1)
        assert link.recv(9) == b"\0", "it looks for signals after each wait"
        say(link, SAID[4:])
        assert (process.communicate(timeout=SECONDS)[0], process.returncode) == ("", 3)


STARTS_AN_INTERPRETER = """
try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters
_interpreters.run_string(_interpreters.create(), "import sys; print(sys.modules.keys() & {'gang_handover'})")
"""


@pytest.mark.parametrize("python", [path for minor, path in every().items() if minor >= FIRST_MINOR])
def test_a_subinterpreter_does_not_ask(tmp_path: Path, python: str) -> None:
    with started(tmp_path, python, "-c", STARTS_AN_INTERPRETER) as (server, process):
        with asked(server) as link:
            say(link, b"execute\n")
        assert (process.communicate(timeout=SECONDS)[0], process.returncode) == ("set()\n", 0)


def test_a_program_that_calls_site_itself_does_not_ask(tmp_path: Path) -> None:
    with started(tmp_path, sys.executable, "-S", "-c", "import site; site.main(); print('ran')") as (_, process):
        assert (process.communicate(timeout=SECONDS)[0], process.returncode) == ("ran\n", 0)


def test_an_interpreter_that_can_not_stand_in_prints_why() -> None:
    program = (
        "import threading\nfrom gangsidecar.start.hook import gang_handover\n"
        "link = gang_handover.Link()\n"
        "threading.Thread(target=gang_handover._stand_in, args=(link, [2], set())).start()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.stderr.splitlines()[-1].partition(":")[0], done.returncode) == ("ValueError", 1)
