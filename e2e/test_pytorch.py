"""Real training in PyTorch ends with the same loss to the last bit, by whichever way its processes come back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.gangs import CHECKPOINTS, WORKERS, Gang, training
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
RANKS = range(2)
PRELOAD = {"type": "Modules", "modules": ["numpy", "torch", "torch.distributed", "torch.utils.data", "torch._dynamo"]}
FORK = {"type": "Fork", "preload": PRELOAD}
WAYS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "undisturbed": ({"type": "Exec"}, {}),
    "fork": (FORK, {"DISTURBED": "1"}),
    "in-process": (FORK, {"DISTURBED": "1", "IN_PROCESS": "1"}),
}


def document(way: str, folder: Path) -> dict[str, Any]:
    """A gang of two ranks."""
    folder.mkdir()
    shutil.copy(WORKERS / "states.py", folder)
    start, environment = WAYS[way]
    script = f"{CHECKPOINTS}/states.py"
    made = training(way, script, replicas=len(RANKS), directory=str(folder), environment=environment)
    role = made["spec"]["roles"][0]
    role["start"] = start
    role["template"]["spec"]["containers"][0]["image"] = "gangctl/examples-torch:e2e"
    return made


def drawn(folder: Path, attempt: int) -> list[dict[str, Any]]:
    """What the ranks noted at the beginning of an attempt, when all have."""
    files = [folder / f"drawn-{attempt}-{rank}" for rank in RANKS]
    until(f"all ranks of {folder.name} begin attempt {attempt}", lambda: all(one.exists() for one in files), 400)
    return [json.loads(one.read_text()) for one in files]


def has_templates(gang: Gang) -> bool:
    """Whether every member has a process to fork from."""
    return all("the template is ready" in gang.log(member) for member in gang.uids())


@pytest.mark.timeout(600)  # its processes import PyTorch, from an image of 1.6 GB
@pytest.mark.usefixtures("torch")
def test_the_loss_and_all_random_states_are_those_of_an_undisturbed_run(submit: Submit, shared_dir: Path) -> None:
    folders = {way: shared_dir / way for way in WAYS}
    gangs = {way: submit(document(way, folder)) for way, folder in folders.items()}
    disturbed = [way for way in WAYS if way != "undisturbed"]
    first = {way: drawn(folders[way], 1) for way in WAYS}
    second, third = {}, {}
    for way in disturbed:
        until("a checkpoint of step 20", (folders[way] / "step-20" / "DONE").exists, 400)
        until("every member has a template", partial(has_templates, gangs[way]), 400, every=0.5)
        process_faults.kill(process_faults.worker(gangs[way].uids()["worker-1"]))
        second[way] = drawn(folders[way], 2)  # One after the other: processors that are too busy cost the fork.
    for way in disturbed:
        until("a checkpoint of step 60", (folders[way] / "step-60" / "DONE").exists, 400)
        pod = gangs[way].pods()["worker-0"]["metadata"]["name"]
        gangs[way].kubectl("delete", "pod", pod, "-n", gangs[way].namespace)
    for way in disturbed:
        third[way] = drawn(folders[way], 3)
    kept = [one["pid"] == two["pid"] for one, two in zip(first["in-process"], second["in-process"], strict=True)]
    assert kept == [True, False]  # only the rank that failed is another process
    for way, gang in gangs.items():
        gang.ends("Succeeded", 400)
        assert gang.status["attempt"] == (3 if way in disturbed else 1)

    draws = {str(one["drawn"]) for found in (first, second, third) for ranks in found.values() for one in ranks}
    assert len(draws) == 1  # as after a start: each attempt begins with the states that the script has set
    for way in disturbed:
        assert [{one["start"] for one in found[way]} for found in (second, third)] == [{20}, {60}]
        incident = next(one for one in gangs[way].status["incidents"] if one["attempt"] == 2)
        assert incident["warmStart"]["executed"] == 0
    losses = {(folder / f"loss-{rank}").read_text() for folder in folders.values() for rank in RANKS}
    assert len(losses) == 1
