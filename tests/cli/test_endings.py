"""`gangctl stop`, `delete` and `rerun` on this machine, with a controller and after it was killed."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.cli.gang_view import live_snapshot
from gangctl.cli.main import main
from gangctl.cli.targets import ending
from gangctl.cluster.local import process
from gangctl.cluster.local.pod_record import controller_pid
from tests.cli.here import LOOP, Here, Running, manifest
from tests.cli.test_run import ONCE
from tests.wait import until

STUBBORN = (
    "sh",
    "-c",
    'trap "" TERM; echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; exec sleep 1000000',
)
SAYS_TERM = 'trap ": > asked" TERM; echo "$GANG_ATTEMPT" >> "$GANG_MEMBER.attempts"; while true; do sleep 0.1; done'
"""A worker that goes on after SIGTERM."""
FULL = "gangjob.json can't be written: No space left on device"


def without_a_controller(folder: Here, command: Sequence[str] = LOOP, replicas: int = 3, **recovery: int) -> None:
    """A gang whose `gangctl run` was killed, as was its controller."""
    folder.write(manifest(command, replicas, recovery=recovery))
    run = folder.run()
    folder.runs_attempt(1, replicas)
    run.signal(signal.SIGKILL)
    run.wait()
    until("its controller has ended", lambda: folder.controllers() == [] and live_snapshot(folder.state, "g") is None)


def test_stop_ends_every_process_of_a_gang_without_a_controller(folder: Here) -> None:
    without_a_controller(folder)
    done = folder.gangctl("stop", "g")
    assert done.returncode == 0, done.stderr
    assert "no controller runs: ending every process of worker-0, worker-1 and worker-2" in done.stdout
    assert "SIGKILL comes after 2 s" in done.stdout
    assert "g is stopped: no process of it is left" in done.stdout
    assert folder.left() == []
    assert folder.job.status.phase == "Suspended"
    again = folder.gangctl("stop", "g")
    assert again.returncode == 0
    assert "ending every process" not in again.stdout


def test_a_stopped_gang_continues_in_a_new_attempt(folder: Here) -> None:
    without_a_controller(folder)
    folder.gangctl("stop", "g")
    assert folder.gangctl("rerun", "g").returncode == 2
    assert folder.gangctl("resume", "g").returncode == 0
    folder.run()
    folder.runs_attempt(2)


@pytest.mark.nightly
def test_stop_kills_a_worker_that_ignores_sigterm_after_the_grace(folder: Here) -> None:
    without_a_controller(folder, STUBBORN, 1)
    assert folder.gangctl("stop", "g").returncode == 0
    assert folder.left() == []


def test_a_worker_has_the_whole_planned_grace_without_a_controller(folder: Here) -> None:
    """It saves for longer than the grace of a fault, and than its supervisor would wait before that."""
    saves = SAYS_TERM.replace(": > asked", "trap '' TERM; sleep 5; : > saved; exit")
    without_a_controller(folder, ("sh", "-c", saves), 1, stopGracePeriodSeconds=1, plannedStopGracePeriodSeconds=600)
    assert folder.gangctl("stop", "g").returncode == 0
    assert (folder.path / "saved").exists()
    assert folder.left() == []


def test_ctrl_c_kills_at_once_what_stop_waits_for(folder: Here) -> None:
    without_a_controller(folder, ("sh", "-c", SAYS_TERM), 1, plannedStopGracePeriodSeconds=600)
    command = [sys.executable, "-m", "gangctl", "stop", "g"]
    with subprocess.Popen(command, cwd=folder.path, env=folder.env(), stdout=subprocess.PIPE, text=True) as stop:
        assert stop.stdout is not None
        assert "SIGKILL comes after 600 s" in stop.stdout.readline()
        until("it has sent SIGTERM", (folder.path / "asked").exists)
        stop.send_signal(signal.SIGINT)
        assert "killing what is left" in stop.stdout.read()
        assert stop.wait(30) == 0
    assert folder.left() == []
    assert folder.job.status.phase == "Suspended"


def test_without_a_controller_a_stop_that_takes_too_long_is_an_error_and_kills_no_worker(folder: Here) -> None:
    without_a_controller(folder, ("sh", "-c", SAYS_TERM), 1, plannedStopGracePeriodSeconds=30)
    worker = folder.workers()
    done = folder.gangctl("stop", "g", "--wait", "5")
    assert done.returncode == 1
    assert "only gangctl stop g kills those that stay" in done.stdout
    assert "error: g is not stopped yet" in done.stderr
    assert (folder.path / "asked").exists()
    assert folder.workers() == worker
    assert folder.gangctl("delete", "g", "--wait", "0").returncode == 1
    assert folder.state.gang("g").job.exists()


@pytest.mark.nightly
def test_with_a_controller_stop_waits_for_it_and_the_run_goes_on(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    done = folder.gangctl("stop", "g")
    assert done.returncode == 0, done.stderr
    assert "the controller (process " in done.stdout
    assert folder.pods() == {} or all(one.terminated for one in folder.pods().values())
    assert folder.workers() == {}
    assert run.child.poll() is None
    assert folder.gangctl("resume", "g").returncode == 0
    folder.runs_attempt(2)


@pytest.mark.nightly
def test_a_stop_that_takes_too_long_is_an_error_and_goes_on(folder: Here) -> None:
    folder.write(manifest(STUBBORN, 1))
    folder.run()
    folder.runs_attempt(1, 1)
    done = folder.gangctl("stop", "g", "--wait", "0")
    assert done.returncode == 1
    assert "error: g is not stopped yet; it goes on" in done.stderr
    until("it is stopped", lambda: folder.workers() == {} and folder.job.status.phase == "Suspended")


@pytest.mark.nightly
def test_delete_removes_a_gang_without_a_controller(folder: Here) -> None:
    without_a_controller(folder)
    done = folder.gangctl("delete", "g")
    assert done.returncode == 0, done.stderr
    assert "g is deleted" in done.stdout
    assert "resume" not in done.stdout
    assert folder.left() == []
    assert not folder.state.gang("g").path.exists()
    assert folder.gangctl("status", "g").returncode == 2


def test_delete_ends_the_run_that_watches_the_gang(folder: Here) -> None:
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    done = folder.gangctl("delete", "g")
    assert done.returncode == 0, done.stderr
    assert run.wait() == 1
    assert "g was deleted" in run.said
    assert folder.left() == []
    assert not folder.state.gang("g").path.exists()


@pytest.mark.nightly
def test_a_gang_whose_file_is_damaged_can_be_deleted(folder: Here) -> None:
    without_a_controller(folder)
    folder.state.gang("g").job.write_text("{")
    assert folder.gangctl("stop", "g").returncode == 2
    done = folder.gangctl("delete", "g")
    assert done.returncode == 0, done.stderr
    assert "isn't a stored GangJob" in done.stdout
    assert folder.left() == []
    assert not folder.state.gang("g").path.exists()


def test_a_damaged_gang_is_deleted_once_its_controller_has_given_its_workers_their_grace(
    folder: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saves = ("sh", "-c", SAYS_TERM.replace(": > asked", "sleep 4; : > saved; exit"))
    other = manifest(("sleep", "1000000"), 1)
    other["metadata"]["name"] = "other"  # Its run goes on, and so does the controller.
    folder.write(yaml.safe_dump_all([manifest(saves, 1, recovery={"stopGracePeriodSeconds": 600}), other]))
    folder.run()
    folder.runs_attempt(1, 1)
    folder.state.gang("g").job.write_text("{")
    monkeypatch.chdir(folder.path)
    monkeypatch.setattr(ending, "_RECORDS_SECONDS", 1)
    assert main(["delete", "g"]) == 0, capsys.readouterr()
    assert (folder.path / "saved").exists()
    assert not folder.state.gang("g").path.exists()


@pytest.mark.parametrize("writes", ["once", "on and on"])
def test_delete_removes_what_an_ending_process_still_writes(
    folder: Here, writes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file appears while its folder is removed."""
    gang, remove, is_ending = folder.state.gang("g"), shutil.rmtree, writes == "once"
    late = iter(["last words"] if is_ending else cycle(["more"]))

    def removed(path: Path, **options: Any) -> None:
        remove(path, **options)
        if path == gang.path and (text := next(late, "")):
            path.mkdir()
            (path / "out").write_text(text)
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))

    gang.path.mkdir(parents=True)
    gang.job.write_text("{")
    monkeypatch.chdir(folder.path)
    monkeypatch.setattr(shutil, "rmtree", removed)
    if not is_ending:
        monkeypatch.setattr(ending, "_RECORDS_SECONDS", 0)
    assert main(["delete", "g"]) == (0 if is_ending else 2)
    assert gang.path.exists() is not is_ending
    said = "g is deleted" if is_ending else f"{gang.path} can't be removed: Directory not empty"
    assert said in "".join(capsys.readouterr())


