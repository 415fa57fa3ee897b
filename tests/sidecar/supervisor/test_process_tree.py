"""Every process of a worker is found, signalled and killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from gangsidecar.supervisor import processes
from tests.sidecar.supervisor.supervised import (
    SLEEP,
    Member,
    is_alive,
    is_zombie,
    pids,
    program,
    python,
    shell,
    state,
    wait_for,
)


def test_daemons_in_other_sessions_are_gone_before_ready(member: Member) -> None:
    member.train(
        *python(
            "import os, signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "def note():\n"
            "    with open(os.environ['DIR'] + '/pids', 'a') as file: file.write(f'{os.getpid()} ')\n"
            "def daemon():\n"
            "    if os.fork(): return\n"
            "    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    note(); os.execve('/bin/sleep', ['sleep', '1000'], {})\n"
            "daemon(); daemon(); note(); time.sleep(1000)\n"
        )
    )
    workers = wait_for(lambda: len(pids(member.file())) == 3 and pids(member.file()))
    report = member.hold(2, grace_ms=200)
    assert not any(map(is_alive, workers))
    assert report.stop_ms is not None
    assert report.stop_ms >= 200


def test_what_a_worker_left_behind_is_gone_before_ready(member: Member) -> None:
    member.train(*shell('setsid sh -c \'trap "" TERM; echo $$ >> "$DIR/pids"; sleep 1000\' & sleep 0.2; exit 3'))
    member.ended()
    workers = wait_for(lambda: len(pids(member.file())) == 2 and pids(member.file()))
    assert is_alive(workers[1])
    report = member.hold(2, grace_ms=60_000)
    assert not any(map(is_alive, workers))
    assert report.ends[0].exit_code == 3


def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(member: Member) -> None:
    member.train(*shell("trap '' TERM; echo ready > $DIR/ready; while :; do sleep 0.01; done"))
    wait_for(member.file("ready").exists)
    report = member.hold(2, grace_ms=300)
    (end,) = report.ends
    assert (end.signal, end.stopped) == (signal.SIGKILL, True)
    assert report.stop_ms is not None
    assert report.stop_ms >= 300


def test_a_worker_that_forks_all_the_time_is_killed(member: Member) -> None:
    member.train(
        *python(
            "import os, signal\n"
            "signal.signal(15, signal.SIG_IGN)\n"
            "open(os.environ['DIR'] + '/ready', 'w').close()\n"
            "while True:\n"
            "    if os.fork(): os._exit(0)\n"
        )
    )
    wait_for(member.file("ready").exists)
    member.hold(2, grace_ms=50)
    assert processes.find_marked(member.pod) == []


def test_a_worker_under_sigstop_can_handle_sigterm(member: Member) -> None:
    member.train(*python("import os, signal\nsignal.signal(15, lambda *_: os._exit(7))\nos.kill(os.getpid(), 19)"))
    worker = wait_for(lambda: processes.children(member.pid))[0]
    wait_for(lambda: state(worker) == "T")
    (end,) = member.hold(2).ends
    assert (end.exit_code, end.stopped) == (7, True)


def test_the_supervisor_forwards_signals_to_the_worker(member: Member) -> None:
    member.train(*shell("trap 'exit 9' USR1; echo ready > $DIR/ready; while :; do sleep 0.01; done"))
    wait_for(member.file("ready").exists)
    os.kill(member.pid, signal.SIGUSR1)
    (end,) = member.ended().ends
    assert (end.exit_code, end.stopped) == (9, False)


def test_a_new_supervisor_kills_what_a_killed_one_left_before_it_reports(member: Member) -> None:
    old = member.train(*shell("setsid sleep 1000 & exec sleep 1000"))
    left = wait_for(lambda: len(found := processes.find_marked(member.pod)) >= 2 and found)
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    assert any(map(is_alive, left))
    new = member.start(*SLEEP)
    assert not any(map(is_alive, left))
    assert new.session != old.session
    assert new.attempt == 0


def test_a_new_supervisor_kills_a_worker_whose_first_thread_has_ended(member: Member) -> None:
    member.train(
        *python(
            "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1000,)).start(); "
            "ctypes.CDLL(None).pthread_exit(None)"
        )
    )
    (worker,) = wait_for(lambda: processes.children(member.pid))
    second_thread = wait_for(lambda: [one for one in Path(f"/proc/{worker}/task").iterdir() if int(one.name) != worker])
    wait_for(lambda: is_zombie(worker))
    os.kill(member.pid, signal.SIGKILL)
    member.wait()
    assert second_thread[0].exists()
    member.start(*SLEEP)
    assert not second_thread[0].exists()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare starts a process as PID 1")
def test_pid_1_reaps_and_kills_everything_in_its_namespace(member: Member, archive: Path) -> None:
    namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no right to make a PID namespace")
    flags = {
        "socket": member.folder / "socket",
        "state": member.state,
        "gang": "g1",
        "member": "w",
        "pod": member.pod,
    }
    command = shell("trap '' TERM; setsid -f sh -c 'trap \"\" TERM; sleep 999'; echo x > $DIR/ready; sleep 1000")
    given = [f"--{name}={value}" for name, value in flags.items()]
    member.process = subprocess.Popen(
        [*namespace, *program(archive), "run", *given, "--address=1", "--", *command],
        env={**os.environ, "DIR": str(member.folder)},
        stderr=subprocess.DEVNULL,
    )
    member.sidecar.accept()
    member.run(member.hold(1))
    wait_for(member.file("ready").exists)
    before = wait_for(lambda: len(found := processes.find_marked(member.pod)) >= 3 and found)
    assert member.hold(2, grace_ms=100).ends[0].signal == signal.SIGKILL
    assert not any(map(is_alive, before))
    member.finish(2)
