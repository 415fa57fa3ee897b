"""`gangctl init`: the manifest that it writes passes `gangctl check`, and nothing is overwritten silently."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangctl.api.manifest import load
from gangctl.cli.local.disk_checkpoints import recognised, unnumbered
from gangctl.cli.main import main

FLAGS = ("--members", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['RANK'])\n")
    return tmp_path


def touch(*paths: str) -> None:
    for one in paths:
        path = Path(one)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.parametrize("framework", ["torchrun", "jax", "script"])
@pytest.mark.parametrize("processes", ["1", "4"])
def test_the_manifest_passes_check(framework: str, processes: str) -> None:
    words = ["init", "train.py", "--framework", framework, "--processes-per-member", processes, *FLAGS]
    assert main(words) == 0
    assert main(["check", "gang.yaml"]) == 0
    job = load(Path("gang.yaml").read_text(), "gang.yaml")
    assert job.metadata.name == "train"
    assert (job.spec.roles[0].replicas, job.spec.roles[0].processes_per_pod) == (2, int(processes))
    assert job.spec.roles[0].worker.command[-1] == "train.py"
    assert job.spec.checkpoint is None


def test_what_is_commented_out_is_valid_as_well() -> None:
    touch("ckpt/step-1/weights.bin")
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    text = Path("gang.yaml").read_text()
    assert "ckpt has step-{step}, without a file that marks a step complete" in text
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line == "  # checkpoint:")
    block = [line.replace("  # ", "  ", 1) for line in lines[first : first + 10]]
    job = load("\n".join([*lines[:first], *block, *lines[first + 10 :]]), "gang.yaml")
    assert job.spec.checkpoint is not None
    hints = [line.replace("  # ", "  ", 1) if line.startswith("  # ") else line for line in lines[first + 10 :]]
    assert load("\n".join([*lines[:first], *hints]), "gang.yaml").spec.progress.timeout_seconds == 600


@pytest.mark.parametrize(
    ("files", "layout", "pattern", "complete", "newest"),
    [
        (["a/step-1/.metadata", "a/step-12/.metadata", "a/step-13/x"], "TorchDCP", "step-{step}", ".metadata", 12),
        (["a/checkpoint-5/trainer_state.json"], "HuggingFace", "checkpoint-{step}", "trainer_state.json", 5),
        (["a/iter_0000010/metadata.json"], "Megatron", "iter_{step}", "metadata.json", 10),
        (["a/3/_CHECKPOINT_METADATA"], "Orbax", "{step}", "_CHECKPOINT_METADATA", 3),
        (["a/epoch=1-step=7.ckpt"], "Lightning", "*step={step}*.ckpt", "", 7),
        (["a/step-20/DONE", "a/step-40/DONE", "a/step-60/state"], "Pattern", "step-{step}", "DONE", 40),
        (["runs/x/ckpt_100.pt", "runs/x/ckpt_200.pt"], "Pattern", "ckpt_{step}.pt", "", 200),
        (["checkpoints/step_8/weights"], "Pattern", "step_{step}", "", None),
        (["checkpoints/step-10.json", "checkpoints/step-20.json"], "Pattern", "step-{step}.json", "", 20),
        (["out/state_7.txt"], "Pattern", "state_{step}.txt", "", 7),
    ],
)
def test_layouts_are_recognised(
    here: Path, files: list[str], layout: str, pattern: str, complete: str, newest: int | None
) -> None:
    touch(*files)
    (found,) = recognised(here)
    assert (found.layout, found.pattern, found.complete) == (layout, pattern, complete)
    assert (found.newest.step if found.newest else None) == newest


@pytest.mark.parametrize(
    "path",
    [
        "logs/log1.txt",
        "out/eval-step-3.json",
        "ckpt/metrics-3.json",
        "out/step-3.txt",
        "data/shard-3.bin",
        ".hidden/step-1/.metadata",
        "v/pyvenv.cfg",
        "a/b/c/d/step-1/.metadata",
    ],
)
def test_what_is_no_checkpoint_is_not_taken_for_one(here: Path, path: str) -> None:
    touch(path, "v/step-1/.metadata")
    Path("v/pyvenv.cfg").write_text("")
    assert recognised(here) == []


def test_found_checkpoints_are_named_in_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    touch("old/step-1/DONE", "out dir/step-20/DONE", "out dir/step-40/DONE")
    os.utime("old/step-1", (1, 1))
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    assert "checkpoints: out dir (Pattern), the newest complete step is 40" in capsys.readouterr().out
    assert main(["check", "gang.yaml"]) == 0
    assert "attempt 1 restores step 40 of tier shared: out dir/step-40" in capsys.readouterr().out
    assert main(["init", "train.py", "--framework", "script", *FLAGS, "--checkpoints", "old", "--force"]) == 0
    (tier,) = yaml.safe_load(Path("gang.yaml").read_text())["spec"]["checkpoint"]["tiers"]
    assert tier["source"]["directory"] == "old"


@pytest.mark.parametrize("name", ["state.json", "out/checkpoint.pt", "out/model_latest.txt"])
def test_a_checkpoint_without_a_step_in_its_name_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    touch(name, "package.json", "status.txt", "requirements.txt")
    assert unnumbered(here) == here / name
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    assert f"{name} looks like a checkpoint without a step in its name" in capsys.readouterr().out
    assert f"  # {name} has no step in its name" in Path("gang.yaml").read_text()
    assert main(["check", "gang.yaml"]) == 0


def test_of_checkpoints_with_steps_beside_one_without_those_with_steps_are_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch("ckpt/last.pt", "ckpt/ckpt_20.pt", "state.json\x1b[2J")
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    assert "the newest complete step is 20" in capsys.readouterr().out
    assert "ckpt/last.pt" not in (here / "gang.yaml").read_text()


def test_a_file_is_overwritten_with_force_only(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gang.yaml").write_text("mine")
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 2
    assert capsys.readouterr().err == "error: gang.yaml exists: --force overwrites it, --file writes another one\n"
    assert Path("gang.yaml").read_text() == "mine"
    assert main(["init", "train.py", "--framework", "script", *FLAGS, "--force"]) == 0
    assert Path("gang.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give SCRIPT, --framework, --members"),
        (["train.py", "--framework", "jax"], "give --members"),
        (["no.py", "--framework", "jax", *FLAGS], "no.py is no file in"),
        (["train.py", "--framework", "jax", *FLAGS, "--name", "A_b"], "metadata.name"),
        (["train.py", "--framework", "jax", *FLAGS, "--file", "no/gang.yaml"], "can't be written"),
    ],
)
def test_without_a_terminal_nothing_is_asked(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["init", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("gang.yaml").exists()


def test_hostile_names_stay_text() -> None:
    name, words = (
        'x\n"y.py',
        ["1", "yes", "y", "null", ".5", ".inf", "1e-3", "~", "", "a: b", "- c", "{a}", "#", "\u202e"],
    )
    Path(name).write_text("")
    assert main(["init", "--framework", "script", *FLAGS, name, "--", *words]) == 0
    job = load(Path("gang.yaml").read_text(), "gang.yaml")
    assert job.spec.roles[0].worker.command == ("python3", name, *words)
    assert job.metadata.name == "x-y"


def test_on_a_terminal_three_questions_are_asked_with_proposals(here: Path) -> None:
    (here / "train.py").write_text("import torch.distributed as dist\n")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gangctl", "init"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=here) as child:
        os.close(theirs)
        said = ""
        for question, answer in (
            ("starts the training? [train.py] ", "\n"),
            ("[torchrun] ", "x\n"),
            ("[torchrun] ", "\n"),
            ("[2] ", "4\n"),
        ):
            while not said.endswith(question):
                said += os.read(ours, 1).decode()
            os.write(ours, answer.encode())
        assert child.wait(30) == 0
    os.close(ours)
    assert "'x': answer torchrun, jax, script" in said
    job = load((here / "gang.yaml").read_text(), "gang.yaml")
    assert (job.spec.roles[0].launch, job.spec.roles[0].replicas) == ("Torchrun", 4)
