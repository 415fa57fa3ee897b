"""What the lines and options of a script for sbatch become, and which of them need an edit."""

from __future__ import annotations

import pytest

from gangctl.annexes.convert import commands, converter
from gangctl.annexes.convert.fields import ConvertError, Notes


@pytest.mark.parametrize(
    "text",
    [
        "./a --b 'c d' | tee log.$X",
        './a; echo "all done"',
        'python3 $(dirname "$PWD")/a.py',
        "python3 a.py --tag `uname -s`-`uname -m`",
        "./a *.txt",
        "./a ~/data",
        "./a &",
        './a "${ARGS[@]}"',
        'bash -c "./a $RANK; wait"',
        "./a <<< 'x'",
        "./a {1,2}",
    ],
)
def test_text_that_only_a_shell_can_read_is_left_to_one_as_it_is(text: str) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\nsrun -l {text}\n", "", "image")
    assert command_of(made) == ["bash", "-c", text]
    assert any("is text for a shell" in note.text and note.is_edit for note in made.notes)


@pytest.mark.parametrize("text", ["srun ./a $SLURM_PROCID", "srun bash -c './a $SLURM_PROCID'"])
def test_a_variable_of_slurm_needs_an_edit(text: str) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\n{text}\n", "", "image")
    assert any("SLURM_PROCID" in note.text and note.is_edit for note in made.notes)


@pytest.mark.parametrize(
    "script",
    [
        "srun -n 2 ./a &\nsrun -n 1 ./b &\nwait\n",
        "srun uname -a\nsrun ./a\n",
        "cat > notes <<EOF\nsrun is called below\nEOF\nsrun ./a\n",
        'if [ "$DEBUG" = 1 ]; then\n  srun ./b\nelse\n  srun ./a\nfi\n',
    ],
)
def test_a_script_with_several_steps_is_refused(script: str) -> None:
    with pytest.raises(ConvertError, match=r"2 lines start programs \(srun .*; srun .*\): .* leave the one line"):
        converter.of_sbatch(f"#SBATCH -N 2\n{script}", "", "image")


@pytest.mark.parametrize(
    "line",
    [
        *("cd /x", "source venv/bin/activate", "module load cuda", "echo a > b", "ulimit -n 9", "export A=$(b)"),
        *("export A=$B", "A=1; cd /x", "for i in 1 2; do", "mkdir -p out && cd out", "python prepare.py", "A+=' x'"),
    ],
)
def test_a_line_that_the_command_may_need_needs_an_edit(line: str) -> None:
    assert converter.of_sbatch(f"#SBATCH -N 2\n{line}\nsrun ./a\n", "", "image").needs_edit


@pytest.mark.parametrize(
    "line", ["set -ex", 'echo "Starting $SLURM_JOB_ID"', "A=1", "nodes=( $(scontrol show hostnames) )", "b=$(hostname)"]
)
def test_a_line_that_the_command_does_not_need_needs_none(line: str) -> None:
    assert not converter.of_sbatch(f"#SBATCH -N 2\n{line}\nsrun ./a\nwait\n", "", "image").needs_edit


@pytest.mark.parametrize(
    ("options", "flags", "shape"),
    [
        ("", "--ntasks-per-node=8", (2, 8)),
        ("", "-n 16 -N 2", (2, 8)),
        ("", "-n16 -N4", (4, 4)),
        ("#SBATCH -n 4\n", "", (2, 2)),
        ("#SBATCH -n 4\n", "-n $SLURM_NTASKS -N ${SLURM_NNODES}", (2, 2)),
        ("", "-n 5", None),
        ("", "-n $N", None),
        ("#SBATCH --ntasks-per-node=8\n", "-n 2", None),
        ("#SBATCH -N 0\n", "", None),
    ],
)
def test_a_node_has_as_many_processes_as_the_step_asks_for(
    options: str, flags: str, shape: tuple[int, int] | None
) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\n{options}srun {flags} ./a\n", "", "image")
    role = made.document["spec"]["roles"][0]
    assert made.needs_edit == (shape is None)
    assert shape is None or shape == (role["replicas"], role["processesPerPod"])


@pytest.mark.parametrize(
    ("options", "needs_edit"),
    [("-n 32", True), ("-n 32 --ntasks-per-node=8", True), ("-n 1", False), ("--ntasks-per-node=8", False)],
)
def test_tasks_without_a_number_of_nodes_are_not_put_into_one_pod_in_silence(options: str, *, needs_edit: bool) -> None:
    made = converter.of_sbatch(f"#SBATCH {options}\nsrun ./a\n", "", "image")
    assert any("the number of nodes can't be told" in note.text for note in made.notes) == needs_edit
    assert made.needs_edit == needs_edit


