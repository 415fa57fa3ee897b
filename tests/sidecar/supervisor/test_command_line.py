"""The supervisor's command line and its archive."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gangsidecar import install
from tests.sidecar.supervisor.supervised import Member, program
from tests.wait import SECONDS


def call(archive: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(word for word in program(archive) if word != "-IS"), *arguments],  # The archive isolates itself.
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={"PATH": os.environ["PATH"], **env},
    )


def test_help_lists_flags_variables_and_exit_codes(archive: Path) -> None:
    said = call(archive, "--help")
    assert said.returncode == 0
    for word in ("--socket", "GANG_POD_UID", "--orphan-seconds", "Example", "Exit code"):
        assert word in said.stdout
    assert call(archive, "run", "--help").stdout == said.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "expected run or install"),
        ("walk", "'walk' is neither run nor install"),
        ("run --sock x", "unknown flag '--sock'"),
        ("run -- true", "missing: --socket (or GANG_SUPERVISOR_SOCKET), --state"),
        ("install", "install takes one directory"),
        ("run --socket=s --state=s --gang=g --member=m --pod=p --address=a", "no command"),
        (
            "run --socket=s --state=s --gang=g --member=m --pod=p --address=a --incarnation=x -- true",
            "--incarnation: 'x' is not a whole number",
        ),
    ],
)
def test_bad_usage_is_explained_in_a_sentence(archive: Path, arguments: str, reason: str) -> None:
    said = call(archive, *arguments.split())
    assert said.returncode == 2
    assert reason in said.stderr
    assert "Traceback" not in said.stderr


def test_every_flag_can_come_from_the_environment(member: Member, archive: Path) -> None:
    env = {
        "GANG_SUPERVISOR_SOCKET": str(member.folder / "socket"),
        "GANG_STATE": str(member.state),
        "GANG_UID": "g9",
        "GANG_MEMBER": "worker-3",
        "GANG_INCARNATION": "2",
        "GANG_POD_UID": member.pod,
        "GANG_POD_IP": "10.1.2.3",
        "GANG_ORPHAN_SECONDS": "1",
    }
    said = call(archive, "run", "--", "true", **env)
    assert said.returncode == 0
    member.sidecar.accept()
    report = member.sidecar.until(lambda _: True)
    assert (report.gang, report.member, report.incarnation, report.address) == ("g9", "worker-3", 2, "10.1.2.3")


def test_the_same_sources_make_the_same_archive(tmp_path: Path) -> None:
    once, again = tmp_path / "once.pyz", tmp_path / "again.pyz"
    install.build_archive(once)
    install.build_archive(again)
    assert again.read_bytes() == once.read_bytes()
    assert {*tmp_path.iterdir()} == {once, again}


def test_an_archive_has_each_module_compiled_and_runs_that(tmp_path: Path) -> None:
    archive = tmp_path / "supervisor.pyz"
    install.build_archive(archive)
    with zipfile.ZipFile(archive) as opened:
        names = {*opened.namelist()} - {"__main__.py"}
    sources = {name for name in names if name.endswith(".py")}
    assert names == sources | {f"{name}c" for name in sources}
    shows = "from gangsidecar.supervisor import machine; print(machine.__file__)"
    command = [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {shows}"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown == f"{archive}/gangsidecar/supervisor/machine/__init__.pyc\n"


def test_the_supervisor_ignores_the_workers_pythonpath(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(99)")
    assert call(archive, "--help", PYTHONPATH=str(tmp_path)).returncode == 0
