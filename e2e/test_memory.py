"""Checkpoints in memory on a real cluster: PyTorch loses a process, then a pod, and no step that all ranks had."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.frameworks.examples import document
from e2e.gangs import Gang

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
STEPS, FIRST = 600, 60
LAG = 10
"""Steps that may be made while a step is copied and registered, on a busy machine."""


def memory(name: str, folder: Path) -> dict[str, Any]:
    """examples/memory.yaml, with the image of PyTorch and the time that it takes."""
    made = document(name, "memory", {}, folder)
    container = made["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["image"] = "gangctl/examples-torch:e2e"
    container["command"] += ["--steps", str(STEPS), "--pause", "0.05"]
    return made


def has_made(step: int, status: dict[str, Any]) -> bool:
    """Whether the status shows this step or a newer one."""
    return int(status.get("progress", {}).get("step", 0)) >= step


@pytest.mark.timeout(900)  # its processes import PyTorch, from an image of 1.6 GB
@pytest.mark.usefixtures("torch")
def test_a_lost_process_and_a_lost_pod_cost_no_step_that_all_ranks_had(submit: Submit, shared_dir: Path) -> None:
    plain = submit(memory("plain", shared_dir / "plain"))
    gang = submit(memory("memory", shared_dir / "memory"))
    at = FIRST
    for attempt in (2, 3):
        gang.until(f"it has made step {at}", partial(has_made, at), 400)
        if attempt == 2:
            process_faults.kill(process_faults.worker(gang.uids()["worker-1"]))
        else:
            gang.kubectl("delete", "pod", gang.pods()["worker-2"]["metadata"]["name"], "-n", gang.namespace)
        point = gang.runs(attempt)["restorePoint"]
        assert point["tier"] == "ram"
        assert point["step"] >= at - LAG
        incident = next(one for one in gang.status["incidents"] if one["attempt"] == attempt)
        assert incident["lostSteps"] <= LAG
        at = point["step"] + FIRST  # The status shows steps late: the next fault waits for steps of this attempt.
    gang.ends("Succeeded", 400)  # 600 steps, which a busy machine makes in minutes
    plain.ends("Succeeded", 400)
    assert gang.status["attempt"] == 3
    losses = [json.loads((shared_dir / name / "result.json").read_text()) for name in ("plain", "memory")]
    assert losses[0] == losses[1], "the same to the last bit"
