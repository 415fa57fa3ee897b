"""The examples of frameworks with the oldest and the newest packages, on this machine: without a cluster, on CPUs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e.cluster import versions
from e2e.frameworks.examples import EXAMPLES
from e2e.frameworks.test_frameworks import KILL_AT, SAVE_EVERY, STEPS, has_saved
from gangctl.cluster.local import process
from tests.cli.here import Here, Running, here
from tests.wait import until

CLIENT = Path(__file__).parents[2] / "client"
SECONDS = 240.0
CASES = {
    "fsdp2": ("fsdp2", {}),
    "ddp": ("fsdp2", {"DDP": "1"}),
    "lightning": ("lightning", {}),
    "trainer": ("trainer", {}),
    "accelerate": ("accelerate", {}),
    "deepspeed-zero2": ("deepspeed", {"DS_ACCELERATOR": "cpu"}),
    "deepspeed-zero3": ("deepspeed", {"DS_ACCELERATOR": "cpu", "ZERO_STAGE": "3"}),
}
NEWEST = {"fsdp2", "deepspeed-zero2", "deepspeed-zero3"}
"""FSDP2 of PyTorch 2.6 does not work on CPUs, and nothing in gangctl asks for a version of DeepSpeed."""
RUNS = [(age, case) for age in ("oldest", "newest") for case in CASES if age == "newest" or case not in NEWEST]


def python(age: str) -> Path:
    """The interpreter that has the packages of ``oldest.txt`` or ``newest.txt``; made once, with 5 GB."""
    wanted = Path(__file__).with_name(f"{age}.txt")
    kept = versions.cache() / f"versions-{age}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:8]}"
    complete = kept / "complete"  # It isn't made elsewhere and moved: its console scripts name its path.
    if not complete.exists():
        shutil.rmtree(kept, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", kept], check=True)
        subprocess.run([kept / "bin/python", "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
        complete.touch()
    return kept / "bin/python"


@contextmanager
def running(folder: Path, age: str, case: str, ranks: int = 2, steps: int = STEPS) -> Iterator[tuple[Here, Running]]:
    """The example as a gang on this machine."""
    example, variables = CASES[case]
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    manifest = yaml.safe_load((EXAMPLES / f"frameworks/{example}.yaml").read_text())
    manifest["metadata"]["name"] = "g"
    for tier in manifest["spec"]["checkpoint"]["tiers"]:
        if tier["source"]["type"] == "Directory":
            tier["source"]["directory"] = str(checkpoints)
    role = manifest["spec"]["roles"][0] | {"replicas": ranks}
    manifest["spec"]["roles"] = [role]
    container = role["template"]["spec"]["containers"][0]
    script = EXAMPLES / "frameworks" / Path(container["command"][-1]).name
    container["command"] = [str(python(age)), str(script)]
    told = {"CHECKPOINT_DIR": str(checkpoints), "STEPS": str(steps), "PYTHONPATH": str(CLIENT), **variables}
    container["env"] = [{"name": name, "value": value} for name, value in told.items()]
    with here(folder) as one:
        one.write(manifest)
        yield one, one.run("--plain", "--logs")


@pytest.mark.parametrize(("age", "case"), RUNS)
def test_a_killed_rank_changes_nothing_of_the_result(age: str, case: str, tmp_path: Path) -> None:
    results = []
    for name in ("left", "killed"):
        with running(tmp_path / name, age, case) as (one, run):
            if name == "killed":
                until(f"a checkpoint of step {KILL_AT}", lambda one=one: has_saved(one.path / "checkpoints"), SECONDS)  # type: ignore[misc]
                process.signal_process(
                    one.workers()["worker-1"], signal.SIGKILL
                )  # A command takes as long as the training.
            assert run.child.wait(SECONDS) == 0, run.said
            incidents = one.job.status.incidents
            results.append(json.loads((one.path / "checkpoints/result.json").read_text()))
    assert [incident.restored_step is not None for incident in incidents] == [True], run.said
    assert (incidents[0].restored_step or 0) >= KILL_AT - SAVE_EVERY
    assert results[0] == results[1]


@pytest.mark.parametrize("case", ["fsdp2", "ddp"])
def test_a_checkpoint_that_fewer_ranks_wrote_is_restored_by_more(case: str, tmp_path: Path) -> None:
    for ranks, steps in ((1, 20), (2, 40)):
        with running(tmp_path, "newest", case, ranks, steps) as (_, run):
            assert run.child.wait(SECONDS) == 0, run.said
    assert "rank 0 attempt 1: begins after step 20" in run.said
    assert "rank 1 attempt 1: begins after step 20" in run.said


NOTEBOOK = """
import gangclient, gangclient.memory
from gangclient import pytorch
from gangclient.lightning import GangCallback as OfLightning
from gangclient.transformers import GangCallback as OfTransformers
print(OfLightning().ckpt_path, OfTransformers().path, gangclient.connect().restore)
print(gangclient.memory.connect(gangclient.connect()).load(), gangclient.run(lambda gang: gang.progress(1)))
"""


EXECUTED = """
import sys, nbclient, nbformat.v4 as v4
done = nbclient.NotebookClient(v4.new_notebook(cells=[v4.new_code_cell(sys.argv[1])])).execute()
print("".join(one.text for one in done.cells[0].outputs if one.get("name") == "stdout"))
"""


def test_in_a_notebook_the_adapters_do_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CLIENT), "IPYTHONDIR": str(tmp_path)}
    said = subprocess.check_output(
        [python("newest"), "-c", EXECUTED, NOTEBOOK], cwd=tmp_path, env=environment, text=True, timeout=SECONDS
    )
    assert said.split() == ["None"] * 5
