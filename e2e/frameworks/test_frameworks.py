"""Real frameworks restore the step that all ranks agreed on, and end as if nothing had happened, to the last bit."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.cluster.processes import inside
from e2e.frameworks.examples import document
from e2e.gangs import Gang
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
SAVE_EVERY = 10
KILL_AT, STEPS = 30, 150
CASES = {
    "ddp": ("frameworks/fsdp2", {"DDP": "1"}),  # FSDP2 does not work on CPUs in this PyTorch
    "ddp-async": ("frameworks/fsdp2", {"DDP": "1", "ASYNC": "1"}),
    "lightning": ("frameworks/lightning", {}),
    "trainer": ("frameworks/trainer", {}),
    "accelerate": ("frameworks/accelerate", {}),
    "orbax": ("frameworks/orbax", {}),
}
LAYOUTS = {"lightning": "Lightning", "trainer": "HuggingFace"}
SETTLED_SECONDS = 0.15
"""By then both ranks have left a checkpoint of a tiny model, and the next is not begun."""


def has_saved(folder: Path) -> bool:
    """Whether a checkpoint of step KILL_AT or a newer one was begun: a name ends with the step. TMPDIR may be there."""
    steps = [re.fullmatch(r"(?:.*[-=])?([0-9]+)(?:\.ckpt)?", path.name) for path in folder.iterdir()]
    return any(int(step[1]) >= KILL_AT for step in steps if step)


def kill_when_warm(gang: Gang, folder: Path, **environment: str) -> None:
    """Kill a rank of worker-1 that has saved a step, and has stood still until all pods have a template."""
    until(f"a checkpoint of step {KILL_AT}", partial(has_saved, folder), 300, every=0.01)
    found = inside(process_faults.supervisor(gang.uids()["worker-1"]))
    ranks = [one for one in found if "RANK" in one.environment and re.match(process_faults.RANK, one.command)]
    rank = next(one for one in ranks if environment.items() <= one.environment.items())
    rank.send(signal.SIGSTOP)
    until("templates", lambda: all("the template is ready" in gang.log(member) for member in gang.uids()), 300)
    process_faults.kill(rank)


@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("case", CASES)
def test_a_killed_rank_is_forked_below_a_shell_and_changes_nothing_of_the_result(
    case: str, submit: Submit, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example, variables = CASES[case][0], {**CASES[case][1], "STEPS": str(STEPS)}
    plain = submit(document(f"{case}-plain", example, variables, shared_dir / f"{case}-plain"))
    made = document(case, example, variables, shared_dir / case)
    container = made["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["bash", "-c", '"$@"; exit $?', "bash", *container["command"]]
    gang = submit(made)
    kill_when_warm(gang, shared_dir / case)
    restored = gang.runs(2, 120)["restorePoint"]["step"]
    assert KILL_AT - SAVE_EVERY <= restored < STEPS
    assert restored % SAVE_EVERY == 0
    gang.ends("Succeeded", 400)
    plain.ends("Succeeded", 400)
    assert gang.status["attempt"] == 2
    results = [json.loads((shared_dir / name / "result.json").read_text()) for name in (f"{case}-plain", case)]
    assert results[0] == results[1]
    incident = gang.status["incidents"][0]
    warm = incident["warmStart"]
    if case == "lightning":  # Importing it reads a variable of the attempt.
        assert "LOCAL_RANK" in warm["obstacle"]
        assert (warm["forked"], warm["executed"]) == (0, 2), warm
    else:
        assert (warm["forked"], warm["executed"]) == (2, 0), warm
    with capsys.disabled():
        phases = ", ".join(f"{name} {value} ms" for name, value in incident["milliseconds"].items())
        print(f"\n  {case}: restored step {restored}, {incident['lostSteps']} steps lost, {phases} ", end="")


@pytest.mark.usefixtures("frameworks")
def test_torchrun_below_a_shell_and_its_ranks_are_forked_and_change_nothing_of_the_result(
    submit: Submit, shared_dir: Path
) -> None:
    """Two pods of two ranks: the second attempt has two torchruns and four ranks, each in a fork."""
    gangs: dict[str, Gang] = {}
    for name, start in (("torchrun-plain", "Exec"), ("torchrun", "Fork")):
        made = document(name, "frameworks/fsdp2", {"DDP": "1", "STEPS": str(STEPS)}, shared_dir / name)
        (role,) = made["spec"]["roles"]
        role |= {"launch": "Torchrun", "processesPerPod": 2, "start": {"type": start}}
        container = role["template"]["spec"]["containers"][0]
        container["command"] = ["sh", "-c", 'echo "from a shell"; torchrun "$$0"; exit $$?', container["command"][-1]]
        gangs[name] = submit(made)
    gang, folder = gangs["torchrun"], shared_dir / "torchrun"
    kill_when_warm(gang, folder, LOCAL_RANK="1")
    gang.runs(2, 120)
    for each in gangs.values():
        each.ends("Succeeded", 400)
    incident = gang.status["incidents"][0]
    assert (incident["warmStart"]["forked"], incident["warmStart"]["executed"]) == (6, 0)
    results = [json.loads((shared_dir / name / "result.json").read_text()) for name in gangs]
    assert results[0] == results[1]


@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("framework", LAYOUTS)
def test_a_script_that_knows_nothing_of_gangctl_goes_on_from_its_last_checkpoint(
    framework: str, submit: Submit, shared_dir: Path
) -> None:
    script = Path(__file__).with_name(f"plain_{framework}.py")
    source = {"type": "Directory", "directory": "/checkpoints", "layout": LAYOUTS[framework]}
    gangs: dict[str, Gang] = {}
    for name in (f"{framework}-left", f"{framework}-killed"):
        made = document(name, f"frameworks/{framework}", {"STEPS": str(STEPS)}, shared_dir / name, script)
        made["spec"]["checkpoint"]["tiers"][0]["source"] = source
        gangs[name] = submit(made)
    left, killed = gangs.values()
    until(f"a checkpoint of step {KILL_AT}", partial(has_saved, shared_dir / killed.name), 300, every=0.01)
    time.sleep(SETTLED_SECONDS)
    process_faults.kill(process_faults.worker(killed.uids()["worker-1"]))
    restored = killed.runs(2, 120)["restorePoint"]["step"]
    assert KILL_AT <= restored < STEPS
    for gang in gangs.values():
        gang.ends("Succeeded", 400)
    assert (left.status["attempt"], killed.status["attempt"]) == (1, 2)
    results = [json.loads((shared_dir / name / "result.json").read_text()) for name in gangs]
    assert results[0] == results[1]


@pytest.mark.usefixtures("frameworks")
def test_a_planned_restart_of_orbax_loses_no_step(submit: Submit, shared_dir: Path) -> None:
    """JAX agrees on a step that all ranks save before they end."""
    gang = submit(document("planned", "frameworks/orbax", {"STEPS": "400"}, shared_dir / "planned"))
    until(f"a checkpoint of step {KILL_AT}", partial(has_saved, shared_dir / "planned"), 300, every=0.01)
    gang.patch(restartToken="asked")
    restored = gang.runs(2, 120)["restorePoint"]["step"]
    incident = gang.status["incidents"][0]
    assert (incident["planned"], incident["lostSteps"], incident["restoredStep"]) == (True, 0, restored)
    assert gang.ends("Succeeded", 400)["attempt"] == 2
