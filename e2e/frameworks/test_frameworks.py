"""Real frameworks restore the step that all ranks agreed on, and end as if nothing had happened, to the last bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import process_faults
from e2e.gangs import CHECKPOINTS, Gang
from tests.wait import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
Submit = Callable[[dict[str, Any]], Gang]
SAVE_EVERY = 10
KILL_AT, STEPS = 30, 150
CASES = {
    "ddp": ("fsdp2", {"DDP": "1"}),  # FSDP2 does not work on CPUs in this PyTorch
    "ddp-async": ("fsdp2", {"DDP": "1", "ASYNC": "1"}),
    "lightning": ("lightning", {}),
    "trainer": ("trainer", {}),
}


def document(name: str, example: str, variables: dict[str, str], folder: Path) -> dict[str, Any]:
    """An example, as it is but for names, the image, the script's place and its steps."""
    folder.mkdir()
    made: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    made["metadata"]["name"] = name
    pod = made["spec"]["roles"][0]["template"]["spec"]
    container = pod["containers"][0]
    script = Path(container["command"][-1]).name
    shutil.copy(EXAMPLES / script, folder)
    container |= {"image": "gangctl/examples-frameworks:e2e", "command": ["python3", f"{CHECKPOINTS}/{script}"]}
    container["env"] += [{"name": key, "value": value} for key, value in {"STEPS": str(STEPS), **variables}.items()]
    pod["volumes"][0]["hostPath"]["path"] = str(folder)
    return made


def has_saved(folder: Path) -> bool:
    """Whether a checkpoint of step KILL_AT or a newer one was begun."""
    names = [path.name.rpartition("-")[2] for path in folder.iterdir() if path.is_dir()]
    return any(int(name) >= KILL_AT for name in names if name.isdecimal())


@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("case", CASES)
def test_a_killed_rank_changes_nothing_of_the_result(
    case: str, submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example, variables = CASES[case]
    plain = submit(document(f"{case}-plain", example, variables, shared_dir / f"{case}-plain"))
    gang = submit(document(case, example, variables, shared_dir / case))
    until(f"a checkpoint of step {KILL_AT}", partial(has_saved, shared_dir / case), 300, every=0.01)
    process_faults.kill(process_faults.worker(gang.uids()["worker-1"]))
    restored = gang.runs(2, 120)["restorePoint"]["step"]
    assert KILL_AT - SAVE_EVERY <= restored < STEPS
    assert restored % SAVE_EVERY == 0
    gang.ends("Succeeded", 400)
    plain.ends("Succeeded", 400)
    assert gang.status["attempt"] == 2
    results = [json.loads((shared_dir / name / "result.json").read_text()) for name in (f"{case}-plain", case)]
    assert results[0] == results[1]
    incident = gang.status["incidents"][0]
    with capsys.disabled():
        phases = ", ".join(f"{name} {value} ms" for name, value in incident["milliseconds"].items())
        print(f"\n  {case}: restored step {restored}, {incident['lostSteps']} steps lost, {phases} ", end="")
