"""`gangctl check`: what a manifest will do, compared with what it does."""

from __future__ import annotations

import json
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from gangctl.cli.main import main
from tests.cli.here import Here, manifest

EVERYTHING = ("sh", "-c", 'env -0 > "$GANG_MEMBER.$RANK.env"')
OF_THE_START = {
    "GANG_SOCKET",
    "GANG_POD_UID",
    "GANG_PARKING",
    "GANG_SUPERVISED",
    "GANG_TERMINATION_LOG",
    "GANG_WARM_STARTS",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(capsys: pytest.CaptureFixture[str], one: dict[str, Any], *words: str, code: int = 0) -> str:
    Path("job.yaml").write_text(json.dumps(one))
    assert main(["check", "job.yaml", *words]) == code
    return capsys.readouterr().out


def tiered(directory: str = "ckpt", **source: str) -> dict[str, Any]:
    source = source or {"layout": "TorchDCP"}
    tier = {"name": "shared", "scope": "Shared", "source": {"type": "Directory", "directory": directory, **source}}
    return manifest(["true"], 1, checkpoint={"tiers": [tier]})


def environment(path: Path) -> dict[str, str]:
    pairs = (word.partition("=") for word in path.read_text().split("\0") if word)
    return {name: value for name, _, value in pairs}


@pytest.mark.nightly
def test_the_variables_are_those_that_the_processes_get(folder: Here) -> None:
    one = manifest(EVERYTHING, 2)
    role = one["spec"]["roles"][0]
    role |= {"launch": "PerProcess", "processesPerPod": 2}
    role["template"]["spec"]["containers"][0]["env"] = [{"name": "MINE", "value": "of $(HOME)"}]
    folder.write(one)
    told = json.loads(folder.gangctl("check", "job.yaml", "-o", "json").stdout)
    assert folder.run().wait() == 0
    assert [one["name"] for one in told["members"]] == ["worker-0", "worker-1"]
    for member in told["members"]:
        for process in member["processes"]:
            (rank,) = process["ranks"]
            real = environment(folder.path / f"{member['name']}.{rank}.env")
            assert {name for name in real if name.startswith("GANG_")} - OF_THE_START <= process["environment"].keys()
            for name, value in process["environment"].items():
                assert real[name] == value or "<" in value, name
    assert told["local"] == {"runs": True, "refused": [], "ignored": []}


def test_ranks_groups_ports_and_rules_are_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = [{"name": "asked", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}}]
    one = manifest(["true"], 2, podFailurePolicy={"rules": rules}, progress={"timeoutSeconds": 60, "onHang": "Restart"})
    one["spec"]["roles"][0] |= {"spares": 1, "processesPerPod": 4}
    out = checked(capsys, one)
    assert "worker-1  ranks 4 to 7 (the command starts them itself)" in out
    assert "worker-2  a spare: it takes the rank of a member whose pod is lost" in out
    assert "worker: 8 ranks on 2 members, master worker-0" in out
    assert "port: one of 29400 to 29463, another in each attempt" in out
    assert "MASTER_ADDR=<address of worker-0>" in out
    assert "asked: exit code in 75: Ignore" in out
    assert "no rule matches: a disruption is not charged (Ignore), every other fault is (Count)" in out
    assert "budget: 10 charged restarts in 3600 s; after them the gang fails" in out
    assert "hangs: without progress (API) for 60 s, the gang restarts" in out
    assert f"each member of worker runs: true  (in {here})" in out


@pytest.mark.parametrize(
    ("command", "start", "how"),
    [
        (
            ["python3", "-u", "train.py"],
            None,
            "forks each Python from a template that has imported what the first start",
        ),
        (["bash", "-c", "torchrun train.py"], {"type": "Fork"}, "forks each Python from a template that has imported"),
        (
            ["python3", "-m", "train"],
            {"type": "Fork", "preload": {"type": "Modules", "modules": ["torch", "numpy"]}},
            "forks each Python from a template that has imported torch and numpy",
        ),
        (
            ["bash", "-c", "exec torchrun train.py"],
            {"type": "Fork", "preload": {"type": "Modules", "modules": ["torch"]}},
            "forks each Python from a template that has imported torch, but not a pod's first start",
        ),
        (["sh", "-c", "PYTHONPATH=. python t.py"], None, "executes the command anew: it drops what PYTHONPATH had"),
        (
            ["sh", "-c", "export PYTHONPATH=src:$$PYTHONPATH; python train.py"],
            None,
            "forks each Python from a template that has imported what",
        ),
        (
            ["/opt/bin/python3.12", "-u", "-Im", "train"],
            None,
            "executes the command anew: with -I, Python can't be forked",
        ),
        (["python", "-c", "import train"], None, "executes the command anew: with -c, Python can't be forked"),
        (["python3", "train.py"], {"type": "Exec"}, "executes the command anew, which imports everything (start Exec)"),
    ],
)
def test_the_way_in_which_a_restart_starts_workers_is_shown(
    capsys: pytest.CaptureFixture[str], command: list[str], start: dict[str, Any] | None, how: str
) -> None:
    one = manifest(command, 1)
    one["spec"]["roles"][0] |= {} if start is None else {"start": start}
    Path("job.yaml").write_text(json.dumps(one))
    assert main(["check", "job.yaml"]) == int(command[0].startswith("/opt")), "this machine lacks the program"
    assert f"start: a restart of a worker {how}" in capsys.readouterr().out


