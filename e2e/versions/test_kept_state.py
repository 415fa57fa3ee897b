"""Survivors that keep their weights under `gangctl run`, and what ends a collective of gloo, with the newest torch."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.frameworks.examples import EXAMPLES
from e2e.versions.test_versions import CLIENT, SECONDS, python
from gangctl.cluster.local import process
from tests.cli.here import Here, Running, here, manifest
from tests.ports import free_port
from tests.wait import until

STEPS = 400
PATIENT = {"stopGracePeriodSeconds": 60}
BRIEF = {"stopGracePeriodSeconds": 10}
HANGS = {"onHang": "Restart", "timeoutSeconds": 5}
"""A rank leaves a collective when the next one has closed its group; on a machine that is busy that takes a second."""
TIERS: list[dict[str, Any]] = [
    {"name": "live", "scope": "Process", "source": {"type": "API"}},
    {
        "name": "disk",
        "scope": "Shared",
        "source": {"type": "Directory", "layout": "Pattern", "pattern": "step-{step}", "complete": "DONE"},
    },
]
COLLECTIVE = """
import datetime, os, sys, threading, time
import torch.distributed as dist, torch
rank, ends, aborts = int(os.environ["RANK"]), sys.argv[1] == "ends", sys.argv[1] == "aborts"
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60 if ends else 8))
dist.barrier()
if rank == 1:
    print("waits", flush=True)
    sys.stdin.read()
    os._exit(9)
began = time.monotonic()
if aborts:
    threading.Timer(0.5, dist.distributed_c10d._get_default_group().abort).start()
try:
    dist.all_reduce(torch.ones(1))
except RuntimeError as error:
    print(*(words for words in ("by peer", "Timed out") if words in str(error)))
"""
MIXED = f"""
import os, runpy, sys
from contextlib import contextmanager
import gangclient.pytorch as pytorch
step = pytorch.KeptState.step

@contextmanager
def mixed(kept, number):
    if number == 60 and os.environ["GANG_ATTEMPT"] == "1" and os.environ["RANK"] != "0":
        if os.environ["RANK"] == "2":
            os._exit(9)
        raise RuntimeError("the collective has failed")
    with step(kept, number):
        yield
    if number == 60 and os.environ["GANG_ATTEMPT"] == "1":
        raise RuntimeError("the next collective has failed")

pytorch.KeptState.step = mixed
sys.argv[0] = {str(EXAMPLES / "train_kept.py")!r}
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Rank 0 applies step 60, rank 1 does not, and rank 2 dies."""
LATE = f"""
import os, runpy, sys, time
import gangclient.pytorch as pytorch
step, join, attempt, way = pytorch.KeptState.step, pytorch.join, os.environ["GANG_ATTEMPT"], sys.argv.pop(1)

def late(kept, number):
    if number == 60 and attempt == "1" and os.environ["RANK"] == way[-1]:
        os._exit(9) if way.startswith("dies") else time.sleep(1e6)
    return step(kept, number)

def joins(gang, backend):
    if attempt == "2" and os.environ["RANK"] == way[-1]:
        os._exit(9)
    join(gang, backend)

pytorch.KeptState.step = late
pytorch.join = joins if way.startswith("dies") else join
sys.argv[0] = {str(EXAMPLES / "train_kept.py")!r}
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A rank hangs at step 60 and never parks, or dies there and, once more, before it joins the next attempt."""


@contextmanager
def training(
    folder: Path, script: tuple[str, ...], least: int | None = None, **spec: Any
) -> Iterator[tuple[Here, Running]]:
    """Three ranks of the example. ``least``: so many are enough, and any size can load what another has."""
    folder.mkdir()
    checkpoints = str(folder / "checkpoints")
    tiers: list[dict[str, Any]] = [
        {**TIERS[0]},
        {**TIERS[1], "source": {**TIERS[1]["source"], "directory": checkpoints}},
    ]
    flags = ("--steps", str(STEPS), "--save-every", "50", "--directory", checkpoints)
    spec = {"checkpoint": {"tiers": tiers}, "recovery": PATIENT, **spec}
    document = manifest((str(python("torchft")), *script, *flags), **spec)
    if least is not None:
        document["spec"]["roles"][0]["minReplicas"] = least
        for tier in tiers:
            tier["reshardable"] = True
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PYTHONPATH", "value": str(CLIENT)}]
    with here(folder) as one:
        one.write(document)
        yield one, one.run("--plain", "--logs")


def loss(run: Running) -> str:
    """The final loss, exactly."""
    return run.said.split("final loss ")[1].split()[1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The final loss of a run in which nothing fails."""
    with training(tmp_path_factory.mktemp("left") / "run", (str(EXAMPLES / "train_kept.py"),)) as (one, run):
        assert run.child.wait(SECONDS) == 0, run.said
        assert one.job.status.attempt == 1
    return loss(run)


@pytest.mark.parametrize("member", ["worker-0", "worker-2"])
def test_survivors_go_on_from_the_step_that_they_have(member: str, undisturbed: str, tmp_path: Path) -> None:
    with training(tmp_path / "run", (str(EXAMPLES / "train_kept.py"),)) as (one, run):
        until("a checkpoint", lambda: any(one.path.glob("checkpoints/*/DONE")), SECONDS)
        process.signal_process(one.workers()[member], signal.SIGKILL)
        assert run.child.wait(SECONDS) == 0, run.said
        status, (incident,) = one.job.status, one.job.status.incidents
    assert status.restore_point is not None
    assert status.restore_point.tier == "live"
    assert incident.lost_steps == 0
    assert incident.warm_start is not None
    assert incident.warm_start.went_on >= 1
    assert loss(run) == undisturbed


