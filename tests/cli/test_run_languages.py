"""`gangctl run` with programs that are not in Python: what they restore, and what they end with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.here import Here, manifest
from tests.wait import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "languages"
STEPS, RANKS = 250, 2
BUILD = {"c": ("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o"), "go": ("go", "build", "-o")}
TIER = {"name": "shared", "scope": "Shared", "source": {"type": "API"}}


@pytest.fixture(params=BUILD)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The example, built."""
    compiler, *words = BUILD[request.param]
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    made = tmp_path / "train"
    subprocess.run([compiler, *words, str(made), str(EXAMPLES / f"train.{request.param}")], check=True)
    return str(made)


def expected(rank: int) -> int:
    """The state of a rank after all steps: what each program computes."""
    state = rank
    for step in range(1, STEPS + 1):
        state = (state * 6364136223846793005 + step + rank) % 2**64
    return state


def begun(here: Here, member: str) -> list[int]:
    """The steps after which the program of a member has begun."""
    path = here.path / ".gangctl/gangs/g/pods" / f"g-{member}-0/worker.log"
    lines = [line for line in path.read_text().splitlines() if "begins after step" in line]
    return [int(line.rpartition(" ")[2]) for line in lines]


def test_a_program_restores_what_all_ranks_have_and_saves_when_it_is_told_to_stop(folder: Here, program: str) -> None:
    document = manifest((program,), replicas=RANKS, checkpoint={"tiers": [TIER]})
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "STEPS", "value": str(STEPS)}, {"name": "CHECKPOINT_DIR", "value": str(folder.path)}]
    folder.write(document)
    running = folder.run()
    saved = [folder.path / f"step-20/rank-{rank}" for rank in range(RANKS)]
    until("two checkpoints", lambda: all(one.exists() for one in saved), seconds=30)
    folder.gangctl("inject", "g", "worker-1", "--signal", "SIGKILL")
    until("attempt 2", lambda: [len(begun(folder, f"worker-{rank}")) for rank in range(RANKS)] == [2, 2], seconds=30)
    restored = [begun(folder, f"worker-{rank}")[1] for rank in range(RANKS)]
    assert restored[0] == restored[1]
    assert restored[0] > 0
    assert restored[0] % 10 == 0
    until("steps of attempt 2", (folder.path / f"step-{restored[0] + 10}/rank-0").exists, seconds=30)
    folder.gangctl("restart", "g")
    until("attempt 3", lambda: [len(begun(folder, f"worker-{rank}")) for rank in range(RANKS)] == [3, 3], seconds=30)
    last = [path for path in folder.path.glob("step-*/rank-1") if not path.parent.name.endswith("0")]
    assert last, "a checkpoint as it was told to stop"
    assert running.wait() == 0
    results = [int((folder.path / f"result-{rank}").read_text()) for rank in range(RANKS)]
    assert results == [expected(rank) for rank in range(RANKS)]
