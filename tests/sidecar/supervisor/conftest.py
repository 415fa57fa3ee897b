"""A supervisor for each test."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangsidecar import install
from gangsidecar.wire import SUPERVISOR_ARCHIVE, SUPERVISOR_PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
from tests.sidecar.supervisor import frozen, patient
from tests.sidecar.supervisor.parkable import Parkable
from tests.sidecar.supervisor.supervised import EXECUTABLE, Member
from tests.sidecar.supervisor.warm import SAYS_HELLO, Warm


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A memory cgroup (v1: there only the process is killed that took too much) of 64 MB."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":")[2] for line in lines if "memory" in line.split(":")[1].split(",")]
    group = Path(f"/sys/fs/cgroup/memory{''.join(paths)}/{uuid.uuid4()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("no right to make a memory cgroup of version 1")
    yield group
    for pid in (group / "cgroup.procs").read_text().split():  # of a supervisor that another fixture ends
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(install.build_archive, tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def patient_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a supervisor that waits for longer; a file of tests uses it as its ``archive``."""
    return built(patient.build, tmp_path_factory.mktemp("patient"))


def built(build: Callable[[Path], None], folder: Path) -> Path:
    """Build an archive, and beside it what runs it, in this folder."""
    path = folder / SUPERVISOR_ARCHIVE
    build(path)
    if EXECUTABLE:
        shutil.copy(EXECUTABLE, path.with_name(SUPERVISOR_PROGRAM))
    else:
        frozen.restrict(path)
    return path


@pytest.fixture
def member(archive: Path, tmp_path: Path) -> Iterator[Member]:
    one = Member(archive, tmp_path)
    yield one
    one.clean_up()


@pytest.fixture
def warm(member: Member, tmp_path: Path) -> Warm:
    install.write_hook(tmp_path)
    return Warm(member, tmp_path)


@pytest.fixture
def greeting(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> Warm:
    """With a script that says hello; packages that a test installs are found, as those in site-packages are."""
    monkeypatch.setenv("PYTHONPATH", str(warm.installed))
    warm.script.write_text(SAYS_HELLO)
    return warm


@pytest.fixture
def parkable(member: Member, tmp_path: Path) -> Parkable:
    return Parkable(member, tmp_path)


@pytest.fixture
def py_spy(member: Member, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for py-spy on the worker's PATH."""
    program = member.file("bin") / "py-spy"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@pytest.fixture
def output(member: Member, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "output"
    member.stdout = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield path
    os.close(member.stdout)
