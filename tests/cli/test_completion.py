"""Completion as a real bash does it: the script is sourced, and its function is called as readline calls it.

Where fish and zsh are installed, they complete as well: fish tells its completions, and zsh has to be typed into.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gangctl.cli.main import main
from tests.cli.here import manifest
from tests.cli.kube import Shell, shell, with_gang
from tests.wait import SECONDS, until

COMPLETE = """\
source <(gangctl completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
read -ra COMP_WORDS <<< "$1"
function=$(complete -p gangctl | sed -E 's/.*-F ([^ ]+) .*/\\1/')
"$function" gangctl
printf '%s\\n' "${COMPREPLY[@]}"
"""
PATIENT = f"""\
#!{sys.executable}
from gangctl.cli.main import main
from gangctl.cli.verbs import completion
completion.SECONDS = {SECONDS}
main()
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


def environment(here: Path) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key not in {"GANGCTL_STATE_DIR", "KUBECONFIG"}}
    return {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "HOME": str(here), "TERM": "xterm"}


def completed(here: Path, line: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", line],
        check=True,
        cwd=here,
        env=environment(here),
        capture_output=True,
        text=True,
        timeout=SECONDS,
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


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gangctl st", ["status", "stop"]),
        ("gangctl status al", ["alpha"]),
        ("gangctl status --wa", ["--watch"]),
        ("gangctl init --framework ", ["jax", "script", "torchrun"]),
        ("gangctl run jo", ["job.yaml"]),
    ],
)
def test_fish_completes(here: Path, line: str, words: list[str]) -> None:
    command = ["fish", "--no-config", "-c", 'gangctl completion fish | source; complete -C "$argv"', line]
    done = subprocess.run(
        command, check=True, cwd=here, env=environment(here), capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stderr == ""
    assert [one.split("\t")[0] for one in done.stdout.splitlines()] == words


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("gangctl statu", "gangctl status"),
        ("gangctl status al", "gangctl status alpha"),
        ("gangctl status --wa", "gangctl status --watch"),
        ("gangctl run jo", "gangctl run job.yaml"),
    ],
)
def test_zsh_completes(here: Path, typed: str, completed: str) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    seen = bytearray()

    def sees(text: str) -> bool:
        with suppress(BlockingIOError):
            seen.extend(os.read(ours, 1 << 16))
        return text in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))

    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        cwd=here,
        env=environment(here),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as zsh:
        try:
            os.write(ours, b"autoload -Uz compinit; compinit -D; source <(gangctl completion zsh); PS1=ok-$((1))'> '\n")
            until("zsh edits a line", lambda: sees("ok-1> "))  # a tab before that is no completion
            os.write(ours, f"{typed}\t".encode())
            until("the word is completed", lambda: sees(completed))
        finally:
            zsh.kill()
            os.close(theirs)
            os.close(ours)


@pytest.mark.nightly
def test_members_are_those_of_the_gang(here: Path) -> None:
    (here / "gang.yaml").write_text(json.dumps(manifest(["true"], 2)))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "gangctl", "run", "gang.yaml", "--plain"]
    subprocess.run(command, check=True, cwd=here, env=env, capture_output=True, timeout=SECONDS)
    assert completed(here, "gangctl logs g work") == ["worker-0", "worker-1"]
    assert completed(here, "gangctl logs g --follow work") == ["worker-0", "worker-1"]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        yield one


async def test_gangs_of_a_cluster_are_completed(cluster: Shell) -> None:
    await with_gang(cluster)
    patient = cluster.path / "gangctl"  # A busy machine may take longer for an answer than a user would wait for it.
    patient.write_text(PATIENT)
    patient.chmod(0o755)
    path = f"{cluster.path}:{os.environ['PATH']}"
    child = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "-c", COMPLETE, "bash", "gangctl status de"),
        cwd=cluster.path,
        env={**os.environ, "PATH": path, "HOME": str(cluster.path), "KUBECONFIG": str(cluster.config)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert out.decode().split() == ["demo"]


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
