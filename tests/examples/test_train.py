import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.gang import EXAMPLES, ROOT, Gang, complete
from tests.wait import SECONDS

HERE = Path(__file__).parent
FLAGS = ["--steps", "40", "--save-every", "4", "--batch", "2"]


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    workers = Gang("demo.yaml", tmp_path, 2, FLAGS)
    yield workers
    workers.close()


def result(gang: Gang) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((gang.directory / "result.json").read_text())
    return found


def newest(gang: Gang) -> int:
    return next((found.step for found in complete("demo.yaml", gang.directory)), 0)


def train_beyond(gang: Gang, step: int) -> None:
    gang.until(lambda: newest(gang) > step)


@pytest.mark.nightly  # make demo shows it at each landing
def test_the_loss_is_the_same_to_the_last_bit_whether_workers_were_killed_or_not(gang: Gang, tmp_path: Path) -> None:
    undisturbed = Gang("demo.yaml", tmp_path / "undisturbed", 2, FLAGS)
    try:
        undisturbed.start()
        assert undisturbed.ends() == [0, 0]
    finally:
        undisturbed.close()

    restored = []
    for signum, rank, end in ((signal.SIGKILL, 1, -9), (signal.SIGUSR1, 1, 75), (signal.SIGTERM, 0, -15)):
        restored.append(newest(gang))
        gang.start()
        train_beyond(gang, restored[-1])
        gang.workers[rank].send_signal(signum)
        ends = gang.ends()  # the peer ends by itself: it doesn't wait for who is gone
        assert ends[rank] == end
        assert ends[1 - rank] not in (0, 75)
    restored.append(newest(gang))
    gang.start()
    assert gang.ends() == [0, 0]

    assert result(gang) == result(undisturbed)
    for rank in (0, 1):
        lines = gang.log(rank).read_text().splitlines()
        said = [line for line in lines if re.match(rf"rank {rank} attempt \d+: (restored|starts)", line)]
        assert said == [
            f"rank {rank} attempt {attempt}: "
            + (f"restored step {step} from {gang.directory}/step-{step}" if step else "starts from the beginning")
            for attempt, step in enumerate(restored, 1)
        ]


@pytest.mark.nightly
def test_an_incomplete_checkpoint_is_never_loaded_and_is_written_again(tmp_path: Path) -> None:
    alone = Gang("demo.yaml", tmp_path, 1, ["--steps", "6", "--save-every", "2", "--batch", "1"])
    try:
        alone.start()
        assert alone.ends() == [0], alone.log(0).read_text()
        expected = result(alone)
        torn = alone.directory / "step-6"
        (torn / "DONE").unlink()
        os.truncate(torn / "state.npz", 1000)
        alone.start()
        assert alone.ends() == [0], alone.log(0).read_text()
    finally:
        alone.close()
    assert f"attempt 2: restored step 4 from {alone.directory}/step-4" in alone.log(0).read_text()
    assert [found.step for found in complete("demo.yaml", alone.directory)] == [6, 4, 2]
    assert result(alone) == expected


def test_a_process_that_dies_while_saving_leaves_complete_or_no_checkpoints(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "client" / "gangclient", tmp_path / "gangclient")
    path = os.pathsep.join([str(ROOT), str(EXAMPLES), str(tmp_path)])
    command = [sys.executable, "-W", "ignore::RuntimeWarning", str(HERE / "dying_in_save.py"), str(tmp_path / "saved")]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *killed, last = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(killed) > 30
    for after in killed:
        assert after["killed"]
        assert after["held"] == after["steps"]
        assert after["steps"] in ([3, 2, 1], [3, 2], [4, 3, 2, 1], [4, 3, 2])
    assert last == {"steps": [4, 3, 2], "held": [4, 3, 2], "killed": False}


def test_the_plain_script_finds_the_same_line_to_the_last_digit_after_a_kill(tmp_path: Path) -> None:
    short = "import train_plain; train_plain.STEPS = 40; train_plain.SAVE_EVERY = 4; train_plain.main()"
    command = [sys.executable, "-u", "-c", short]

    def train(directory: Path) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": str(EXAMPLES), "CHECKPOINT_DIR": str(directory)}
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    with train(tmp_path / "undisturbed") as undisturbed, train(tmp_path / "killed") as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if line.startswith("step 12:"):
                killed.kill()
                break
        said, _ = undisturbed.communicate(timeout=SECONDS)
    with train(tmp_path / "killed") as again:
        resumed, _ = again.communicate(timeout=SECONDS)
    begun = {f"rank 0: begins after step {step}" for step in range(12, 40, 4)}  # It went on until it was killed.
    assert resumed.splitlines()[0] in begun
    assert resumed.splitlines()[-1] == said.splitlines()[-1]
    assert "the line is" in said


@pytest.mark.parametrize(
    ("manifest", "code"),
    [("hello", 0), *(pytest.param(*one, marks=pytest.mark.nightly) for one in (("exit-codes", 1), ("spare", 0)))],
)
def test_an_example_manifest_ends_as_its_comment_describes(manifest: str, code: int, tmp_path: Path) -> None:
    file = EXAMPLES / f"{manifest}.yaml"
    command = [sys.executable, "-m", "gangctl", "run", str(file), "--plain", "--state-dir", str(tmp_path / "state")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == code, ran.stdout + ran.stderr