def test_a_step_that_only_one_rank_has_applied_is_given_to_the_others(undisturbed: str, tmp_path: Path) -> None:
    with training(tmp_path / "run", ("-c", MIXED)) as (one, run):
        assert run.child.wait(SECONDS) == 0, run.said
        point = one.job.status.restore_point
    assert point is not None
    assert (point.tier, point.step) == ("live", 60)
    assert loss(run) == undisturbed


def test_all_go_on_after_a_rank_that_was_stopped(undisturbed: str, tmp_path: Path) -> None:
    script = (str(EXAMPLES / "train_kept.py"),)
    with training(tmp_path / "run", script, recovery=BRIEF, progress=HANGS) as (one, run):
        until("a checkpoint", lambda: any(one.path.glob("checkpoints/*/DONE")), SECONDS)
        process.signal_process(one.workers()["worker-1"], signal.SIGSTOP)
        assert run.child.wait(SECONDS) == 0, run.said
        (incident,) = one.job.status.incidents
    assert incident.warm_start is not None
    assert incident.warm_start.went_on == 3
    assert incident.milliseconds.stop is not None
    assert incident.milliseconds.stop < 1000 * BRIEF["stopGracePeriodSeconds"]
    assert loss(run) == undisturbed


def test_ranks_that_wait_for_one_that_hangs_keep_their_state(undisturbed: str, tmp_path: Path) -> None:
    with training(tmp_path / "run", ("-c", LATE, "hangs 1"), recovery=BRIEF, progress=HANGS) as (one, run):
        assert run.child.wait(SECONDS) == 0, run.said
        status, (incident,) = one.job.status, one.job.status.incidents
    assert status.restore_point is not None
    assert (status.restore_point.tier, status.restore_point.step) == ("live", 60)
    assert incident.warm_start is not None
    assert incident.warm_start.went_on == 2
    assert loss(run) == undisturbed


@pytest.mark.parametrize("rank", [0, 2])
def test_ranks_that_wait_in_vain_for_one_to_join_keep_their_state(rank: int, undisturbed: str, tmp_path: Path) -> None:
    with training(tmp_path / "run", ("-c", LATE, f"dies {rank}"), recovery=BRIEF) as (one, run):
        assert run.child.wait(SECONDS) == 0, run.said
        status = one.job.status
    assert [one.warm_start.went_on for one in status.incidents if one.warm_start is not None] == [2, 2]
    assert status.restore_point is not None
    assert (status.restore_point.tier, status.restore_point.step) == ("live", 60)
    assert loss(run) == undisturbed


def test_survivors_go_on_from_the_step_that_they_have_with_two_ranks_and_with_three_again(tmp_path: Path) -> None:
    script, elastic = (str(EXAMPLES / "train_kept.py"),), {"shrinkAfterSeconds": 3, "growAfterSeconds": 5}
    recovery = {**PATIENT, **elastic, "replaceAfter": 1}
    with training(tmp_path / "run", script, least=2, recovery=recovery) as (one, run):
        until("a checkpoint", lambda: any(one.path.glob("checkpoints/*/DONE")), SECONDS)
        obstacle = one.state.gang("g").pods / "g-worker-0-1" / "worker.log"
        obstacle.mkdir(parents=True)  # The next pod of worker-0 can't start.
        process.signal_process(one.workers()["worker-0"], signal.SIGKILL)
        until("two ranks train", lambda: (one.job.status.attempt, one.job.status.phase) == (2, "Running"), SECONDS)
        shrunk = one.job.status.restore_point
        obstacle.rmdir()
        assert run.child.wait(SECONDS) == 0, run.said
        status = one.job.status
    assert shrunk is not None
    assert status.restore_point is not None
    assert (shrunk.tier, status.restore_point.tier, status.attempt) == ("live", "live", 3)
    assert [(one.cause.reason, one.lost_steps) for one in status.incidents] == [("Growing", 0), ("Signal", 0)]
    assert [one.missing_members for one in status.incidents] == [0, 1]
    assert all(one.warm_start is not None and one.warm_start.went_on == 2 for one in status.incidents)


@pytest.mark.parametrize(("way", "words"), [("ends", "by peer"), ("hangs", "Timed out"), ("aborts", "Timed out")])
def test_a_collective_of_gloo_ends_by_a_dead_peer_or_its_timeout_and_not_by_abort(way: str, words: str) -> None:
    ranks = []
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    for rank in range(2):
        command = [str(python("torchft")), "-c", COLLECTIVE, way]
        environment = {**os.environ, **shared, "RANK": str(rank)}
        ranks.append(
            subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    waiting, peer = ranks
    if way == "ends":
        assert peer.stdout is not None
        assert peer.stdout.readline() == "waits\n"
        peer.kill()
    said, _ = waiting.communicate(timeout=SECONDS)
    peer.kill()
    peer.communicate()
    assert said.strip() == words
