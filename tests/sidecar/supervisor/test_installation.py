"""`supervisor install DIRECTORY`: what the sidecar's postStart hook puts into a pod, and how."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gangclient
from gangsidecar import install as package
from gangsidecar.supervisor import __main__
from tests.sidecar.supervisor.supervised import EXECUTABLE, program
from tests.wait import SECONDS


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The archive in a folder as the sidecar's image has it."""
    folder = tmp_path / "image"
    folder.mkdir()
    package.install(folder, Path(EXECUTABLE) if EXECUTABLE else None)
    return folder / "supervisor.pyz"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def run(archive: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [*program(archive), "install", str(directory)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=SECONDS, env={}, cwd="/", umask=0o077
    )


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of each file; of a folder its mode alone."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_all_that_lies_beside_the_program_is_copied_for_every_uid(archive: Path, shared: Path) -> None:
    done = run(archive, shared)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert content(shared) == content(archive.parent)
    assert {mode for mode, _ in content(shared).values()} == {0o644, 0o755}
    assert (shared / "client/gangclient/__init__.py").read_text() == Path(gangclient.__file__).read_text()


def test_a_copy_is_a_program_that_installs_again(archive: Path, shared: Path, tmp_path: Path) -> None:
    run(archive, shared)
    third = tmp_path / "third"
    third.mkdir()
    assert run(shared / archive.name, third).returncode == 0
    assert content(third) == content(archive.parent)


def test_a_program_that_runs_from_an_older_copy_goes_on(archive: Path, shared: Path) -> None:
    """As after a restart of the sidecar: not "Text file busy", and never half a file under it."""
    sleeps = archive.parent / "client" / "sleep"
    shutil.copy("/bin/sleep", sleeps)
    run(archive, shared)
    with subprocess.Popen([shared / "client" / "sleep", "1000"]) as running, (shared / archive.name).open("rb") as old:
        assert run(archive, shared).returncode == 0
        assert running.poll() is None
        assert old.read() == archive.read_bytes()
        assert os.fstat(old.fileno()).st_nlink == 0
        running.kill()
    assert content(shared) == content(archive.parent)


def test_what_a_killed_copy_has_left_is_no_obstacle(archive: Path, shared: Path) -> None:
    (shared / "client").mkdir(mode=0o700)
    (shared / "supervisor.pyz").write_text("half a fi")
    assert run(archive, shared).returncode == 0
    assert content(shared) == content(archive.parent)


def test_a_folder_that_cant_be_written_is_named(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "none"):
        done = run(archive, wrong)
        assert done.returncode == 1
        assert f"can't be installed in {wrong}: " in done.stderr
        assert f"may uid {os.geteuid()} write to it?" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_installation_imports_nothing_of_the_supervisor(archive: Path, shared: Path) -> None:
    """Every container of the pod waits for it, and the supervisor's imports take longer than the copies."""
    code = "import sys; sys.argv[0] = sys.path[0]; from gangsidecar.supervisor.__main__ import main; "
    code += "assert not main(sys.argv[1:]); print(*sorted(n for n in sys.modules if n.startswith('gangsidecar.')))"
    command = [sys.executable, "-c", code, "install", str(shared)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(archive), "PYTHONSAFEPATH": "1"}
    )
    assert done.stdout.split() == [
        "gangsidecar.supervisor",
        "gangsidecar.supervisor.__main__",
    ]
    assert content(shared) == content(archive.parent)


def test_a_source_that_cant_be_read_is_an_error(tmp_path: Path, shared: Path) -> None:
    """An empty installation would be noticed only by the worker's container, as a file that is not there."""
    with pytest.raises(FileNotFoundError):
        __main__.install_folder(str(tmp_path / "none"), str(shared))
