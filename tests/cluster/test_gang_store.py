from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.status import GangPhase, Status
from gangctl.cluster.errors import Conflict, Retryable, Terminal
from gangctl.cluster.local import atomic_files
from gangctl.cluster.local.gang_store import ANNOTATION_DIRECTORY, GangStore
from gangctl.cluster.local.layout import GangFolder, StateDirectory
from tests.cluster.local import manifest


@pytest.fixture
def store(tmp_path: Path) -> GangStore:
    made = GangStore(GangFolder(tmp_path / "gangs" / "g"))
    made.create(manifest(), tmp_path)
    return made


def with_attempt(job: GangJob, attempt: int) -> Status:
    return job.status.model_copy(update={"attempt": attempt, "phase": GangPhase.GATHERING, "phase_time": 12.5})


def suspended(spec: Spec) -> Spec:
    return spec.model_copy(update={"suspend": True})


def test_a_created_gang_has_a_uid_a_generation_and_where_it_was_started(store: GangStore, tmp_path: Path) -> None:
    job = GangStore(store.folder).read()
    assert len(job.metadata.uid) == 36
    assert (job.metadata.generation, job.metadata.resource_version) == (1, "1")
    assert (job.metadata.model_extra or {})["annotations"] == {ANNOTATION_DIRECTORY: str(tmp_path)}
    assert job.status == Status()


def test_a_gang_of_the_same_name_is_not_created_twice(store: GangStore, tmp_path: Path) -> None:
    before = store.read()
    with pytest.raises(Conflict, match="gang 'g' already exists"):
        store.create(manifest(replicas=7), tmp_path)
    assert GangStore(store.folder).read() == before


def test_all_readers_see_a_written_status(store: GangStore) -> None:
    job = store.read()
    written = store.write_status(job, with_attempt(job, 3))
    assert written == store.read() == GangStore(store.folder).read()
    assert (written.status.attempt, written.metadata.resource_version, written.metadata.generation) == (3, "2", 1)


def test_of_two_writers_with_the_same_object_one_gets_a_conflict(store: GangStore) -> None:
    job = store.read()
    store.write_status(job, with_attempt(job, 1))
    with pytest.raises(Conflict, match="version 2 instead of 1"):
        store.write_status(job, with_attempt(job, 2))
    assert store.read().status.attempt == 1


def test_many_writers_of_other_processes_lose_no_change(store: GangStore) -> None:
    """Each adds its letter to restartToken, again after each conflict; two threads write the status meanwhile."""
    program = (
        "import sys; from pathlib import Path\n"
        "from gangctl.cluster.local.gang_store import GangStore; from gangctl.cluster.local.layout import GangFolder\n"
        "store = GangStore(GangFolder(Path(sys.argv[1])))\n"
        "for _ in range(20):\n"
        "    store.update_spec(lambda s: s.model_copy(update={'restart_token': s.restart_token + sys.argv[2]}))\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(store.folder.path), letter], env=environment())
        for letter in "ab"
    ]

    def count() -> int:
        conflicts = 0
        for _ in range(20):
            while True:
                job = store.read()
                try:
                    store.write_status(job, with_attempt(job, job.status.attempt + 1))
                    break
                except Conflict:
                    conflicts += 1
        return conflicts

    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda _: count(), range(2)))
    assert [writer.wait(30) for writer in writers] == [0, 0]
    job = GangStore(store.folder).read()
    assert sorted(job.spec.restart_token) == ["a"] * 20 + ["b"] * 20
    assert (job.status.attempt, job.metadata.generation) == (40, 41)
    assert job.metadata.resource_version == "81"


def test_a_changed_spec_raises_the_generation_and_leaves_the_status(store: GangStore) -> None:
    job = store.read()
    store.write_status(job, with_attempt(job, 5))
    changed = GangStore(store.folder).update_spec(suspended)
    assert (changed.spec.suspend, changed.metadata.generation, changed.status.attempt) == (True, 2, 5)
    again = store.update_spec(suspended)
    assert again.metadata == changed.metadata, "what changes nothing is no change"


