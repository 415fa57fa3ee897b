"""An elastic gang shrinks and grows under `gangctl run`, by framework, and its losses are those of one process."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.gangs import WORKERS
from e2e.versions.test_versions import CLIENT, SECONDS, python
from gangctl.cluster.local import process
from tests.cli.here import here, manifest
from tests.wait import until

STEPS = 400
NEW_POD = "g-worker-3-1"


@dataclass(frozen=True)
class Framework:
    """What trains: a script of ``e2e/workers``, with the packages of one list."""

    script: str
    packages: str
    source: dict[str, str]
    saved: str
    """What there is once a step is saved."""
    exact: float = 1e-9
    """How far losses may differ for another size."""


FRAMEWORKS = (
    Framework("elastic_fsdp2.py", "torchft", {"type": "Directory", "layout": "TorchDCP"}, "*/.metadata"),
    Framework("elastic_lightning.py", "newest", {"type": "Directory", "layout": "Lightning"}, "*.ckpt"),
    # It computes its loss with 32 bits.
    Framework("elastic_trainer.py", "newest", {"type": "API"}, "*/trainer_state.json", 1e-4),
)


def losses(folder: Path) -> list[tuple[int, int, float]]:
    """Step, size and loss, in the order in which they were made."""
    lines = [line.split() for line in (folder / "losses").read_text().splitlines()]
    return [(int(step), int(size), float(loss)) for step, size, loss in lines]


def elastic(framework: Framework, checkpoints: Path) -> dict[str, Any]:
    """Four members, of which three are enough."""
    is_seen = framework.source["type"] == "Directory"
    source = {**framework.source, **({"directory": str(checkpoints)} if is_seen else {})}
    document = manifest(
        (str(python(framework.packages)), str(WORKERS / framework.script)),
        replicas=4,
        checkpoint={"tiers": [{"name": "disk", "scope": "Shared", "reshardable": True, "source": source}]},
        recovery={"replaceAfter": 1, "shrinkAfterSeconds": 3, "growAfterSeconds": 5},
    )
    role = document["spec"]["roles"][0]
    role["minReplicas"] = 3
    told = {"CHECKPOINT_DIR": checkpoints, "STEPS": STEPS, "STEP_SECONDS": 0.1, "PYTHONPATH": CLIENT}
    container = role["template"]["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": str(value)} for name, value in told.items()]
    return document


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: Path(one.script).stem)
def test_it_goes_on_with_three_of_four_ranks_and_with_four_again(framework: Framework, tmp_path: Path) -> None:
    checkpoints, alone = tmp_path / "checkpoints", tmp_path / "alone"
    for folder in (checkpoints, alone):
        folder.mkdir()
    told = {"CHECKPOINT_DIR": str(alone), "STEPS": str(STEPS), "PYTHONPATH": str(CLIENT), "ONE_PROCESS": "1"}
    command = [python(framework.packages), WORKERS / framework.script]
    subprocess.run(command, env={**os.environ, **told}, check=True, timeout=SECONDS)
    with here(tmp_path) as one:
        one.write(elastic(framework, checkpoints))
        run = one.run("--plain", "--logs")
        until("a checkpoint", lambda: any(one.path.glob(f"checkpoints/{framework.saved}")), SECONDS)
        obstacle = one.state.gang("g").pods / NEW_POD / "worker.log"
        obstacle.mkdir(parents=True)  # The next pod of worker-3 can't start.
        process.signal_process(one.workers()["worker-3"], signal.SIGKILL)
        until("three ranks train", lambda: losses(checkpoints)[-1][1] == 3, SECONDS)
        obstacle.rmdir()
        assert run.child.wait(SECONDS) == 0, run.said
        grown, shrunk = one.job.status.incidents
    made = losses(checkpoints)
    assert [made[at][1] for at in range(len(made)) if at == 0 or made[at - 1][1] != made[at][1]] == [4, 3, 4]
    assert (shrunk.cause.member, grown.cause.reason) == ("worker-3", "Growing")
    assert (grown.lost_steps or 0) < 10  # It is stopped right after a checkpoint, and makes no other as it stops.
    expected = {step: loss for step, _, loss in losses(alone)}
    assert {step for step, _, _ in made} == set(expected)
    assert [loss for _, _, loss in made] == pytest.approx([expected[step] for step, _, _ in made], rel=framework.exact)
