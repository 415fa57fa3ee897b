"""What is put together for pods: what it has, who may read it, and that a second run does no harm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gangclient


def install(*arguments: str, umask: int = 0o077) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gangsidecar.install", *arguments],
        check=False,
        capture_output=True,
        text=True,
        umask=umask,
    )


def test_every_uid_can_read_the_supervisor_and_gangclient(tmp_path: Path) -> None:
    assert install(str(tmp_path)).returncode == 0
    program, package = tmp_path / "supervisor.pyz", tmp_path / "client" / "gangclient"
    source = Path(gangclient.__file__).parent
    assert sorted(tmp_path.iterdir()) == [package.parent, tmp_path / "hook", program]
    files = [path for path in package.rglob("*") if path.is_file()]
    assert {path.relative_to(package): path.read_text() for path in files} == {
        path.relative_to(source): path.read_text() for path in source.rglob("*.py")
    }
    folders = [tmp_path / "client", package, program, *(path for path in package.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}
    run = [sys.executable, "-IS", str(program), "--help"]
    assert "supervise the worker" in subprocess.run(run, check=True, capture_output=True, text=True).stdout


def test_a_second_install_replaces_each_file_in_one_step(tmp_path: Path) -> None:
    install(str(tmp_path))
    client = tmp_path / "client" / "gangclient" / "__init__.py"
    with (tmp_path / "supervisor.pyz").open("rb") as running:
        before = (tmp_path / "supervisor.pyz").stat().st_ino
        client.write_text("half a fi")
        assert install(str(tmp_path)).returncode == 0
        assert running.read() == (tmp_path / "supervisor.pyz").read_bytes()
    assert (tmp_path / "supervisor.pyz").stat().st_ino != before
    assert "import" in client.read_text()


def test_the_executable_is_installed_for_every_uid_in_one_step(tmp_path: Path) -> None:
    """A supervisor that runs goes on with the file that it was started from."""
    program, folder = tmp_path / "made", tmp_path / "shared"
    folder.mkdir()
    shutil.copy("/bin/sleep", program)
    program.chmod(0o600)
    assert install(str(folder), str(program)).returncode == 0
    installed = folder / "supervisor"
    assert installed.stat().st_mode & 0o777 == 0o755
    with subprocess.Popen([installed, "1000"]) as running:
        assert install(str(folder), str(program)).returncode == 0  # Not "Text file busy".
        assert running.poll() is None
        running.kill()
    assert installed.read_bytes() == program.read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["client", "hook", "supervisor", "supervisor.pyz"]


def test_a_sidecar_without_the_executable_says_so(tmp_path: Path) -> None:
    ended = install(str(tmp_path), str(tmp_path / "none"))
    assert (ended.returncode, "none" in ended.stderr) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_install_names_a_folder_that_it_cant_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    ended = install(str(tmp_path))
    assert (ended.returncode, f"may uid {os.geteuid()} write to it?" in ended.stderr) == (1, True)


def test_install_refuses_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = install(str(tmp_path / "file"))
    assert ended.returncode == 1
    assert "can't be installed" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [(), ("a", "b", "c"), ("--help",)])
def test_install_prints_its_usage(arguments: tuple[str, ...]) -> None:
    ended = install(*arguments)
    assert (ended.returncode, ended.stderr.startswith("usage:")) == (2, True)