def test_the_newest_complete_step_is_the_restore_point(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, complete in ((1, True), (20, True), (30, False)):
        (here / f"ckpt/step-{step}").mkdir(parents=True)
        (here / f"ckpt/step-{step}/.metadata").write_text("") if complete else None
    out = checked(capsys, tiered())
    assert "shared (Shared): ckpt, layout TorchDCP, a step is complete with step-{step}/.metadata" in out
    assert "2 complete steps found: 20, 1" in out
    assert "attempt 1 restores step 20 of tier shared: ckpt/step-20" in out
    assert "GANG_RESTORE_PATH=ckpt/step-20" in out


def test_a_directory_of_another_layout_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "ckpt/checkpoint-5").mkdir(parents=True)
    (here / "ckpt/checkpoint-5/trainer_state.json").write_text("{}")
    out = checked(capsys, tiered())
    assert "attempt 1 starts from the beginning: no complete step is found" in out
    assert "what is there looks like HuggingFace (checkpoint-{step} with trainer_state.json)" in out


def test_checkpoints_that_no_tier_names_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "out").mkdir()
    (here / "out/model-step-7.pt").write_text("x")
    out = checked(capsys, manifest(["true"], 1))
    assert "none in the manifest" in out
    assert "Pattern (model-step-{step}.pt), newest step 7; gangctl init writes a tier" in out


def test_what_this_machine_lacks_and_ignores_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = manifest(["no-such-program", "train.py"], 1)
    pod = one["spec"]["roles"][0]["template"]["spec"]
    pod["containers"][0] |= {"image": "im", "resources": {"limits": {"memory": "1Gi", "nvidia.com/gpu": 8}}}
    pod |= {"volumes": [{"name": "v"}], "initContainers": [{"name": "fetch"}]}
    out = checked(capsys, one, code=1)
    assert "gangctl run can't run it:" in out
    assert "the resources memory, nvidia.com/gpu have no effect in local mode" in out
    assert "volumes have no effect" in out
    assert "local mode starts only container main, not fetch" in out
    assert "images have no effect in local mode" in out
    assert "command: no-such-program isn't a program of this machine" in out
    assert f"command: {here}/train.py doesn't exist on this machine" in out


def test_a_manifest_for_clusters_only_is_valid_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    one = manifest(["true"], 1)
    one["spec"]["roles"][0]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "c"}}]
    out = checked(capsys, one, code=1)
    assert "gangctl run can't run it:" in out
    assert "envFrom: local mode has no ConfigMaps and Secrets" in out
    document = json.loads(checked(capsys, one, "-o", "json", code=1))
    assert document["valid"] is True
    assert document["local"]["runs"] is False


def test_all_problems_are_shown_with_line_and_field(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.yaml").write_text(
        "apiVersion: gangctl.io/v1alpha1\nkind: GangJob\nmetadata: {name: g}\nspec:\n  rolls: []\n"
    )
    assert main(["check", "job.yaml"]) == 2
    err = capsys.readouterr().err
    assert "job.yaml:5: spec.rolls: found an unknown field: did you mean roles?" in err
    assert main(["check", "job.yaml", "-o", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is False
    assert {"path": "spec.rolls", "line": 5, "found": "an unknown field", "why": "did you mean roles?"} in document[
        "problems"
    ]


def test_a_pasted_job_names_convert(capsys: pytest.CaptureFixture[str]) -> None:
    for name, pasted in (("job.yaml", "job.yaml"), ("a job.yaml", "'a job.yaml'")):
        Path(name).write_text("apiVersion: batch/v1\nkind: Job\nspec: {completions: 3}\n")
        assert main(["check", name]) == 2
        assert f"gangctl convert {pasted} makes a GangJob of it" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "run", "classify"])
