"""The first hour of a newcomer: an own script, which gangctl has never seen, restarts in place from its checkpoint."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.cli.here import Here
from tests.wait import SECONDS, until

SCRIPT = '''\
"""Counts. It knows nothing of gangctl but two variables of the environment."""
import os, pathlib, time

rank, steps = int(os.environ.get("RANK", "0")), int(os.environ.get("STEPS", "100000"))
folder = pathlib.Path("checkpoints")
start = int(os.environ.get("GANG_RESTORE_STEP", "0"))
if start:
    start = int(pathlib.Path(os.environ["GANG_RESTORE_PATH"], "state").read_text())
print("begins after step", start, flush=True)
for step in range(start + 1, steps + 1):
    time.sleep(0.01)
    print("step", step, flush=True)
    if rank == 0 and step % 10 == 0:
        (folder / f"step-{step}").mkdir(parents=True, exist_ok=True)
        (folder / f"step-{step}" / "state").write_text(str(step))
        (folder / f"step-{step}" / "DONE").write_text("")
'''


def test_an_own_script_restarts_in_place_from_its_checkpoint(folder: Here) -> None:
    (folder.path / "mine.py").write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "mine.py"], check=True, cwd=folder.path, env=folder.env(STEPS="30"), timeout=SECONDS
    )

    made = folder.gangctl("init", "mine.py", "--framework", "script", "--members", "2", "--file", "job.yaml")
    assert made.returncode == 0, made.stderr
    assert "checkpoints: checkpoints (Pattern), the newest complete step is 30" in made.stdout

    told = folder.gangctl("check", "job.yaml")
    assert told.returncode == 0, told.stderr
    assert "attempt 1 restores step 30 of tier shared: checkpoints/step-30" in told.stdout
    assert "look at this" not in told.stdout

    run = folder.run("--logs", "--set", "metadata.name=g")
    until("both continue from the checkpoint", lambda: run.said.count("begins after step 30") == 2)
    until("another checkpoint is there", (folder.path / "checkpoints/step-60/DONE").exists)
    pods = {name: (pod.uid, pod.supervisor) for name, pod in folder.pods().items()}

    killed = folder.gangctl("inject", "g", "worker-1", "--signal", "KILL")
    assert killed.returncode == 0, killed.stderr
    until("both began again", lambda: len(_begins(run.said)) == 4)
    first, second = _begins(run.said)[2:]
    assert first == second >= 60
    assert {name: (pod.uid, pod.supervisor) for name, pod in folder.pods().items()} == pods
    until("they go on", lambda: f"worker-1 | step {first + 1}\n" in run.said)

    ended = folder.gangctl("stop", "g")
    assert ended.returncode == 0, ended.stderr
    assert "gangctl resume g continues it from the newest checkpoint that all ranks have" in ended.stdout
    assert folder.workers() == {}
    assert folder.gangctl("delete", "g").returncode == 0
    assert run.wait() == 1
    assert folder.left() == []
    assert (folder.path / "checkpoints/step-60/DONE").exists()


def _begins(said: str) -> list[int]:
    return [int(step) for step in re.findall(r"begins after step ([0-9]+)", said)]
