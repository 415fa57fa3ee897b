"""The init container's program: what it writes, whoever may read it, and that doing it again does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangsidecar import client


def install(*arguments: str, umask: int = 0o077) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gangsidecar.install", *arguments],
        check=False,
        capture_output=True,
        text=True,
        umask=umask,
    )


def test_supervisor_and_client_are_there_for_every_uid(tmp_path: Path) -> None:
    assert install(str(tmp_path)).returncode == 0
    program, api = tmp_path / "supervisor.pyz", tmp_path / "client" / "gangclient.py"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["client", "gangclient.py", "supervisor.pyz"]
    assert [path.stat().st_mode & 0o777 for path in (program, api.parent, api)] == [0o755, 0o755, 0o644]
    assert api.read_text() == Path(client.__file__).read_text()
    run = [sys.executable, "-IS", str(program), "--help"]
    assert "supervise the worker" in subprocess.run(run, check=True, capture_output=True, text=True).stdout


def test_doing_it_again_replaces_files_without_a_moment_of_half_a_file(tmp_path: Path) -> None:
    install(str(tmp_path))
    with (tmp_path / "supervisor.pyz").open("rb") as running:
        before = (tmp_path / "supervisor.pyz").stat().st_ino
        (tmp_path / "client" / "gangclient.py").write_text("half a fi")
        assert install(str(tmp_path)).returncode == 0
        assert running.read() == (tmp_path / "supervisor.pyz").read_bytes()
    assert (tmp_path / "supervisor.pyz").stat().st_ino != before
    assert "def " in (tmp_path / "client" / "gangclient.py").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cant_be_written_to_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    ended = install(str(tmp_path))
    assert (ended.returncode, f"may uid {os.geteuid()} write to it?" in ended.stderr) == (1, True)


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = install(str(tmp_path / "file"))
    assert ended.returncode == 1
    assert "can't be installed" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("--help",)])
def test_bad_usage_is_said(arguments: tuple[str, ...]) -> None:
    ended = install(*arguments)
    assert (ended.returncode, ended.stderr.startswith("usage:")) == (2, True)
