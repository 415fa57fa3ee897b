"""The supervisor's event loop: its forked helpers and its signals, with real processes."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.wait import SECONDS

KILLED_BEFORE_THE_KERNEL_KNOWS = """
import os, signal, time
from gangsidecar.supervisor import event_loop, kernel

ask = kernel.prctl

def too_late(option, value):
    parent = os.getppid()
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.001)
    return ask(option, value)

kernel.prctl = too_late
event_loop.fork(lambda pipe: print("it works", flush=True))
time.sleep(60)
"""

SIGNALLED_BETWEEN_TWO_HANDLERS = """
import os, signal
from gangsidecar.supervisor.event_loop import EventLoop

def caught():
    yield signal.SIGTERM
    os.kill(os.getpid(), signal.SIGTERM)
    yield signal.SIGINT

loop = EventLoop()
loop.catch(caught(), lambda signum: print(signal.Signals(signum).name))
loop.turn(0)
"""


def test_a_helper_whose_parent_is_killed_before_the_kernel_knows_of_it_ends_as_well() -> None:
    command = [sys.executable, "-c", KILLED_BEFORE_THE_KERNEL_KNOWS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, ""), ended.stderr


def test_a_signal_that_comes_while_handlers_are_installed_is_not_lost() -> None:
    command = [sys.executable, "-c", SIGNALLED_BETWEEN_TWO_HANDLERS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ended.returncode, ended.stdout) == (0, "SIGTERM\n"), ended.stderr