def test_a_spec_that_is_not_valid_is_not_stored(store: GangStore) -> None:
    before = store.folder.job.read_bytes()
    with pytest.raises(Terminal, match="restartToken"):
        store.update_spec(lambda spec: spec.model_copy(update={"restart_token": "x" * 300}))
    assert store.folder.job.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"{", "Invalid JSON"), (b"", "Invalid JSON"), (b'{"kind": "Pod"}', "apiVersion"), (b"[]", "dictionary")],
)
def test_a_corrupt_file_is_an_error_and_never_overwritten(store: GangStore, content: bytes, said: str) -> None:
    job = store.read()
    store.folder.job.write_bytes(content)
    with pytest.raises(Terminal, match=said) as raised:
        GangStore(store.folder).read()
    assert str(store.folder.job) in str(raised.value)
    with pytest.raises(Terminal, match="isn't a stored GangJob"):
        store.write_status(job, with_attempt(job, 1))
    assert store.folder.job.read_bytes() == content


def test_a_missing_gang_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match=r"there is no gang 'missing': .*gangjob\.json doesn't exist"):
        GangStore(GangFolder(tmp_path / "missing")).read()


@pytest.mark.parametrize("name", ["../other", "a/b", "", "UPPER", "x" * 43, "-a"])
def test_a_path_is_rejected_as_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(Terminal, match="not a valid name of a gang"):
        StateDirectory(tmp_path).gang(name)


def test_a_full_disk_is_an_error_and_the_last_status_survives(store: GangStore) -> None:
    """The kernel's limit of a file's size stands in for the disk: the write breaks off in the middle."""
    job = store.read()
    good = store.write_status(job, with_attempt(job, 1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(Retryable, match=r"gangjob\.json can't be written: File too large") as raised:
            store.write_status(good, with_attempt(good, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.EFBIG
    assert GangStore(store.folder).read() == good == store.read()
    assert sorted(path.name for path in store.folder.path.iterdir()) == ["gangjob.json", "gangjob.lock", "pods"]
    assert store.write_status(good, with_attempt(good, 2)).status.attempt == 2, "it goes on when there is space"


def test_a_line_that_does_not_fit_leaves_no_part_of_it(tmp_path: Path) -> None:
    lines = tmp_path / "events.jsonl"
    atomic_files.append_line(lines, "the first")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15, before[1]))
    try:
        with pytest.raises(Retryable, match=r"events\.jsonl can't be written: File too large"):
            atomic_files.append_line(lines, "the second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    atomic_files.append_line(lines, "the third")
    assert lines.read_text() == "the first\nthe third\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_full_file_system_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        store = GangStore(GangFolder(place / "g"))
        job = store.create(manifest(), place)
        (place / "filler").write_bytes(b"x" * files_left(place))
        with pytest.raises(Retryable, match=r"No space left on device.*free some space"):
            store.write_status(job, with_attempt(job, 1))
        assert GangStore(store.folder).read() == job
        (place / "filler").unlink()
        assert store.write_status(job, with_attempt(job, 1)).status.attempt == 1
    finally:
        subprocess.run(["umount", str(place)], check=True)


def files_left(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def test_a_file_as_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "gangs").write_text("")
    with pytest.raises(Retryable, match="can't be written: Not a directory"):
        GangStore(GangFolder(tmp_path / "gangs" / "g")).create(manifest(), tmp_path)


@pytest.mark.parametrize("durable", [True, False])
def test_a_writer_that_is_killed_at_any_system_call_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, *, durable: bool
) -> None:
    """A child is killed at each point where it may be: before the n-th call into the kernel that changes files."""
    path = tmp_path / "object"
    seen: set[bytes] = set()
    for step in range(12):
        path.write_bytes(b"old")
        child = subprocess.run(
            [sys.executable, "-c", _KILLED_AT, str(path), str(step), str(int(durable))], check=False, env=environment()
        )
        content = path.read_bytes()
        assert content in {b"old", b"new" * 1000}
        seen.add(content)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        atomic_files.write_file(path, b"next", durable=durable)
        assert path.read_bytes() == b"next", "the files of a killed writer do no harm"
    else:
        pytest.fail("it never came to its end")
    assert seen == {b"old", b"new" * 1000}
    assert step >= 3, "it was killed in between"


_KILLED_AT = """
import os, signal, sys
from pathlib import Path
from gangctl.cluster.local import atomic_files

left = int(sys.argv[2])
CALLS = {"open", "os.rename", "os.fsync"}

def die_at(event, arguments):
    global left
    if event in CALLS:
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

def counted(function):
    def call(*arguments):
        die_at("os.fsync", arguments)
        return function(*arguments)
    return call

os.fsync = counted(os.fsync)
sys.addaudithook(die_at)
atomic_files.write_file(Path(sys.argv[1]), b"new" * 1000, durable=bool(int(sys.argv[3])))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