@pytest.mark.parametrize(
    "flag",
    [
        *("--export=ALL,A=1", "--chdir=$X", "--container-mounts=/a:/a", "--multi-prog=a", "--unheard-of=1", "-w host1"),
        *("--time=soon", "--export=ALL,A=$SLURM_JOB_ID", "--chdir=$SLURM_SUBMIT_DIR/x", "-N $((SLURM_NNODES-1))"),
    ],
)
def test_a_flag_that_is_lost_needs_an_edit(flag: str) -> None:
    assert converter.of_sbatch(f"#SBATCH -N 2\nsrun {flag} ./a\n", "", "image").needs_edit


def test_the_folder_of_a_step_is_that_of_the_container() -> None:
    made = converter.of_sbatch("#SBATCH -N 2\nsrun --export=ALL --chdir=/work ./a\n", "", "image")
    assert made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["workingDir"] == "/work"
    assert not made.needs_edit


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("torchrun --nnodes $N --rdzv_endpoint=$(hostname -s | head -n 1):29500 a.py --b 'c d'", "a.py --b 'c d'"),
        ('torchrun --nnodes 2 "$HOME/a.py" *.txt', '"$HOME/a.py" *.txt'),
        ("torchrun --node_rank \\$R --nnodes 2 a.py > log", "a.py > log"),
    ],
)
def test_flags_of_torchrun_leave_the_text_whole(text: str, command: str) -> None:
    said = commands.Torchrun()
    notes = Notes()
    assert commands.strip_text(text, "the command", notes, said) == f"torchrun {command}"
    assert not any(note.is_edit for note in notes)


@pytest.mark.parametrize(
    "text",
    ["torchrun $ARGS a.py", 'torchrun --tee 3 "${ARGS[@]}" a.py', "torchrun --nnodes 2; ls", "torchrun $(flags) a.py"],
)
def test_flags_of_torchrun_that_may_be_in_a_variable_need_an_edit(text: str) -> None:
    notes = Notes()
    commands.strip_text(text, "the command", notes, commands.Torchrun())
    assert any(note.is_edit and "may hold flags of the rendezvous" in note.text for note in notes)


def command_of(made: converter.Converted) -> list[str]:
    command: list[str] = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"]
    return command


@pytest.mark.parametrize(
    "flags",
    [
        *("-n8", "-N2 -n8", "-N 2 -n 8", "--exclusive", "-K", "--kill-on-bad-exit", "--overlap --exact", "-lu"),
        *("--ntasks=8", "--pty", "--no-container-mount-home", "--mpi pmix --container-image=a", "--cpu-bind none -l"),
    ],
)
def test_the_flags_of_srun_leave_its_command_whole(flags: str) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\nsrun {flags} python train.py -n 3\n", "", "image")
    assert command_of(made) == ["python", "train.py", "-n", "3"]


@pytest.mark.parametrize(
    ("lines", "command", "variables"),
    [
        ("export A=1 B='b c'  # don't\nsrun ./a # it's it\n", ["./a"], {"A": "1", "B": "b c"}),
        ("export A=x.y\nsrun ./a --d=$A/x 'c d'\n", ["./a", "--d=x.y/x", "c d"], {"A": "x.y"}),
        ("export A='python3 -u'\nB=b\nsrun $A a.py \"${B}x\"\n", ["python3", "-u", "a.py", "bx"], {"A": "python3 -u"}),
        ("srun bash -c 'x=$((RANK * 10)); echo \"$x\"'\n", ["bash", "-c", 'x=$((RANK * 10)); echo "$x"'], {}),
        ("srun bash -c '\n./a\n# it\n'\n", ["bash", "-c", "\n./a\n# it\n"], {}),
        ("srun \\\r\n  ./a\r\n", ["./a"], {}),
        ("srun ./a '#1'\n", ["./a", "#1"], {}),
    ],
)
def test_words_and_variables_of_a_script_are_those_of_a_shell(
    lines: str, command: list[str], variables: dict[str, str]
) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\n{lines}", "", "image")
    container = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    assert container["command"] == command
    assert {one["name"]: one["value"] for one in container.get("env", ())} == variables
    assert not made.needs_edit


