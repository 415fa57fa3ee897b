"""`gangctl run` rejects what it cannot run, and starts nothing."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

import pytest

from tests.cli.here import LOOP, Here, manifest


@pytest.mark.parametrize(
    ("change", "path", "found", "allowed"),
    [
        ("replicas: 3", "spec.roles[0].replicas", "0", "from 1 to 10000"),
        ("kind: GangJob", "kind", "GangJop", "GangJob"),
    ],
)
def test_an_invalid_manifest_is_rejected_with_the_path_and_starts_nothing(
    folder: Here, change: str, path: str, found: str, allowed: str
) -> None:
    folder.write(manifest())
    text = (folder.path / "job.yaml").read_text()
    folder.write(text.replace(change, f"{change.split(':', maxsplit=1)[0]}: {found}"))
    run = folder.run()
    assert run.wait() == 2
    assert path in run.said
    assert found in run.said
    assert allowed in run.said
    assert not folder.state.path.exists()
    assert folder.left() == []


def test_a_manifest_that_cannot_run_on_this_machine_is_rejected(folder: Here) -> None:
    one = manifest()
    one["spec"]["roles"][0]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "x"}}]
    folder.write(one)
    run = folder.run()
    assert run.wait() == 2
    assert "spec.roles[0].template.spec.containers[0].envFrom" in run.said
    assert not folder.state.gangs.exists()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (
            "env",
            [{"name": "BIG", "value": "x" * 140_000}],
            "args and env can't be given to a process: Argument list",
        ),
        ("env", [{"name": "NUL", "value": "a\0b"}], "can't be given to a process: embedded null byte"),
        ("env", {"LR": 0.1}, "env: {'LR': 0.1} instead of a list"),
        ("args", ["a\0b"], "embedded null byte"),
        ("workingDir", "nowhere", "nowhere: No such file or directory; the command starts there"),
        ("workingDir", "job.yaml", "job.yaml: Not a directory"),
        ("workingDir", "a\0b", "embedded null byte"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_start_that_can_not_work_is_refused_in_the_words_of_the_system(
    folder: Here, verb: str, field: str, value: Any, said: str
) -> None:
    one = manifest()
    one["spec"]["roles"][0]["template"]["spec"]["containers"][0][field] = value
    (folder.path / "job.yaml").write_text(json.dumps(one))
    ended = folder.gangctl(verb, "job.yaml")
    assert said in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == (2 if verb == "run" else 1)
    assert not folder.state.gangs.exists()


@pytest.mark.parametrize("content", ["", "{", "a: [", "\x00", "just text"])
def test_a_file_that_is_no_manifest_is_rejected_in_a_few_lines(folder: Here, content: str) -> None:
    folder.write(content)
    run = folder.run()
    assert run.wait() == 2
    assert run.said.startswith("error: ")
    assert "Traceback" not in run.said


def test_an_unusable_state_directory_is_an_error(folder: Here) -> None:
    folder.write(manifest())
    blocked = folder.path / "file"
    blocked.write_text("")
    run = folder.run("--state-dir", str(blocked / "state"))
    assert run.wait() == 2
    assert str(blocked) in run.said
    assert "--state-dir" in run.said
    assert folder.left() == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_state_directory_is_an_error(folder: Here) -> None:
    folder.write(manifest())
    folder.state.path.mkdir()
    folder.state.path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    run = folder.run()
    assert run.wait() == 2
    assert "can't be written" in run.said


def test_a_second_run_in_the_same_state_directory_is_rejected(folder: Here) -> None:
    folder.write(manifest(LOOP, 1))
    first = folder.run()
    folder.runs_attempt(1, 1)
    second = folder.run()
    assert second.wait() == 2
    assert f"another gangctl run (process {first.child.pid})" in second.said
    assert len(folder.workers()) == 1
