"""`gangctl run` with checkpoints in memory: real workers, their sidecars, and copies between them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cli.here import Here, manifest
from tests.wait import until

SCRIPT = r"""
import hashlib, os, sys, time
import gangclient, gangclient.memory

def part(step, rank):  # The state of a rank after a step: 3 MB that no other rank or step has.
    return hashlib.sha256(f"{step} {rank}".encode()).digest() * 100_000

gang = gangclient.connect()
memory = gangclient.memory.connect(gang)
rank, step = int(os.environ["RANK"]), 0
file = memory.load()
if file is not None:
    step = gang.restore.step
    assert file.read() == part(step, rank), "these are other bytes"
with open(f"{os.environ['GANG_MEMBER']}.attempts", "a") as log:
    print(os.environ["GANG_ATTEMPT"], step, "own" if "GANG_RESTORE_PATH" in os.environ else "-", file=log)
while True:
    step += 1
    time.sleep(0.05)
    gang.progress(step)
    memory.save(step, part(step, rank))
"""
LOST = 77
"""The exit code whose rule replaces the pod."""


def attempts(here: Here, member: str) -> list[list[str]]:
    """Attempt, restored step, and whether the part was registered as its own."""
    path = here.path / f"{member}.attempts"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def runs(here: Here, attempt: int, members: int) -> None:
    """All members of the attempt have loaded what they restore."""
    until(
        f"attempt {attempt} has loaded",
        lambda: all(any(one[0] == str(attempt) for one in attempts(here, f"worker-{at}")) for at in range(members)),
    )


def test_a_killed_worker_restores_its_own_memory_and_a_new_pod_the_copy_of_its_peer(folder: Here) -> None:
    rule = {"action": "Ignore", "level": "Pod", "onExitCodes": {"operator": "In", "values": [LOST]}}
    tier = {"name": "ram", "scope": "Peers", "source": {"type": "API"}}
    spec = {"checkpoint": {"tiers": [tier]}, "podFailurePolicy": {"rules": [rule]}}
    (folder.path / "train.py").write_text(SCRIPT)
    folder.write(manifest((sys.executable, "train.py"), replicas=3, **spec))
    running = folder.run()
    runs(folder, 1, members=3)
    assert {one.uid for one in folder.pods().values()} == {path.name[8:] for path in memories(folder)}
    progressed(folder, 1)

    folder.gangctl("inject", "g", "worker-1", "--signal", "SIGKILL")
    runs(folder, 2, members=3)
    second = [attempts(folder, f"worker-{at}")[1] for at in range(3)]
    assert len({step for _, step, _ in second}) == 1
    assert int(second[0][1]) > 0
    assert "own" in {own for _, _, own in second}, "a rank that has just dropped its part gets the copy of its peer"
    progressed(folder, 2)

    before = folder.pods()["worker-1"].uid
    folder.gangctl("inject", "g", "worker-1", "--exit-code", str(LOST))
    runs(folder, 3, members=3)
    third = [attempts(folder, f"worker-{at}")[2] for at in range(3)]
    assert len({step for _, step, _ in third}) == 1
    assert int(third[0][1]) > int(second[0][1])
    assert third[1][2] == "-", "the new pod of worker-1 had nothing of its own"
    until("the memory of the old pod is gone", lambda: before not in {path.name[8:] for path in memories(folder)})
    progressed(folder, 3)

    uids = {one.uid for one in folder.pods().values()}
    running.signal(2)
    running.wait()
    assert not uids & {path.name[8:] for path in Path("/dev/shm").glob("gangctl-*")}


def progressed(here: Here, attempt: int) -> None:
    """Some more steps are in the memory of all."""
    restored = here.job.status.restore_point
    first = 0 if restored is None else restored.step
    until(
        f"attempt {attempt} has saved",
        lambda: any(
            int(path.name.split(".")[0]) > first + 5 for found in memories(here) for path in found.glob("*.json")
        ),
    )


def memories(here: Here) -> list[Path]:
    """The folders of the gang's pods."""
    uids = {one.uid for one in here.pods().values()}
    return [path for path in Path("/dev/shm").glob("gangctl-*") if path.name[8:] in uids]
