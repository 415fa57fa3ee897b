from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangctl.cluster.local import process
from gangctl.cluster.local.process import LocalProcess
from tests.wait import SECONDS, until, until_async


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[LocalProcess]:
    started = process.spawn(["sleep", "600"], os.environ, tmp_path, tmp_path / "log")
    yield started
    process.signal_process(started, signal.SIGKILL)
    asyncio.run(process.wait_for_end(started))


async def test_a_spawned_process_has_a_session_a_folder_a_log_and_no_input(tmp_path: Path) -> None:
    program = "import os, sys; print(os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read() == '', os.environ['X'])"
    started = process.spawn([sys.executable, "-c", program], {**os.environ, "X": "y"}, tmp_path, tmp_path / "log")
    assert await process.wait_for_end(started) == 0
    assert (tmp_path / "log").read_text() == f"{tmp_path} True True y\n"


async def test_a_missing_folder_is_logged(tmp_path: Path) -> None:
    started = process.spawn(["true"], os.environ, tmp_path / "missing", tmp_path / "log")
    assert await process.wait_for_end(started) not in {0, None}
    assert "missing" in (tmp_path / "log").read_text()


async def test_the_end_of_a_child_has_its_exit_code_or_signal(tmp_path: Path) -> None:
    started = process.spawn(["sh", "-c", "exit 7"], os.environ, tmp_path, tmp_path / "log")
    assert await process.wait_for_end(started) == 7
    killed = process.spawn(["sleep", "600"], os.environ, tmp_path, tmp_path / "log")
    assert process.signal_process(killed, signal.SIGKILL)
    assert await process.wait_for_end(killed) == -signal.SIGKILL


async def test_the_end_of_a_process_that_is_no_child_is_noticed_without_its_exit_code(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    parent = process.spawn(["sh", "-c", f"sleep 600 & echo $! > {pid_file}"], os.environ, tmp_path, tmp_path / "log")
    assert await process.wait_for_end(parent) == 0
    stranger = process.process_of(int(pid_file.read_text()))
    assert stranger is not None
    waiting = asyncio.create_task(process.wait_for_end(stranger))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    assert process.signal_process(stranger, signal.SIGKILL)
    async with asyncio.timeout(SECONDS):
        assert await waiting is None
    assert not process.is_alive(stranger)


async def test_a_process_with_a_reused_pid_is_another_process(sleeper: LocalProcess) -> None:
    for other in (
        sleeper.model_copy(update={"start_time": sleeper.start_time - 1}),
        sleeper.model_copy(update={"boot": "another"}),
    ):
        assert not process.is_alive(other)
        assert not process.signal_process(other, signal.SIGKILL)
        assert process.descendants(other) == process.children(other) == ()
        async with asyncio.timeout(SECONDS):
            assert await process.wait_for_end(other) is None
    assert process.is_alive(sleeper)


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    found = process.process_of(child.pid)
    assert found is not None
    child.kill()
    until("the process has ended", lambda: not process.is_alive(found))
    assert process.process_of(child.pid) is None
    assert not process.signal_process(found, signal.SIGTERM)
    child.wait()


def test_a_process_whose_first_thread_has_ended_runs_until_its_last_has(tmp_path: Path) -> None:
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    environment = {**os.environ, "GANG_POD_UID": "threads", "GANG_SUPERVISED": "1"}
    child = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment)
    found = process.process_of(child.pid)
    assert found is not None
    stat = Path(f"/proc/{child.pid}/stat")
    until("the first thread has ended", lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    assert process.is_alive(found)
    assert process.find_marked("threads") == (found,)
    assert process.signal_process(found, signal.SIGKILL)
    child.wait()
    assert not process.is_alive(found)


async def test_all_below_a_process_are_found_and_workers_by_their_mark(tmp_path: Path) -> None:
    program = "sleep 601 & setsid sleep 602 & wait"
    environment = {**os.environ, "GANG_POD_UID": "pod-of-this-test", "GANG_SUPERVISED": "1"}
    top = process.spawn(["sh", "-c", program], environment, tmp_path, tmp_path / "log")
    try:
        below = await until_async(
            "both descendants run", lambda: found if len(found := process.descendants(top)) == 2 else None
        )
        # A process that executes another program has no environment for a moment.
        await until_async("all are marked", lambda: set(process.find_marked("pod-of-this-test")) == {top, *below})
        assert process.find_marked("pod-of-this") == ()
        assert set(process.children(top)) == set(below)
    finally:
        for one in process.find_marked("pod-of-this-test"):
            process.signal_process(one, signal.SIGKILL)
        await process.wait_for_end(top)
