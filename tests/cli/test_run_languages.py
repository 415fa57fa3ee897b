"""`gangctl run` with programs that are not in Python: what they restore, and what they end with."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.here import Here
from tests.wait import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "languages"
STEPS, RANKS = 400, 2
BUILD = {"c": ("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o"), "go": ("go", "build", "-o")}


@pytest.fixture(params=BUILD)
def _program(request: pytest.FixtureRequest, folder: Here) -> None:
    """Build the example, where local.yaml expects it."""
    compiler, *words = BUILD[request.param]
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    source = EXAMPLES / f"train.{request.param}"
    subprocess.run([compiler, *words, str(folder.path / "train"), str(source)], check=True)


def expected(rank: int, steps: int) -> int:
    """The state of a rank after all steps: what each program computes."""
    state = rank
    for step in range(1, steps + 1):
        state = (state * 6364136223846793005 + step + rank) % 2**64
    return state


def steps(here: Here, member: str, words: str) -> list[tuple[int, int]]:
    """The attempts in which the program of a member has said these words, each with its step."""
    log = (here.path / ".gangctl/gangs/g/pods" / f"g-{member}-0/worker.log").read_text()
    return [
        (int(attempt), int(step)) for attempt, step in re.findall(rf"attempt (\d+): {words} after step (\d+)\n", log)
    ]


def begun(here: Here, member: str) -> list[int]:
    """The steps after which the program of a member has begun."""
    return [step for _, step in steps(here, member, "begins")]


@pytest.mark.nightly
@pytest.mark.usefixtures("_program")
def test_a_program_restores_what_all_ranks_have_and_saves_when_it_is_told_to_stop(folder: Here) -> None:
    document = yaml.safe_load((EXAMPLES / "local.yaml").read_text())
    document["metadata"]["name"] = "g"
    (container,) = document["spec"]["roles"][0]["template"]["spec"]["containers"]
    container["env"].append({"name": "STEPS", "value": str(STEPS)})
    saved = folder.path / "checkpoints"
    folder.write(document)
    running = folder.run()
    second = [saved / f"step-20/rank-{rank}" for rank in range(RANKS)]
    until("two checkpoints", lambda: all(one.exists() for one in second))
    folder.gangctl("inject", "g", "worker-1", "--signal", "SIGKILL")
    until("attempt 2", lambda: [len(begun(folder, f"worker-{rank}")) for rank in range(RANKS)] == [2, 2])
    restored = [begun(folder, f"worker-{rank}")[1] for rank in range(RANKS)]
    assert restored[0] == restored[1]
    assert restored[0] > 0
    assert restored[0] % 10 == 0
    until("steps of attempt 2", (saved / f"step-{restored[0] + 10}/rank-0").exists)
    folder.gangctl("restart", "g")
    until("attempt 3", lambda: [len(begun(folder, f"worker-{rank}")) for rank in range(RANKS)] == [3, 3])
    stopped = [dict(steps(folder, f"worker-{rank}", "stops"))[2] for rank in range(RANKS)]
    assert all((saved / f"step-{step}/rank-{rank}").exists() for rank, step in enumerate(stopped))
    assert running.wait() == 0
    results = [int((saved / f"result-{rank}").read_text()) for rank in range(RANKS)]
    assert results == [expected(rank, STEPS) for rank in range(RANKS)]
