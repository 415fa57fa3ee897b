"""Completion as a real bash does it: the script is sourced, and its function is called as readline calls it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangctl.cli.main import main
from tests.cli.here import manifest
from tests.cli.kube import Shell, shell, with_gang
from tests.wait import until_async

COMPLETE = """\
source <(gangctl completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
read -ra COMP_WORDS <<< "$1"
function=$(complete -p gangctl | sed -E 's/.*-F ([^ ]+) .*/\\1/')
"$function" gangctl
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with two gangs, one of which is stored whole."""
    for name in ("alpha", "beta", "bad name"):
        folder = tmp_path / ".gangctl/gangs" / name
        folder.mkdir(parents=True)
        (folder / "gangjob.json").write_text("")
    (tmp_path / "job.yaml").write_text("")
    return tmp_path


def completed(here: Path, line: str, **environment: str) -> list[str]:
    env = {key: value for key, value in os.environ.items() if key not in {"GANGCTL_STATE_DIR", "KUBECONFIG"}}
    path = f"{Path(sys.executable).parent}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", line],
        check=True,
        cwd=here,
        env={**env, "PATH": path, "HOME": str(here), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [word.strip() for word in done.stdout.split("\n") if word.strip()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gangctl st", ["status", "stop"]),
        ("gangctl help res", ["restart", "resume"]),
        ("gangctl status al", ["alpha"]),
        ("gangctl stop ", ["alpha", "beta"]),
        ("gangctl status --wa", ["--watch"]),
        ("gangctl status alpha -o ", ["json", "wide", "yaml"]),
        ("gangctl init --framework ", ["jax", "script", "torchrun"]),
        ("gangctl run jo", ["job.yaml"]),
        ("gangctl status --state-dir nowhere ", []),
        ("gangctl status --namespace ", []),
        ("gangctl status --context no-such-context ", []),
    ],
)
def test_bash_completes(here: Path, line: str, words: list[str]) -> None:
    assert sorted(completed(here, line)) == words


def test_members_are_those_of_the_gang(here: Path) -> None:
    (here / "gang.yaml").write_text(json.dumps(manifest(["true"], 2)))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "gangctl", "run", "gang.yaml", "--plain"]
    subprocess.run(command, check=True, cwd=here, env=env, capture_output=True, timeout=60)
    assert completed(here, "gangctl logs g work") == ["worker-0", "worker-1"]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        yield one


async def test_gangs_of_a_cluster_are_completed(cluster: Shell) -> None:
    await with_gang(cluster)
    script = COMPLETE.replace("source", f"PATH={Path(sys.executable).parent}:$PATH; source")

    async def words() -> list[str]:
        child = await asyncio.create_subprocess_exec(
            *("bash", "--norc", "-c", script, "bash", "gangctl status de"),
            cwd=cluster.path,
            env={**os.environ, "HOME": str(cluster.path), "KUBECONFIG": str(cluster.config)},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await child.communicate()
        return out.decode().split()

    # a machine that is busy may take longer for one answer than a user would wait for it
    assert await until_async("the cluster has answered in time", words, 60) == ["demo"]


@pytest.mark.parametrize(
    ("name", "word"), [("bash", "complete "), ("zsh", "compdef"), ("fish", "complete --command gangctl")]
)
def test_the_script_of_each_shell_is_printed(capsys: pytest.CaptureFixture[str], name: str, word: str) -> None:
    assert main(["completion", name]) == 0
    assert word in capsys.readouterr().out


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "csh"])
    assert ended.value.code == 2
    assert "invalid choice: 'csh'" in capsys.readouterr().err
