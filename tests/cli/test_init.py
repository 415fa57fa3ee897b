"""`gangctl init`: the manifest that it writes passes `gangctl check`, and nothing is overwritten silently."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangctl.api.manifest import load_gangjob, load_gangjobs
from gangctl.api.recovery import DirectorySource
from gangctl.cli.local.disk_checkpoints import checkpoint_folders, complete_steps, file_without_step
from gangctl.cli.main import main
from gangsidecar.supervisor import lookups
from gangsidecar.wire import Tier

FLAGS = ("--members", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['RANK'], 'ckpt', 'out dir')\n")
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
    job = load_gangjob(Path("gang.yaml").read_text(), "gang.yaml")
    assert job.metadata.name == "train"
    assert (job.spec.roles[0].replicas, job.spec.roles[0].processes_per_pod) == (2, int(processes))
    assert job.spec.roles[0].worker.command[-1] == "train.py"
    assert job.spec.checkpoint is None


def test_a_shell_script_that_starts_torchrun_is_started_by_bash() -> None:
    Path("train.sh").write_text("exec torchrun train.py\n")
    assert main(["init", "train.sh", "--framework", "torchrun", *FLAGS]) == 0
    role = load_gangjob(Path("gang.yaml").read_text(), "gang.yaml").spec.roles[0]
    assert (role.worker.command, role.launch) == (("bash", "train.sh"), "Torchrun")


def test_the_names_of_replica_groups_fit() -> None:
    Path(f"{'x' * 60}.py").touch()
    assert main(["init", f"{'x' * 60}.py", "--framework", "script", "--replica-groups", "11", *FLAGS]) == 0
    jobs = load_gangjobs(Path("gang.yaml").read_text(), "gang.yaml")
    assert jobs[-1].metadata.name == f"{'x' * 39}-10"


def test_replica_groups_are_gangs_of_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "train.py", "--framework", "torchrun", "--replica-groups", "2", *FLAGS]) == 0
    capsys.readouterr()
    assert main(["check", "gang.yaml", "-o", "json"]) == 0
    assert [one["gang"]["name"] for one in json.loads(capsys.readouterr().out)] == ["train-0", "train-1"]
    jobs = load_gangjobs(Path("gang.yaml").read_text(), "gang.yaml")
    groups = [job.spec.replica_group for job in jobs]
    assert [job.metadata.name for job in jobs] == ["train-0", "train-1"]
    assert [(one.name, one.index, one.count) for one in groups if one] == [("train", 0, 2), ("train", 1, 2)]


def test_a_canary_runs_on_the_candidates_and_is_known_by_its_work() -> None:
    words = ["init", "train.py", "--framework", "torchrun", "--canary", "driver=580,example.com/pool=a"]
    assert main([*words, "--name", "bench-580"]) == 0
    job = load_gangjob(Path("gang.yaml").read_text(), "gang.yaml")
    assert (job.metadata.name, job.spec.roles[0].replicas) == ("bench-580", 2)
    made = yaml.safe_load(Path("gang.yaml").read_text())
    assert made["metadata"]["labels"] == {"gangctl.io/canary": "train"}
    spec = made["spec"]["roles"][0]["template"]["spec"]
    assert spec["nodeSelector"] == {"driver": "580", "example.com/pool": "a"}
    for wrong in ("driver", "=580", "a=b,", "a==b"):
        with pytest.raises(SystemExit):
            main([*words[:-1], wrong, "--force"])


def test_the_commands_that_it_offers_run_also_if_the_file_has_a_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "train.py", "--framework", "script", *FLAGS, "--file", "my gang.yaml"]) == 0
    assert "gangctl check 'my gang.yaml', then gangctl run 'my gang.yaml' --logs" in capsys.readouterr().out
    text = Path("my gang.yaml").read_text()
    assert all(f"#   {one} 'my gang.yaml' " in text for one in ("gangctl check", "gangctl run", "kubectl apply -f"))


def test_what_is_commented_out_is_valid_as_well() -> None:
    touch("ckpt/step-1/weights.bin")
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    text = Path("gang.yaml").read_text()
    assert "ckpt has step-{step}, without a file that marks a step complete" in text
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line == "  # checkpoint:")
    block = [line.replace("  # ", "  ", 1) for line in lines[first : first + 11]]
    written = "\n".join([*lines[:first], *block, *lines[first + 11 :]])
    job = load_gangjob(written, "gang.yaml")
    assert job.spec.checkpoint is not None
    elastic = written.replace("# reshardable", "reshardable").replace("# minReplicas", "minReplicas")
    assert load_gangjob(elastic, "gang.yaml").spec.roles[0].min_replicas == job.spec.roles[0].replicas - 1
    hints = [line.replace("  # ", "  ", 1) if line.startswith("  # ") else line for line in lines[first + 11 :]]
    assert load_gangjob("\n".join([*lines[:first], *hints]), "gang.yaml").spec.progress.timeout_seconds == 600


@pytest.mark.parametrize(
    ("files", "layout", "pattern", "complete", "newest"),
    [
        (["a/step-1/.metadata", "a/step-12/.metadata", "a/step-13/x"], "TorchDCP", "step-{step}", ".metadata", 12),
        (["a/checkpoint-5/trainer_state.json"], "HuggingFace", "checkpoint-{step}", "trainer_state.json", 5),
        (["a/iter_0000010/metadata.json"], "Megatron", "iter_{step}", "metadata.json", 10),
        (["a/3/_CHECKPOINT_METADATA"], "Orbax", "{step}", "_CHECKPOINT_METADATA", 3),
        (["a/epoch=1-step=7.ckpt"], "Lightning", "*step={step}*.ckpt", "", 7),
        (["a/step-20/DONE", "a/step-40/DONE", "a/step-60/state"], "Pattern", "step-{step}", "DONE", 40),
        (["runs/x/step_100.pt", "runs/x/step_200.pt"], "Pattern", "step_{step}.pt", "", 200),
        (
            ["c/m-epoch=00-val_loss=0.35.ckpt", "c/m-epoch=02-val_loss=0.33.ckpt"],
            "Pattern",
            "m-epoch={step}-val_loss=*.*.ckpt",
            "",
            2,
        ),
        (
            ["c/epoch_0_step_20/.metadata", "c/epoch_0_step_40/.metadata", "c/epoch_1_step_60/.metadata"],
            *("Pattern", "epoch_*_step_{step}", ".metadata", 60),
        ),
        (["c/ep0-ba100.pt", "c/ep1-ba200.pt"], "Pattern", "ep*-ba{step}.pt", "", 200),
        (
            ["c/gpt--loss=2.5-step=8-samples=64.0/metadata.json"],
            *("Pattern", "gpt--loss=*.*-step={step}-samples=*.*", "metadata.json", 8),
        ),
        (["checkpoints/step_8/weights"], "Pattern", "step_{step}", "", None),
        (["checkpoints/step-10.json", "checkpoints/step-20.json"], "Pattern", "step-{step}.json", "", 20),
    ],
)
def test_layouts_are_recognised(
    here: Path, files: list[str], layout: str, pattern: str, complete: str, newest: int | None
) -> None:
    touch(*files)
    (found,) = checkpoint_folders(here)
    assert (found.layout, found.pattern, found.complete) == (layout, pattern, complete)
    assert (found.newest.step if found.newest else None) == newest


@pytest.mark.parametrize(
    ("files", "pattern", "doubt"),
    [
        (["c/ep0-ba100-rank0.pt", "c/ep0-ba100-rank1.pt"], "ep*-ba{step}-rank*.pt", "several of one step"),
        (["c/checkpoint-5/random_states_0.pkl", "c/checkpoint-5/a"], "checkpoint-{step}", "no word"),
        (["c/checkpoint-5/model-00001-of-00003.safetensors"], "checkpoint-{step}", "no word"),
        (
            ["c/checkpoint_1_500.pt", "c/checkpoint_1_1000.pt", "c/checkpoint_2_1500.pt"],
            "checkpoint_*_{step}.pt",
            "no word",
        ),
        (["c/ckpt_100.pt"], "ckpt_{step}.pt", "no word"),
        (["c/global_step100/mp_rank_00_model_states.pt"], "global_step{step}", "without a file"),
        (["c/step_100/rank_0.pt", "c/step_100/rank_1.pt"], "step_{step}", "without a file"),
        (["c/epoch0-step20.pt", "c/epoch1-step10.pt"], "epoch*-step{step}.pt", "begin anew"),
        (["c/ckpt-batch_size=32-loss=3.pt"], "ckpt-batch_size=*-loss={step}.pt", "no word"),
    ],
)
def test_a_step_in_doubt_makes_no_tier(here: Path, files: list[str], pattern: str, doubt: str) -> None:
    touch(*files)
    (found,) = checkpoint_folders(here)
    assert (found.pattern, found.newest) == (pattern, None)
    assert doubt in found.doubt
    assert main(["init", "train.py", "--framework", "script", *FLAGS, "--checkpoints", "c"]) == 0
    text = Path("gang.yaml").read_text()
    assert f"  # c has {pattern}, {found.doubt}." in text
    assert load_gangjob(text, "gang.yaml").spec.checkpoint is None


def test_a_folder_that_the_script_does_not_name_is_not_bound(capsys: pytest.CaptureFixture[str]) -> None:
    touch("old/a b/step-1/DONE")
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    assert "call init again with --checkpoints 'old/a b' --force" in capsys.readouterr().out
    assert load_gangjob(Path("gang.yaml").read_text(), "gang.yaml").spec.checkpoint is None


@pytest.mark.parametrize(
    ("pattern", "complete"),
    [("step-{step}", "DONE"), ("*step={step}*.ckpt", ""), ("{step}", "DONE"), ("s{step}.pt", "")],
)
def test_check_and_the_supervisor_find_the_same_steps(here: Path, pattern: str, complete: str) -> None:
    touch("c/step-1/DONE", "c/step-2/x", "c/step-03/DONE", "c/3/DONE", "c/4", "c/s5.pt", "c/s6.pt/x", "c/step-7/DONE/x")
    touch(
        "c/step=8.ckpt",
        "c/step=8-v1.ckpt",
        "c/a-step=9-b2.ckpt",
        "c/step-1234567890123456789/DONE",
        "out/DONE",
        "out.pt",
    )
    for name, target in (("step-10", "../out"), ("step-11", "step-1"), ("s12.pt", "../out.pt"), ("s13.pt", "s5.pt")):
        Path("c", name).symlink_to(target)
    source = DirectorySource(
        type="Directory", directory="c", layout="Pattern", pattern=pattern, complete=complete or None
    )
    found, error = lookups.scan([Tier("shared", str(here / "c"), pattern, complete)])
    assert not error
    steps = complete_steps(source, here)
    assert [(one.step, str(one.path)) for one in steps] == [(one.step, one.path) for one in found]


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
    assert checkpoint_folders(here) == []


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


def test_a_folder_of_checkpoints_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "train.py", "--framework", "script", *FLAGS, "--checkpoints", "nope"]) == 0
    assert (
        "no folder nope so far: uncomment checkpoint in gang.yaml, or each restart begins at step 0"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("name", ["state.json", "out/checkpoint.pt", "out/model_latest.txt"])
def test_a_checkpoint_without_a_step_in_its_name_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    touch(name, "package.json", "status.txt", "requirements.txt")
    assert file_without_step(here) == here / name
    assert main(["init", "train.py", "--framework", "script", *FLAGS]) == 0
    assert f"{name} looks like a checkpoint without a step in its name" in capsys.readouterr().out
    assert f"  # {name} has no step in its name" in Path("gang.yaml").read_text()
    assert main(["check", "gang.yaml"]) == 0


def test_of_checkpoints_with_steps_beside_one_without_those_with_steps_are_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch("ckpt/last.pt", "ckpt/step_20.pt", "state.json\x1b[2J")
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
        (["no.py", "--framework", "jax", *FLAGS], "no.py isn't a file in"),
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
    job = load_gangjob(Path("gang.yaml").read_text(), "gang.yaml")
    assert job.spec.roles[0].worker.command == ("python3", name, *words)
    assert job.metadata.name == "x-y"


def test_on_a_terminal_three_questions_are_asked_with_proposals(here: Path) -> None:
    (here / "train.py").write_text("import torch.distributed as dist\n")
    touch("elsewhere/step-1/DONE")
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
            ("yes or no? [no] ", "yes\n"),
        ):
            while not said.endswith(question):
                said += os.read(ours, 1).decode()
            os.write(ours, answer.encode())
        assert child.wait(30) == 0
    os.close(ours)
    assert "'x': answer torchrun, jax, script" in said
    job = load_gangjob((here / "gang.yaml").read_text(), "gang.yaml")
    assert (job.spec.roles[0].launch, job.spec.roles[0].replicas) == ("Torchrun", 4)
    assert job.spec.checkpoint is not None


def test_a_file_that_cannot_be_overwritten_stays_as_it_was() -> None:
    """The limit of a file's size is the full disk."""
    Path("gang.yaml").write_text("mine")
    words = f"-m gangctl init train.py --framework script {' '.join(FLAGS)} --force"
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 0; exec '{sys.executable}' {words}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "error: gang.yaml can't be written: File too large\n")
    assert Path("gang.yaml").read_text() == "mine"
    assert not list(Path().glob(".*.tmp"))