@pytest.mark.parametrize("name", ["train.py", "dir/train.sh", "dir/my train.py"])
def test_a_script_in_the_place_of_a_manifest_names_init(
    capsys: pytest.CaptureFixture[str], verb: str, name: str
) -> None:
    Path("dir").mkdir()
    Path(name).write_text("print('hello')\n")
    assert main([verb, name, *(["--exit-code", "1"] if verb == "classify" else [])]) == 2
    assert (
        f"{name} is a script, and a manifest is needed: gangctl init {shlex.quote(name)} writes one"
        in capsys.readouterr().err
    )
    assert not Path(".gangctl/gangs").exists()


def test_a_misspelt_field_of_a_container_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    one = manifest(["true"], 1)
    container = one["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container |= {"imag": "x", "env": [{"name": "A", "valeu": "1"}]}
    Path("job.yaml").write_text(json.dumps(one, indent=1))
    for verb in ("check", "run"):
        assert main([verb, "job.yaml"]) == 2
        err = capsys.readouterr().err
        path = "spec.roles[0].template.spec.containers[0]"
        assert f"{path}.imag: found an unknown field: did you mean image?" in err
        assert f"{path}.env[0].valeu: found an unknown field: did you mean value?" in err
        assert re.search(r"job\.yaml:\d+: spec", err)


def test_a_field_that_a_newer_cluster_may_have_is_told_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    one = manifest(["true"], 1)
    one["spec"]["roles"][0]["template"]["spec"]["brandNewThing"] = {"a": 1}
    out = checked(capsys, one)
    assert "template.spec.brandNewThing isn't a field of Kubernetes 1." in out
    assert "a cluster that doesn't know it ignores it" in out


def test_fields_can_be_set_and_a_member_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    out = checked(capsys, manifest(["true"], 1), "--set", "spec.roles[0].replicas=3", "--member", "worker-2")
    assert "NODE_RANK=2" in out
    assert "NODE_RANK=0" not in out
    assert main(["check", "job.yaml", "--member", "worker-9"]) == 2
    assert "there is no member 'worker-9'; there are worker-0 to worker-0" in capsys.readouterr().err


def test_a_range_without_a_free_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port > 64_000:
            pytest.skip("the kernel chose a port beyond those that a manifest may name")
        job = manifest(["true"], 1, network={"basePort": port, "portCount": 1})
        out = checked(capsys, job, code=1)
        document = json.loads(checked(capsys, job, "-o", "json", code=1))
    assert "gangctl run can't run it:\n    no port of spec.network is free" in out
    assert document["local"]["runs"] is False


@pytest.mark.parametrize(
    ("pod", "container", "said"),
    [
        ({"volumes": [{"name": "gangctl", "emptyDir": {}}]}, {}, "volumes[0].name: gangctl is a name that gangctl"),
        (
            {},
            {"volumeMounts": [{"name": "a", "mountPath": "/run/gang/x"}]},
            "/run/gang/x is used by gangctl's supervis",
        ),
        ({}, {"lifecycle": {"stopSignal": "SIGUSR1"}}, "lifecycle.stopSignal: 'SIGUSR1' doesn't stop"),
    ],
)
def test_a_template_that_every_controller_refuses_is_told(
    capsys: pytest.CaptureFixture[str], pod: dict[str, Any], container: dict[str, Any], said: str
) -> None:
    one = manifest(["true"], 1)
    spec = one["spec"]["roles"][0]["template"]["spec"]
    spec |= pod
    spec["containers"][0] |= container
    out = checked(capsys, one, code=1)
    assert "on a cluster:\n  the controller can't create its pods:\n    spec.roles[0].template.spec." in out
    assert said in out
    document = json.loads(checked(capsys, one, "-o", "json", code=1))
    assert document["cluster"]["runs"] is False
    assert said in document["cluster"]["refused"][0]


def test_ten_thousand_members_are_shown_in_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out = checked(capsys, manifest(["true"], 10_000))
    assert len(out.splitlines()) < 80
    assert "worker-9999  rank 9999" in out
    assert "... 10000 in all" in out


def test_control_characters_of_a_manifest_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    out = checked(capsys, manifest(["echo", "\x1b[31m\u202e"], 1))
    assert "\x1b" not in out
    assert "\u202e" not in out