@pytest.mark.parametrize(
    ("option", "count"),
    [("gpu", 1), ("gpu:8", 8), ("gpu:a100", 1), ("gpu:a100:4,nvme:1", 4), ("nvme:2,gpu:2(S:0-1)", 2), ("nvme:2", None)],
)
def test_the_devices_of_gres_are_those_of_a_node(option: str, count: int | None) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\n#SBATCH --gres={option}\nsrun ./a\n", "", "image")
    container = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    assert container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu") == count
    lost = [note.path for note in made.notes if note.is_edit]
    assert lost == [f"--gres={part}" for part in option.split(",") if part.startswith("nvme")]


@pytest.mark.parametrize(
    ("options", "count", "lost"),
    [
        ("--gres=gpu:a100:4,nvme:500 --gpus=8", 4, ["--gres=nvme:500"]),
        ("--gpus-per-node=4 --gpus=16", 4, ["--gpus=16"]),
        ("--gpus-per-node=a100:4 --gres=gpu:8 --gpus-per-task=2 --ntasks-per-node=2", 4, ["--gres=gpu:8"]),
        ("--gpus-per-task=2 --gpus=8 --ntasks-per-node=2", 4, []),
        ("--gpus-per-task=2 --gpus=4 --ntasks-per-node=2", 4, ["--gpus=4"]),
        ("--gpus=8", None, ["--gpus=8"]),
        ("--gpus-per-node=all", None, ["--gpus-per-node=all"]),
    ],
)
def test_each_option_for_devices_is_that_of_the_result_or_needs_an_edit(
    options: str, count: int | None, lost: list[str]
) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2 {options}\nsrun ./a\n", "", "image")
    container = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    assert container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu") == count
    assert [note.path for note in made.notes if note.is_edit] == lost


def test_a_range_of_nodes_becomes_the_larger_number() -> None:
    made = converter.of_sbatch("#SBATCH --nodes=2-4\nsrun ./a\n", "", "image")
    assert made.document["spec"]["roles"][0]["replicas"] == 4
    unknown = converter.of_torchrun(["torchrun", "--nnodes", "$N", "a.py"], "", "image")
    assert any(note.is_edit and "$N nodes can't be told" in note.text for note in unknown.notes)


def test_torchrun_under_srun_with_the_variables_of_slurm_needs_no_edit() -> None:
    line = "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_id $RANDOM train.py"
    made = converter.of_sbatch(f"#SBATCH -N 2\n#SBATCH --gpus-per-node=8\n{line}\n", "", "image")
    assert not made.needs_edit
    assert command_of(made) == ["torchrun", "train.py"]
    assert made.document["spec"]["roles"][0]["processesPerPod"] == 8


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("90", 5400), ("1:30", 90), ("02:00:00", 7200), ("1-12", 129600), ("1-00:30", 88200), ("UNLIMITED", None)],
)
def test_the_time_of_slurm_is_in_seconds(time: str, seconds: int | None) -> None:
    made = converter.of_sbatch(f"#SBATCH --time={time}\nsrun ./a\n", "", "image")
    assert made.document["spec"].get("activeDeadlineSeconds") == seconds


@pytest.mark.parametrize(
    ("named", "image"),
    [
        ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("docker://me@registry.example#train:1", "registry.example/train:1"),
        ("ubuntu", "ubuntu"),
        ("registry.example/train@sha256:0123", "registry.example/train@sha256:0123"),
        ("/images/train.sqsh", "IMAGE"),
        ("$IMAGE", "IMAGE"),
    ],
)
@pytest.mark.parametrize("script", ["#SBATCH --container-image={}\nsrun ./a\n", "srun --container-image {} ./a\n"])
def test_the_image_of_a_container_of_slurm_becomes_the_image(script: str, named: str, image: str) -> None:
    made = converter.of_sbatch(script.format(named), "", "")
    assert image_of(made) == image
    assert command_of(made) == ["./a"]
    assert any(note.is_edit for note in made.notes) == (image == "IMAGE")


def test_an_image_that_the_call_names_is_used_and_the_other_is_told() -> None:
    made = converter.of_sbatch("srun --container-image=ubuntu ./a\n", "", "mine")
    assert image_of(made) == "mine"
    assert ("srun --container-image=ubuntu", "goes: --image names mine") in [(one.path, one.text) for one in made.notes]


def image_of(made: converter.Converted) -> str:
    image: str = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"]
    return image
