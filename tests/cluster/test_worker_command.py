from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import layout
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY
from gangctl.cluster.local.programs import command, ignored_fields, run_obstacles
from gangsidecar.wire import PRELOAD_VARIABLE
from tests.cluster.local import manifest


def started_in(job: GangJob, folder: str) -> GangJob:
    metadata = job.metadata.model_copy(update={"annotations": {ANNOTATION_DIRECTORY: folder}})
    return job.model_copy(update={"metadata": metadata})


def test_command_args_env_and_working_directory_are_the_templates() -> None:
    env = [
        {"name": "DATA", "value": "/data"},
        {"name": "RUN", "value": "$(DATA)/$(HOME)/$(UNSET)/$$(DATA)"},
        {"name": "EMPTY"},
    ]
    job = manifest(command=("python3", "train.py"), args=["--lr", "1"], env=env, workingDir="src")
    found = command(started_in(job, "/home/me"), "worker-1", {"HOME": "home"})
    assert found.words == ("python3", "train.py", "--lr", "1")
    assert found.environment == {
        "DATA": "/data",
        "RUN": "/data/home/$(UNSET)/$(DATA)",
        "EMPTY": "",
        PRELOAD_VARIABLE: "Auto",
    }
    assert found.directory == Path("/home/me/src")
    assert found.grace_seconds == 30


def test_only_the_role_says_whether_workers_are_forked() -> None:
    theirs = {PRELOAD_VARIABLE: "json"}
    env = [{"name": PRELOAD_VARIABLE, "value": "json"}]
    assert (theirs | command(manifest(env=env), "worker-0", theirs).environment)[PRELOAD_VARIABLE] == "Auto"


def test_an_absolute_working_directory_stays() -> None:
    assert command(started_in(manifest(workingDir="/srv"), "/home/me"), "worker-0", {}).directory == Path("/srv")


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"args": "one string"}, "args: 'one string' instead of a list of strings"),
        ({"workingDir": 7}, "workingDir: 7 instead of a string"),
        ({"env": [{"name": "A", "value": 1}]}, "env[0]: {'name': 'A', 'value': 1} instead of a name and a value"),
        ({"env": [{"value": "x"}]}, "env[0]: {'value': 'x'} instead of a name and a value"),
        ({"env": ["A=1"]}, "env[0]: 'A=1' instead of a name and a value"),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]},
            "env[0].valueFrom: local mode can't resolve it; set a value for A",
        ),
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, "envFrom: local mode has no ConfigMaps and Secrets"),
    ],
)
def test_a_template_that_cannot_run_here_is_rejected_with_the_path(container: dict[str, Any], said: str) -> None:
    job = manifest(**container)
    (sentence,) = run_obstacles(job)
    assert sentence.startswith("spec.roles[0].template.spec.containers[0].")
    assert said in sentence
    with pytest.raises(Terminal, match=r"template\.spec\.containers\[0\]"):
        command(job, "worker-0", {})


def test_a_gang_without_a_folder_for_its_sockets_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_obstacles(manifest(), tmp_path) == ()
    monkeypatch.setattr(layout, "_SHARED", tmp_path / "none")
    (sentence,) = run_obstacles(manifest(), tmp_path)
    assert "can't be created for the sockets of local mode: No such file or directory" in sentence


def test_parts_of_a_template_without_effect_are_listed() -> None:
    job = manifest()
    assert run_obstacles(job) == ignored_fields(job) == ()
    spec = job.spec.roles[0].template.spec.model_dump(by_alias=True, exclude_none=True)
    spec |= {"nodeSelector": {"gpu": "yes"}, "initContainers": [{"name": "fetch"}]}
    spec["containers"] = [*spec["containers"], {"name": "logs", "command": ["tail"]}]
    dumped = job.model_dump(by_alias=True, exclude_none=True)
    dumped["spec"]["roles"][0]["template"]["spec"] = spec
    first, second = ignored_fields(GangJob.model_validate(dumped))
    assert "local mode starts only container main, not logs, fetch" in first
    assert "nodeSelector have no effect in local mode" in second


def test_resources_of_the_worker_have_no_effect_and_are_listed_once() -> None:
    resources = {"limits": {"memory": "1Gi", "nvidia.com/gpu": 8}, "requests": {"memory": "1Gi", "cpu": 2}}
    (said,) = ignored_fields(manifest(resources=resources))
    assert "the resources memory, nvidia.com/gpu, cpu have no effect in local mode" in said
    assert ignored_fields(manifest(resources={})) == ignored_fields(manifest(resources="?")) == ()
