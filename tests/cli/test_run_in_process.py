"""`gangctl run` with workers that call ``gangclient.run``: they survive restarts, and the result is the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import gangclient
from tests.cli.here import Here, manifest
from tests.wait import SECONDS, until

STEPS = 300
SCRIPT = f"""
import json, os, pathlib, random, time
import gangclient
random.seed(7)
name = os.environ.get("GANG_MEMBER", "alone")

def save(step, state):
    folder = pathlib.Path("checkpoints", f"step-{{step}}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(json.dumps([state, random.getstate()]))
    (folder / "complete").touch()

def train(gang):
    with open(name + ".pids", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    step, state = 0, random.random()
    if gang.restore:
        step = gang.restore.step
        state, (version, inner, rest) = json.loads(pathlib.Path(gang.restore.path, "state").read_text())
        random.setstate((version, tuple(inner), rest))
    with open(name + ".attempts", "a") as file:
        file.write(f"{{gang.number}}\\n")
    while step < {STEPS}:
        step += 1
        state = 3.99 * state * (1 - state) * (0.999 + 0.001 * random.random())
        if step % 10 == 0 and name in ("worker-0", "alone"):
            save(step, state)
        gang.progress(step)
        if name != "alone":
            time.sleep(0.02)
    return state

pathlib.Path(name + ".result").write_text(gangclient.run(train).hex())
"""
SOURCE = {"type": "Directory", "layout": "Pattern", "pattern": "step-{step}", "complete": "complete"}


def test_processes_survive_restarts_and_the_result_is_the_same(folder: Here) -> None:
    source = {**SOURCE, "directory": str(folder.path / "checkpoints")}
    tiers = [{"name": "disk", "scope": "Shared", "source": source}]
    folder.write(manifest((sys.executable, "-c", SCRIPT), checkpoint={"tiers": tiers}))
    run = folder.run()
    for attempt, member in enumerate(("worker-1", "worker-2"), start=1):
        folder.runs_attempt(attempt)
        complete = len([*folder.path.glob("checkpoints/*/complete")])
        until("another checkpoint", lambda seen=complete: len([*folder.path.glob("checkpoints/*/complete")]) > seen)  # type: ignore[misc]
        folder.gangctl("inject", "g", member, "--signal", "KILL")
    assert run.wait() == 0, run.said

    status = folder.job.status
    assert (status.phase, status.attempt) == ("Succeeded", 3)
    assert [one.warm_start and (one.warm_start.went_on, one.warm_start.executed) for one in status.incidents] == [
        (2, 1),
        (2, 1),
    ]
    assert all(one.restored_step for one in status.incidents)
    begun = {path.stem: Counter(path.read_text().split()) for path in folder.path.glob("*.pids")}
    assert sorted(begun["worker-0"].values()) == [3]
    assert sorted(begun["worker-1"].values()) == sorted(begun["worker-2"].values()) == [1, 2]

    alone = folder.path / "alone"
    alone.mkdir()
    client = str(Path(gangclient.__file__).parents[1])
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=alone, env={"PYTHONPATH": client}, check=True, timeout=SECONDS)
    results = {path.read_text() for path in folder.path.glob("*.result")}
    assert results == {(alone / "alone.result").read_text()}
