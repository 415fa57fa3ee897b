"""What can't be converted is said in a line; nothing is printed on standard output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangctl.annexes.convert import converter
from gangctl.annexes.convert.fields import ConvertError
from gangctl.cli.main import main

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "a", "image": "b", "command": ["c"]}]}}


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": TEMPLATE, **spec}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no manifest"),
        ("a: [b\n", "file.yaml:1: no YAML"),
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
        (["--", "accelerate", "launch", "train.py"], "accelerate launch train.py: the line must start torchrun"),
        (["--", "python", "train.py"], "the line must start torchrun"),
    ],
)
def test_bad_words_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", *words]) == 2
    assert says in capsys.readouterr().err


CONTAINER = TEMPLATE["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (job() | {"metadata": "x"}, "metadata: a map was expected, and there is 'x'"),
        (job() | {"metadata": {"annotations": ["x"]}}, "metadata.annotations: a map was expected"),
        (job(podFailurePolicy={"rules": 1}), "spec.podFailurePolicy.rules: a list was expected"),
        (job(template={**TEMPLATE, "metadata": 1}), "spec.template.metadata: a map was expected"),
        (job(template={**TEMPLATE, "metadata": {"annotations": "x"}}), "spec.template.metadata.annotations: a map"),
        (
            job(template={"spec": {**TEMPLATE["spec"], "initContainers": 1}}),
            "spec.template.spec.initContainers: a list",
        ),
        (job(template={"spec": {"containers": [{**CONTAINER, "args": 1}]}}), "containers[0].args: a list was expected"),
        (
            job(template={"spec": {"containers": [{**CONTAINER, "resources": {"limits": "x"}}]}}),
            "resources.limits: a map",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConvertError, match=re.escape(says)):
        converter.of_document(document)


def test_no_field_is_dropped_without_a_word() -> None:
    document = job(new={"a": 1}, parallelism="4")
    document["spec"]["template"] = {**TEMPLATE, "other": 1}
    document["extra"] = 1
    said = {note.path: note.text for note in converter.of_document(document).notes}
    assert {"spec.new", "extra", "spec.template.other"} <= {path for path, text in said.items() if "not known" in text}
    assert "no whole number" in said["spec.parallelism"]
    assert all(
        note.is_edit
        for note in converter.of_document(document).notes
        if note.path in said and "not carried" in note.text
    )


@pytest.mark.parametrize(
    "name",
    [
        *("batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index", "job-name"),
        *("training.kubeflow.org/replica-index", "batch.kubernetes.io/controller-uid"),
    ],
)
def test_what_other_controllers_write_on_pods_needs_an_edit(name: str) -> None:
    variable = {"name": "AT", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}}
    container = {"name": "a", "image": "b", "command": ["c"], "env": [variable]}
    made = converter.of_document(job(template={"spec": {"containers": [container]}}))
    assert any(note.is_edit and note.text.startswith(f"{name} is not set") for note in made.notes)


def test_labels_by_which_the_old_controller_finds_its_pods_are_not_carried_over() -> None:
    theirs = dict.fromkeys(
        (
            *("batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-name", "job-name"),
            *("jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/replica-type", "kueue.x-k8s.io/podset"),
        ),
        "x",
    )
    ours = {"team": "a", "kueue.x-k8s.io/queue-name": "q"}
    metadata = {"name": "x", "labels": theirs | ours, "annotations": {"batch.kubernetes.io/job-tracking": "", "b": "c"}}
    made = converter.of_document(
        job(template={**TEMPLATE, "metadata": {"labels": theirs | ours}}) | {"metadata": metadata}
    )
    assert made.document["metadata"] == {"name": "x", "labels": ours, "annotations": {"b": "c"}}
    assert made.document["spec"]["roles"][0]["template"]["metadata"] == {"labels": ours}
    said = {note.path: note.text for note in made.notes}
    assert all(name in said["metadata.labels"] and name in said["spec.template.metadata.labels"] for name in theirs)
    assert "batch.kubernetes.io/job-tracking" in said["metadata.annotations"]
    assert not made.needs_edit


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


def test_run_names_the_verb_that_converts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(completions=2)))
    assert main(["run", str(tmp_path / "job.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1, "one line, and not one for each field"


@pytest.mark.parametrize("word", ["1e-3", "1e5", "+1E5", "5.", "0o17", "0X1F", "08", "1e6_8", "y", "N"])
def test_a_word_that_kubectl_reads_as_something_else_is_quoted(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "a", "image": "b", "command": ["c", word], "env": [{"name": "LR", "value": word}]}
    path = tmp_path / "file.yaml"
    path.write_text(json.dumps(job(template={"spec": {"containers": [container]}})))
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
