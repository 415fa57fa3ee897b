from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import process
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.pod_record import PodProcess, controller_pid, live_processes, pod_of
from gangctl.cluster.local.ptrace import exit_with
from tests.cluster.local import machine
from tests.wait import until

BUSY = "import threading\nthreading.Thread(target=lambda: print('up', flush=True)).start()\nwhile True: pass"
ASLEEP = "import time, threading\nprint('up', flush=True)\ntime.sleep(600)"
THREADS = (
    "import time, threading\n"
    "for _ in range(4): threading.Thread(target=time.sleep, args=(600,)).start()\n"
    "print('up', flush=True)\nthreading.Event().wait()"
)
STUBBORN = (
    "import atexit, signal, time\natexit.register(print, 'never')\n"
    "for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
)


@pytest.fixture(params=[BUSY, ASLEEP, THREADS, STUBBORN], ids=["busy", "asleep", "threads", "stubborn"])
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", request.param], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "up\n"
        yield started
        started.kill()


def test_a_running_process_exits_with_the_code_that_was_asked_for(child: subprocess.Popen[str]) -> None:
    try:
        exit_with(child.pid, 78)
    except Terminal as error:
        if "ptrace_scope" in str(error):
            pytest.skip(f"the system doesn't permit it: {error}")
        raise
    assert child.wait(10) == 78
    assert child.stdout is not None
    assert child.stdout.read() == "", "no handler of its own has run"


@pytest.mark.parametrize("code", [-1, 256])
def test_an_invalid_exit_code_is_rejected(code: int) -> None:
    with pytest.raises(Terminal, match="is no exit code"):
        exit_with(os.getpid(), code)


def test_a_process_that_is_gone_or_is_the_caller_is_an_error_with_the_reason() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
        with pytest.raises(Terminal, match=f"process {gone.pid} is gone"):
            exit_with(gone.pid, 3)
    with pytest.raises(Terminal, match=r"can't be made to exit with a code: Operation not permitted.*ptrace_scope"):
        exit_with(os.getpid(), 3)


async def test_the_processes_of_a_member_are_found_by_name(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        pod = await here.create()
        assert pod_of(here.folder, "worker-0") == pod
        files = here.folder.pod(pod.name)
        assert live_processes(pod, files, PodProcess.SUPERVISOR) == {pod.supervisor: None}
        assert live_processes(pod, files, PodProcess.SIDECAR) == {pod.sidecar: None}
        assert live_processes(pod, files, PodProcess.WORKER) == {}, "none was started yet"
        with pytest.raises(Terminal, match="no pod of member worker-9 runs; members with running pods: worker-0"):
            pod_of(here.folder, "worker-9")


def test_the_lock_names_the_controller_and_a_stale_pid_does_not_count(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from gangctl.cluster.local.layout import only_controller\n"
        "from gangctl.cluster.local.layout import StateDirectory\n"
        "with only_controller(StateDirectory(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()\n"
    )
    state = StateDirectory(tmp_path)
    assert controller_pid(state) is None
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert controller_pid(state) == holder.pid
        holder.kill()
        until("the process has ended", lambda: process.process_of(holder.pid) is None)
    assert controller_pid(state) is None
    with subprocess.Popen(["gangctl", "600"], executable="/usr/bin/sleep") as other:
        state.lock.write_text(str(other.pid))
        assert controller_pid(state) is None
        other.send_signal(signal.SIGKILL)
