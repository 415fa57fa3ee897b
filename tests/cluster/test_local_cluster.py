from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from gangctl.cluster.errors import Conflict, Retryable, Terminal
from gangctl.cluster.local import cluster as cluster_module
from gangctl.cluster.local import pod_record, process, programs
from gangctl.cluster.local.atomic_files import lock_file
from gangctl.cluster.local.layout import only_controller, only_process, runtime_directory
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.termination import teardown
from gangctl.core.lifecycle.plan import Event
from gangctl.core.policy.pods import CreatePod
from tests.cluster.local import alive, left, machine, manifest
from tests.messages import words
from tests.wait import SECONDS, until_async


def ids(pod: PodRecord) -> tuple[object, object]:
    return pod.sidecar, pod.supervisor


async def test_the_cluster_notices_changes_by_others_and_a_conflict_shows_the_new_object(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        uid = here.job.metadata.uid
        stale = cluster.gang(uid)
        assert stale is not None
        here.store.update_spec(lambda spec: spec.model_copy(update={"suspend": True}))
        with pytest.raises(Conflict):
            await cluster.write_status(stale, stale.status.model_copy(update={"attempt": 1}))
        fresh = cluster.gang(uid)
        assert fresh is not None
        assert fresh.spec.suspend
        written = await cluster.write_status(fresh, fresh.status.model_copy(update={"attempt": 1}))
        assert cluster.gang(uid) == written
        here.changes.clear()
        here.store.update_spec(lambda spec: spec.model_copy(update={"restart_token": "again"}))
        await until_async("the cluster reports a change", lambda: here.changes)
        found = cluster.gang(uid)
        assert found is not None
        assert (found.spec.restart_token, found.status.attempt) == ("again", 1)


async def test_removing_the_object_of_a_gang_ends_its_processes(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        await here.create()
        uid = here.job.metadata.uid
        here.changes.clear()
        here.folder.job.unlink()
        await until_async("the gang is gone", lambda: cluster.gang(uid) is None and uid in here.changes)
        await until_async("no process is left", lambda: not left(here.state))


@pytest.mark.parametrize("when", ["before its turn", "while it is stored"])
async def test_a_pod_that_is_created_as_its_gang_is_removed_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    removed = threading.Event()

    def slow(*given: Any) -> PodRecord:
        assert removed.wait(SECONDS)
        return programs.store_pod(*given)

    async with machine(tmp_path) as here, here.controlled() as cluster:
        job, uid = here.job, here.job.metadata.uid
        if when == "while it is stored":
            monkeypatch.setattr(cluster_module, "store_pod", slow)
            creating = asyncio.create_task(cluster.create_pod(job, CreatePod("worker-0", 0)))
            await asyncio.sleep(0)
            here.folder.job.unlink()
            await until_async("the gang is gone", lambda: not cluster.exists(uid))
            removed.set()
        else:
            async with cluster._starting, cluster._starting:  # noqa: SLF001
                creating = asyncio.create_task(cluster.create_pod(job, CreatePod("worker-0", 0)))
                here.folder.job.unlink()
                await until_async("the gang is gone", lambda: not cluster.exists(uid))
        await creating
        await until_async("no pod is kept", lambda: not any(cluster._pods.values()))  # noqa: SLF001
        assert not left(here.state)


async def test_a_new_gang_never_gets_the_pods_of_an_old_one_of_the_same_name(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        old, pod = here.job, await here.create()
        here.folder.job.unlink()
        new = here.store.create(manifest(), tmp_path)
        await until_async("the new gang is seen", lambda: cluster.gang(new.metadata.uid))
        assert cluster.gang(old.metadata.uid) is None
        assert not here.pods
        await until_async("the supervisor has ended", lambda: not alive(pod.supervisor))

        async def created() -> None:
            while not here.pods:
                here.changes.clear()
                await cluster.create_pod(new, CreatePod("worker-0", 0))
                await until_async("the cluster shows a change or a pod", lambda: here.changes or here.pods)

        async with asyncio.timeout(SECONDS):
            await created()
        assert (await here.running()).gang == new.metadata.uid


async def test_a_corrupt_object_is_not_managed_and_other_gangs_continue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine(tmp_path) as here:
        other = here.state.gang("broken")
        other.path.mkdir()
        other.job.write_text("{")
        async with here.controlled():
            await here.create()
            assert "isn't a stored GangJob" in caplog.text
            assert caplog.text.count(str(other.job)) == 1, "it is said once"
            assert other.job.read_text() == "{"


async def test_a_corrupt_pod_record_prevents_a_second_pod_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            pod = await here.create()
        path = here.folder.pod(pod.name).record
        good = path.read_bytes()
        path.write_text("{")
        async with here.controlled() as cluster:
            assert cluster.gang(here.job.metadata.uid) is None
            assert "isn't a pod" in caplog.text
            assert alive(pod.supervisor)
        path.write_bytes(good)


async def test_events_are_appended_to_a_file(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        await cluster.emit(here.job, Event("Restarting", words("worker-0 ended with 3"), "worker-0"))
        await cluster.emit(here.job, Event("Running", words("attempt 2 starts")))
        assert [line.count("reason") for line in here.folder.events.read_text().splitlines()] == [1, 1]


async def test_teardown_leaves_no_process_not_even_orphans(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            pods = [await here.create(member) for member in ("worker-0", "worker-1")]
            with (
                only_controller(here.state),
                pytest.raises(Terminal, match=f"process {os.getpid()} is already the controller"),
            ):
                await teardown(here.state, "g", 0.0)
        marks = {**os.environ, "GANG_POD_UID": pods[0].uid, "GANG_SUPERVISED": "1"}
        fled = process.spawn(["sh", "-c", "trap '' TERM; sleep 600 & wait; wait"], marks, tmp_path, tmp_path / "log")
        assert pods[1].supervisor is not None
        process.signal_process(pods[1].supervisor, signal.SIGSTOP)
        await teardown(here.state, "g", 0.2)
        assert not left(here.state)
        assert not alive(fled)
        assert process.find_marked(pods[0].uid) == ()
        await process.wait_for_end(fled)
        assert [pod.terminated for pod in pod_record.load_all(here.folder)] == [True, True]
        await teardown(here.state, "g", 0.0)
        async with here.controlled():
            assert [(pod.terminated, pod.reason) for pod in here.pods] == [(True, "TornDown")] * 2
            assert not left(here.state), "what was torn down stays so"


def test_a_process_that_asks_for_the_controller_keeps_none_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "controller.lock"
    with path.open("w+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        monkeypatch.setattr("gangctl.cluster.local.layout.time.sleep", lambda _: asking.close())
        with only_process(path, str):
            assert path.read_text() == f"{os.getpid()}\n"


async def test_teardown_ends_known_pods_whose_records_and_lock_are_gone(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            pod = await here.create()
        away = here.state.path.rename(tmp_path / "away")
        with pytest.raises(Retryable, match=r"controller\.lock can't be written: No such file"):
            await teardown(here.state, "g", 0.0, [pod])
        assert not left(here.state)
        assert not Path(pod.sockets).exists()  # noqa: ASYNC240 - a test may block
        away.rename(here.state.path)


def test_the_lock_is_held_on_a_full_disk(tmp_path: Path) -> None:
    """The limit of a file's size is the full disk."""
    program = (
        "import resource, sys; from pathlib import Path; from gangctl.cluster.local.layout import only_process\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "with only_process(Path(sys.argv[1]), str): print('held')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "lock"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("held\n", "")


@pytest.mark.parametrize("how", [only_process, lambda path, _: lock_file(path)])
def test_a_file_system_without_locks_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path, Any], AbstractContextManager[None]]
) -> None:
    def refused(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refused)
    said = r"lock can't be written: Function not implemented; .*\(choose a --state-dir on a local file system\)"
    with pytest.raises(Retryable, match=said), how(tmp_path / "lock", str):
        pass


def test_sockets_are_not_where_a_session_or_a_job_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert runtime_directory() == Path("/tmp") / f"gangctl-{os.getuid()}"
