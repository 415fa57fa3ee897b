"""What can't be converted is said in a line; nothing is printed on standard output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.cli.main import main
from gangctl.convert import converter
from gangctl.convert.fields import ConvertError

TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "b", "command": ["c"]}]}}


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": TEMPLATE, **spec}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no manifest"),
        ("a: [b\n", "file.yaml:2: no YAML"),
        ("kind: Job\nspec: {a: 1, a: 2}\n", "spec.a: there is the same key twice, and each key once was expected"),
        (
            "kind: Pod\n---\nkind: Service\n",
            "there is Pod, Service; gangctl convert reads Job, PyTorchJob, TrainJob, JobSet",
        ),
        ("- 1\n- 2\n", "there is no manifest"),
        ("x" * (2 << 20), "1048576"),
        ("apiVersion: batch/v1\nkind: Job\nspec: [1]\n", "spec: a map was expected, and there is [1]"),
        ("apiVersion: batch/v1\nkind: Job\nspec: {}\n", "spec.template.spec.containers: the template has no container"),
        (yaml.safe_dump(job(template={"spec": {"containers": ["a"]}})), "a container is 'a', and no map"),
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {}\n", "there is neither Master nor Worker"),
        ("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec: {replicatedJobs: 3}\n", "a list was expected"),
        ("#SBATCH --nodes=2\nsrun 'unfinished\n", "No closing quotation"),
        ("#SBATCH --comment='it's'\nsrun ./a\n", "--comment='it's': No closing quotation"),
        ("#SBATCH -N 2\n#SBATCH hetjob\n#SBATCH -N 1\nsrun ./a\n", "convert each as a script of its own"),
        ("#SBATCH -N 2\nsrun --het-group=0 ./a : --het-group=1 ./b\n", "srun with a colon"),
    ],
)
def test_a_bad_file_is_refused(text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert main(["convert", str(path)]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert says in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give a file"),
        (["nowhere.yaml"], "nowhere.yaml doesn't exist; a command line comes after --"),
        (["a.yaml", "b.yaml"], "one file at a time"),
        (["--", "python", "train.py"], "the line must start torchrun"),
    ],
)
def test_bad_words_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", *words]) == 2
    assert says in capsys.readouterr().err


def test_no_field_is_dropped_without_a_word() -> None:
    document = job(new={"a": 1}, parallelism="4")
    document["spec"]["template"] = {**TEMPLATE, "other": 1}
    document["extra"] = 1
    said = {note.path: note.text for note in converter.of_document(document).notes}
    assert {"spec.new", "extra", "spec.template.other"} <= {path for path, text in said.items() if "not known" in text}
    assert "no whole number" in said["spec.parallelism"]


@pytest.mark.parametrize(
    "name",
    ["batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index", "training.kubeflow.org/replica-index"],
)
def test_what_other_controllers_write_on_pods_needs_an_edit(name: str) -> None:
    variable = {"name": "AT", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}}
    container = {"name": "a", "image": "b", "command": ["c"], "env": [variable]}
    made = converter.of_document(job(template={"spec": {"containers": [container]}}))
    assert any(note.is_edit and note.text.startswith(f"{name} is not set") for note in made.notes)


def test_names_of_roles_fit_and_differ() -> None:
    jobs = [
        {"name": name, "template": {"spec": {"template": TEMPLATE}}} for name in ("größe", "worker-a", "workera", "9")
    ]
    made = converter.of_document(
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {}, "spec": {"replicatedJobs": jobs}}
    )
    assert [role["name"] for role in made.document["spec"]["roles"]] == ["gre", "workera", "workera2", "r9"]


def test_a_kind_that_is_not_read_is_refused() -> None:
    assert not converter.is_convertible({"apiVersion": "v1", "kind": "Job"})
    with pytest.raises(ConvertError, match="kind Pod: gangctl convert reads"):
        converter.of_document({"kind": "Pod"})


def test_a_pipe_in_a_script_is_left_to_a_shell() -> None:
    made = converter.of_sbatch("#SBATCH -N 2\nsrun ./a --b 'c d' | tee log.$SLURM_JOB_ID\n", "", "image")
    container = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    assert container["command"] == ["bash", "-c", "./a --b 'c d' | tee \"log.$SLURM_JOB_ID\""]
    assert any("SLURM_JOB_ID" in note.text and note.is_edit for note in made.notes)


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
        ("export A=x#y\nsrun ./a --d=$A/x 'c d'\n", ["bash", "-c", "./a \"--d=$A/x\" 'c d'"], {"A": "x#y"}),
        ("srun \\\r\n  ./a\r\n", ["./a"], {}),
        ("export A=1; cd /x\nsrun ./a '#1'\n", ["./a", "#1"], {}),
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


def test_a_variable_that_nobody_sets_needs_an_edit() -> None:
    made = converter.of_sbatch("#SBATCH -N 2\nDATA=/data\nsrun ./a $DATA\n", "", "image")
    assert command_of(made) == ["bash", "-c", './a "$DATA"']
    assert any(note.is_edit and "DATA: set only by the script" in note.text for note in made.notes)


@pytest.mark.parametrize(
    ("option", "count"),
    [("gpu", 1), ("gpu:8", 8), ("gpu:a100", 1), ("gpu:a100:4,nvme:1", 4), ("nvme:2,gpu:2(S:0-1)", 2), ("nvme:2", None)],
)
def test_the_devices_of_gres_are_those_of_a_node(option: str, count: int | None) -> None:
    made = converter.of_sbatch(f"#SBATCH -N 2\n#SBATCH --gres={option}\nsrun ./a\n", "", "image")
    container = made.document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    assert container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu") == count
    assert any("--gres" in note.path for note in made.notes) == (count is None)


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


def test_run_names_the_verb_that_converts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(completions=2)))
    assert main(["run", str(tmp_path / "job.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1, "one line, and not one for each field"


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("90", 5400), ("1:30", 90), ("02:00:00", 7200), ("1-12", 129600), ("1-00:30", 88200), ("UNLIMITED", None)],
)
def test_the_time_of_slurm_is_in_seconds(time: str, seconds: int | None) -> None:
    made = converter.of_sbatch(f"#SBATCH --time={time}\nsrun ./a\n", "", "image")
    assert made.document["spec"].get("activeDeadlineSeconds") == seconds


@pytest.mark.parametrize("word", ["1e-3", "1e5", "+1E5", "5.", "0o17", "0X1F", "08", "1e6_8", "y", "N"])
def test_a_word_that_kubectl_reads_as_something_else_is_quoted(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "a", "image": "b", "command": ["c", word], "env": [{"name": "LR", "value": word}]}
    text = yaml.safe_dump(job(template={"spec": {"containers": [container]}}))
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert main(["convert", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"command: [c, '{word}']" in out
    assert f"value: '{word}'" in out


def test_the_items_of_a_list_are_converted_or_pass_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.yaml"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [service, job()]}))
    assert main(["convert", str(path)]) == 0
    assert [one["kind"] for one in yaml.safe_load_all(capsys.readouterr().out)] == ["Service", "GangJob"]


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
