"""The program that injects a fault inside a container, in a PID and mount namespace of its own, as a container is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gangctl.cli.targets.pod_exec import fault_source
from gangctl.cli.targets.port import InjectedFault
from gangctl.cluster.local.pod_record import PodProcess
from gangsidecar.wire import SUPERVISOR_PROGRAM
from tests.wait import SECONDS

UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
SUPERVISOR = """
import json, os, signal, subprocess, sys
def report(*words):  # at once: others write there, too
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
signal.signal(signal.SIGALRM, lambda *_: sys.exit())
for number in (signal.SIGCHLD, signal.SIGUSR1):
    signal.signal(number, lambda number, _: report("caught", number))
workers = {subprocess.Popen(["sleep", "60"]).pid: rank for rank in (0, 1)}
template = subprocess.Popen(["sleep", "60"]).pid
with open(os.path.dirname(sys.argv[0]) + "/workers.json", "w") as file:
    json.dump({**workers, 9999: 2}, file)
if os.fork() == 0:
    os.execvp(sys.executable, [sys.executable, "-IS", *sys.argv[1:]])
harming = True
while workers or harming:
    pid, how = os.wait()
    if pid in workers:
        report("rank", workers.pop(pid), "ended by", os.waitstatus_to_exitcode(how))
    elif pid == template:
        report("the template ended")
    else:
        harming = False
        report("injection ended with", os.waitstatus_to_exitcode(how))
        if how:
            break
        signal.alarm(3)
"""
"""Stands for the real one, as the first process. It ends with its workers, after a refusal, or 3 s later."""


@pytest.fixture
def container(tmp_path: Path) -> Path:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the system permits no PID namespace")
    (tmp_path / SUPERVISOR_PROGRAM).write_text(SUPERVISOR)
    return tmp_path


def inject(container: Path, before: str = "", **wanted: Any) -> subprocess.CompletedProcess[str]:
    program = fault_source(InjectedFault(**{"process": PodProcess.WORKER, **wanted}), str(container))
    (container / "program").write_text(before + program)
    command = [*UNSHARE, sys.executable, str(container / SUPERVISOR_PROGRAM), str(container / "program")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_a_signal_reaches_every_worker_process_or_that_of_one_rank(container: Path) -> None:
    said = inject(container, signal=("SIGKILL", 9)).stdout
    assert "rank 0 ended by -9" in said
    assert "rank 1 ended by -9" in said
    assert "injection ended with 0" in said
    assert "the template ended" not in said
    said = inject(container, signal=("SIGTERM", 15), rank=1).stdout
    assert "rank 1 ended by -15" in said
    assert "rank 0" not in said


def test_an_unknown_rank_is_rejected_with_the_known_ones(container: Path) -> None:
    done = inject(container, signal=("SIGKILL", 9), rank=7)
    assert done.stderr == "no process here has rank 7; ranks here: 0, 1\n"
    assert "injection ended with 3" in done.stdout


@pytest.mark.nightly
def test_a_worker_process_exits_with_a_code(container: Path) -> None:
    done = inject(container, exit_code=75, rank=0)
    if "ptrace_scope" in done.stderr:
        pytest.skip(f"the system doesn't permit it: {done.stderr}")
    assert "rank 0 ended by 75" in done.stdout


def test_the_first_process_is_killed_though_the_kernel_drops_sigkill_from_inside(container: Path) -> None:
    done = inject(container, process=PodProcess.SUPERVISOR, signal=("SIGKILL", 9))
    assert "supervisor process 1 is killed" in done.stdout
    assert "injection ended" not in done.stdout
    assert done.returncode != 0


def test_the_first_process_is_killed_where_ptrace_is_forbidden_too(container: Path) -> None:
    forbidden = (
        "import ctypes\n"
        "def refuse(*_): ctypes.set_errno(1); return -1\n"
        "class Library:\n"
        "    def __init__(self, *_, **__): self.ptrace = refuse\n"
        "ctypes.CDLL = Library\n"
    )
    done = inject(container, forbidden, process=PodProcess.SUPERVISOR, signal=("SIGKILL", 9))
    assert "supervisor process 1 is killed" in done.stdout
    assert "injection ended" not in done.stdout
    assert done.returncode != 0


def test_an_impossible_injection_is_rejected_with_advice(container: Path) -> None:
    done = inject(container, process=PodProcess.SUPERVISOR, signal=("SIGSTOP", 19))
    assert "can't be stopped from inside: set shareProcessNamespace" in done.stderr
    done = inject(container, process=PodProcess.SUPERVISOR, signal=("SIGUSR2", 12))
    assert "has no handler for SIGUSR2" in done.stderr
    done = inject(container, process=PodProcess.SIDECAR, signal=("SIGKILL", 9))
    assert "no sidecar process is visible" in done.stderr
    assert "caught 10" in inject(container, process=PodProcess.SUPERVISOR, signal=("SIGUSR1", 10)).stdout
