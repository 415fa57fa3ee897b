"""An interpreter that stands in for a fork, as the supervisor speaks with it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

from tests.wait import SECONDS

GETS_A_SIGNAL_BEFORE_IT_WAITS = """
import ctypes, os, signal, socket, sys
from itertools import starmap
from operator import call
from gangsidecar.start.hook import gang_handover

class Link(socket.socket):
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