def test_a_gang_whose_controller_can_store_nothing_can_be_deleted(folder: Here) -> None:
    """The limit of a file's size is the full disk."""
    folder.write(manifest())
    run = folder.run()
    folder.runs_attempt(1)
    controller = controller_pid(folder.state)
    assert controller is not None
    resource.prlimit(controller, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
    stopped = folder.gangctl("stop", "g")
    assert stopped.returncode == 2
    assert "File too large" in stopped.stderr
    done = folder.gangctl("delete", "g")
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert run.wait() == 1
    assert folder.left() == []
    assert not folder.state.gang("g").path.exists()


def test_a_gang_without_a_controller_can_be_deleted_on_a_full_disk(folder: Here) -> None:
    without_a_controller(folder)
    command = f"ulimit -f 0; exec '{sys.executable}' -m gangctl delete g"
    done = subprocess.run(["sh", "-c", command], cwd=folder.path, env=folder.env(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert folder.left() == []
    assert not folder.state.gang("g").path.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_ctrl_c_on_a_full_disk_ends_a_gang_whose_workers_are_seen_to_be_dead(folder: Here) -> None:
    folder.state.path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder.state.path)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        folder.write(manifest())
        run = folder.run()
        folder.runs_attempt(1)
        with suppress(OSError), (folder.state.path / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        for worker in folder.workers().values():
            process.signal_process(worker, signal.SIGKILL)
        until("it is seen", lambda: re.search(r"Running +attempt 1 +ready 0/3", folder.gangctl("status", "g").stdout))
        until("run tells of the disk", lambda: FULL in run.said)
        until("so does the status", lambda: FULL in " ".join(folder.gangctl("status", "g").stdout.split()))
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert "error" not in run.said
        assert "every process has ended all the same" in run.said
        assert folder.left() == []
        assert folder.gangctl("why").stdout.startswith("g: Stopped, attempt 1")
    finally:
        folder.clean()
        subprocess.run(["umount", "-l", folder.state.path], check=True)


@pytest.mark.nightly
def test_stop_ends_the_other_pods_if_the_record_of_one_is_damaged(folder: Here) -> None:
    without_a_controller(folder)
    kept = folder.workers()["worker-1"]
    record = folder.state.gang("g").pod(folder.pods()["worker-1"].name).record
    content = record.read_text()
    record.write_text("{")
    done = folder.gangctl("stop", "g")
    assert done.returncode == 2
    assert f"{record} isn't a pod" in done.stderr
    record.write_text(content)
    assert folder.workers() == {"worker-1": kept}
    assert folder.gangctl("stop", "g").returncode == 0
    assert folder.left() == []


def test_rerun_runs_an_ended_gang_again_where_it_ran(folder: Here, tmp_path: Path) -> None:
    folder.write(manifest(ONCE, 1))
    assert folder.run().wait() == 0
    uid = folder.job.metadata.uid
    (tmp_path / "job.yaml").unlink()
    done = folder.gangctl("rerun", "g", "--logs")
    assert done.returncode == 0, done.stderr
    assert "it replaces the one that has succeeded" in done.stdout
    assert "hello of 0" in done.stdout
    assert folder.job.metadata.uid != uid
    assert folder.attempts() == {"worker-0": [1, 1]}
    ended = folder.gangctl("stop", "g")
    assert ended.stdout == "g has ended (Succeeded); no process of it is left\n"
    hint = folder.gangctl("restart", "g")
    assert "gangctl rerun g runs it again" in hint.stderr


def test_a_running_gang_is_not_run_again(folder: Here) -> None:
    folder.write(manifest())
    run: Running = folder.run()
    folder.runs_attempt(1)
    done = folder.gangctl("rerun", "g")
    assert done.returncode == 2
    assert "gang g has not ended (Running): gangctl restart g starts a new attempt of it" in done.stderr
    assert run.child.poll() is None
    assert set(folder.attempts()["worker-0"]) == {1}
