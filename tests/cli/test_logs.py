"""`gangctl logs` of gangs on this machine, with real processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.cli.targets.logs import in_order, own_part, stream_files, workers_part
from gangctl.cli.targets.port import LogOptions
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.log_files import ROTATE_BYTES, rotated_path
from tests.cli.here import Here, manifest
from tests.wait import SECONDS, until

SPEAKS = ("sh", "-c", 'echo "hello of $RANK"; echo "and more"; exec sleep 1000')
OWN = b"2026-01-31T12:00:00.123Z info gangctl-supervisor: a session begins session=1"
LINES = 80_000
FLOODS = """
import os, time
line = b"%07d" + b"x" * 1016 + b"\\n"
for at in range({lines}):
    os.write(1, line % at)
    if at % 100 == 0:
        time.sleep(0.001)  # Else thousands are lost if the rotation has to wait for a processor before it truncates.
print("done", flush=True)
time.sleep(1000)
"""


def _pod(folder: Here, member: str = "worker-0") -> PodFolder:
    return folder.state.gang("g").pod(f"g-{member}-0")


def _runs(folder: Here, replicas: int, command: tuple[str, ...] = SPEAKS, **role: object) -> None:
    """Start a gang and wait until each worker has spoken."""
    content = manifest(command, replicas)
    content["spec"]["roles"][0].update(role)
    folder.write(content)
    folder.run()
    logs = [_pod(folder, f"worker-{at}").worker_log for at in range(replicas)]
    until("each worker speaks", lambda: all(path.exists() and b"more" in path.read_bytes() for path in logs))


def test_the_log_of_a_worker_is_the_workers_and_a_healthy_start_warns_of_nothing(folder: Here) -> None:
    _runs(folder, 2)
    assert folder.gangctl("logs", "g").stdout.splitlines() == [
        "worker-0 | hello of 0",
        "worker-0 | and more",
        "worker-1 | hello of 1",
        "worker-1 | and more",
    ]
    assert folder.gangctl("logs", "g", "worker-1", "--tail", "1").stdout == "and more\n"
    until("the sidecar is connected", lambda: "connected" in _pod(folder).sidecar_log.read_text())
    own = folder.gangctl("logs", "g", "worker-0", "--gangctl").stdout.splitlines()
    times = [line.split()[0] for line in own]
    assert sorted(times) == times
    assert {line.split()[2] for line in own} == {"gangctl-supervisor:", "gangctl-sidecar:"}
    assert any("a session begins" in line for line in own)
    assert [line for line in own if " info " not in line] == []
    sidecar = folder.gangctl("logs", "g", "worker-0", "--sidecar").stdout.splitlines()
    assert sidecar == [line for line in own if "gangctl-sidecar:" in line]


def test_a_rank_that_shares_a_pod_is_shown_with_the_ranks_of_its_pod(folder: Here) -> None:
    _runs(folder, 2, processesPerPod=2, launch="PerProcess")
    until("all processes have spoken", lambda: folder.gangctl("logs", "g").stdout.count("and more") == 4)
    done = folder.gangctl("logs", "g", "--rank", "3")
    assert sorted(done.stdout.splitlines()) == [
        "worker-1 ranks 2-3 | and more",
        "worker-1 ranks 2-3 | and more",
        "worker-1 ranks 2-3 | hello of 2",
        "worker-1 ranks 2-3 | hello of 3",
    ]
    assert "ranks 2-3 run in the pod of worker-1 and share one log" in done.stderr
    assert folder.gangctl("logs", "g", "--rank", "3", "--gangctl").stderr == ""


def test_a_rank_that_has_its_pod_for_itself_needs_no_prefix(folder: Here) -> None:
    _runs(folder, 2)
    done = folder.gangctl("logs", "g", "--rank", "1")
    assert (done.stdout, done.stderr) == ("hello of 1\nand more\n", "")


@pytest.mark.nightly
@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_logs_ends_silently_when_its_reader_is_gone(folder: Here, follow: tuple[str, ...]) -> None:
    _runs(folder, 2)
    if not follow:  # More than fits into a pipe.
        _pod(folder).worker_log.write_bytes(b"and more\n" * 100_000)
    command = [sys.executable, "-m", "gangctl", "logs", "g", *follow]
    with subprocess.Popen(
        command, cwd=folder.path, env=folder.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as logs:
        assert logs.stdout is not None
        assert logs.stderr is not None
        assert logs.stdout.readline().startswith(b"worker-0 | ")
        logs.stdout.close()
        assert logs.wait(SECONDS) == 141
        assert logs.stderr.read() == b""


@pytest.mark.nightly
def test_a_log_that_grows_without_end_is_rotated_and_a_reader_misses_no_line(folder: Here) -> None:
    seen = folder.path / "seen"
    folder.write(manifest((sys.executable, "-c", FLOODS.format(lines=LINES)), 1))
    folder.run()
    pod = _pod(folder)
    until("the worker writes", lambda: pod.worker_log.exists() and pod.worker_log.stat().st_size > 0)
    command = [sys.executable, "-m", "gangctl", "logs", "g", "-f"]
    with (
        seen.open("wb") as out,
        subprocess.Popen(command, cwd=folder.path, env=folder.env(), stdout=out, stderr=subprocess.STDOUT) as logs,
    ):
        until("all is read", lambda: seen.stat().st_size > 0 and _end(seen).endswith(b"\ndone\n"))
        logs.kill()
    until(
        "it is rotated", lambda: rotated_path(pod.worker_log).exists() and pod.worker_log.stat().st_size < ROTATE_BYTES
    )
    numbers = [int(line[:7]) for line in seen.read_bytes().splitlines() if line != b"done"]
    assert numbers == sorted(numbers)
    assert len(numbers) > LINES * 0.99, "what is written in the moment of the truncation may be lost"
    again = folder.gangctl("logs", "g").stdout.splitlines()
    assert [int(line[:7]) for line in again[:-1]] == numbers


def _end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16))
        return file.read()


@pytest.mark.parametrize(
    ("line", "workers", "own"),
    [
        (b"step 7", b"step 7", None),
        (b"", b"", None),
        (OWN, None, OWN),
        (b" 50%|###   | 5/10" + OWN, b" 50%|###   | 5/10", OWN),
        (b"2026-01-31T12:00:00.123Z info a session begins", b"2026-01-31T12:00:00.123Z info a session begins", None),
        (b"gangctl-supervisor: is quoted", b"gangctl-supervisor: is quoted", None),
    ],
)
def test_lines_of_the_supervisor_are_told_from_those_of_its_worker(
    line: bytes, workers: bytes | None, own: bytes | None
) -> None:
    assert (workers_part(line), own_part(line)) == (workers, own)


def test_lines_without_a_time_stay_behind_the_one_before() -> None:
    first = [b"2026-01-31T12:00:01.000Z info a", b"Traceback", b"2026-01-31T12:00:03.000Z info b"]
    second = [b"2026-01-31T12:00:02.000Z info c"]
    assert list(in_order([first, second])) == [first[0], first[1], second[0], first[2]]


def test_every_line_that_gangctl_writes_has_the_form_that_is_looked_for(folder: Here) -> None:
    _runs(folder, 1)
    lines = _pod(folder).supervisor_log.read_bytes().splitlines()
    assert lines
    assert all(own_part(line) == line for line in lines)
    assert all(
        re.match(rb"\S+Z \w+ gangctl-sidecar: ", line) for line in _pod(folder).sidecar_log.read_bytes().splitlines()
    )


def test_a_followed_log_goes_on_in_the_pod_that_replaces_the_first_or_comes_later(tmp_path: Path) -> None:
    store = GangStore(GangFolder(tmp_path / "g"))
    store.create(GangJob.model_validate(manifest(replicas=2)), tmp_path)
    seen: list[tuple[str, bytes]] = []

    def write(pod: str, content: str) -> None:
        store.folder.pod(pod).path.mkdir(parents=True)
        store.folder.pod(pod).worker_log.write_text(content)

    def sink(member: str, line: bytes) -> None:
        seen.append((member, line))
        if line == b"first":
            write("g-worker-0-1", "second\n")
            write("g-worker-1-0", "late")
        elif line == b"second":
            store.folder.job.unlink()

    write("g-worker-0-0", "first\nno newline")
    stream_files(store, LogOptions(members=("worker-0", "worker-1"), follow=True), sink)
    assert seen == [
        ("worker-0", b"first"),
        ("worker-0", b"no newline"),
        ("worker-0", b"second"),
        ("worker-1", b"late"),
    ]
