"""A template and the memory of its container: it goes before the workers must, and its end is not theirs."""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from gangsidecar.wire import Progress
from tests.sidecar.supervisor.supervised import is_alive, wait_for
from tests.sidecar.supervisor.warm import Warm, executed, is_gone, template_ends

pytestmark = pytest.mark.usefixtures("greeting")


def test_a_container_with_little_memory_gets_no_template(warm: Warm, small_group: Path) -> None:
    warm.start(sys.executable, str(warm.script))
    (small_group / "cgroup.procs").write_text(str(warm.member.pid))
    warm.run()
    warm.report()
    warm.member.sidecar.send(Progress(warm.attempt, 1, 0))
    assert re.fullmatch(r"the container's memory limit leaves \d+ MiB, and a template may take 512 MiB", executed(warm))


def test_a_container_that_gets_short_of_memory_gives_its_template_up(warm: Warm, small_group: Path) -> None:
    warm.start(sys.executable, str(warm.script), preload="decimal")
    template = warm.ready()
    (small_group / "cgroup.procs").write_text(str(warm.member.pid))
    wait_for(partial(is_gone, template))
    assert executed(warm).startswith("the container's memory limit left only ")


@pytest.mark.parametrize(("signum", "oom"), [(signal.SIGKILL, False), (signal.SIGUSR1, True)])
def test_a_template_that_the_kernel_killed_is_not_taken_for_a_worker(
    warm: Warm, small_group: Path, signum: int, *, oom: bool
) -> None:
    (small_group / "memory.limit_in_bytes").write_text(str(400 << 20))
    takes = "import signal; signal.signal(signal.SIGUSR1, lambda *_: bytes(bytearray(range(256)) * (600 << 12)))"
    warm.install("greedy", takes)
    warm.start(sys.executable, str(warm.script), preload="greedy")
    template = warm.ready()
    worker = warm.run()
    assert warm.report()[0] == "hello"
    assert warm.told.forked == 1
    for pid in (warm.member.pid, template, worker):
        (small_group / "cgroup.procs").write_text(str(pid))
    os.kill(warm.member.pid, signal.SIGSTOP)  # It would see that memory gets short, and end the template itself.
    os.kill(template, signal.SIGUSR1)
    wait_for(partial(is_gone, template))
    os.kill(warm.member.pid, signal.SIGCONT)
    template_ends(warm)
    assert "the template was killed" in warm.member.log
    assert is_alive(worker)
    os.kill(worker, signum)
    end = warm.member.ended().ends[-1]
    assert (end.signal, end.oom) == (signal.SIGKILL, oom)
