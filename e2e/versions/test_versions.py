"""The examples of frameworks with the oldest and the newest packages, on this machine: without a cluster, on CPUs."""

from __future__ import annotations

import hashlib
import json
import shutil
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
}
RUNS = [(age, case) for age in ("oldest", "newest") for case in CASES if (age, case) != ("oldest", "fsdp2")]
"""FSDP2 of PyTorch 2.6 does not work on CPUs."""


def python(age: str) -> Path:
    """The interpreter that has the packages of ``oldest.txt`` or ``newest.txt``; made once, with 5 GB."""
    wanted = Path(__file__).with_name(f"{age}.txt")
    kept = versions.cache() / f"versions-{age}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:8]}"
    if not kept.exists():
        made = kept.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", made], check=True)
        subprocess.run([made / "bin/python", "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
        made.rename(kept)
    return kept / "bin/python"


@contextmanager
def running(folder: Path, age: str, case: str) -> Iterator[tuple[Here, Running]]:
    """The example as a gang on this machine."""
    example, variables = CASES[case]
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    manifest = yaml.safe_load((EXAMPLES / f"frameworks/{example}.yaml").read_text())
    manifest["metadata"]["name"] = "g"
    for tier in manifest["spec"]["checkpoint"]["tiers"]:
        if tier["source"]["type"] == "Directory":
            tier["source"]["directory"] = str(checkpoints)
    container = manifest["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    script = EXAMPLES / "frameworks" / Path(container["command"][-1]).name
    container["command"] = [str(python(age)), str(script)]
    told = {"CHECKPOINT_DIR": str(checkpoints), "STEPS": str(STEPS), "PYTHONPATH": str(CLIENT), **variables}
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
                assert one.gangctl("inject", "g", "worker-1", "--signal", "KILL").returncode == 0
            assert run.child.wait(SECONDS) == 0, run.said
            incidents = one.job.status.incidents
            results.append(json.loads((one.path / "checkpoints/result.json").read_text()))
    assert [incident.restored_step is not None for incident in incidents] == [True], run.said
    assert (incidents[0].restored_step or 0) >= KILL_AT - SAVE_EVERY
    assert results[0] == results[1]
