from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gangctl.cluster import clock
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.layout import runtime_directory
from gangctl.cluster.local.local_pod import back_off
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangsidecar.wire import End, to_words
from tests.cluster.local import alive, left, machine, manifest
from tests.wait import until_async


def ids(pod: PodRecord) -> tuple[object, object]:
    return pod.sidecar, pod.supervisor


async def test_a_created_pod_runs_two_processes_with_its_identity(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        pod = await here.create()
        assert pod.supervisor is not None
        words = process.command_line(pod.supervisor.pid)
        assert words[words.index("--pod") + 1] == pod.uid
        assert words[words.index("--") + 1 :][:2] == ["sleep", "600"]
        shown = here.pod("g-worker-0-0")
        assert (shown.uid, shown.member, shown.incarnation, shown.restarts) == (pod.uid, "worker-0", 0, 0)
        assert shown.started_at is not None
        assert not shown.terminated
        assert here.job.metadata.uid in here.changes
        known = await cluster.authenticate(pod.token)
        assert known == MemberIdentity(here.job.metadata.uid, "worker-0", 0, pod.uid)
        assert isinstance(await cluster.authenticate("unknown"), Refusal)
        assert isinstance(await cluster.authenticate(""), Refusal)


async def test_creating_a_pod_twice_creates_one_pod(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        first = await here.create()
        await cluster.create_pod(here.job, CreatePod("worker-0", 0))
        assert [(pod.name, pod.uid) for pod in here.pods] == [("g-worker-0-0", first.uid)]
        assert len([line for line in left(here.state) if "supervisor.pyz run" in line]) == 1


async def test_only_the_owner_can_read_files_with_secrets(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        pod = await here.create()
        folder = here.folder.pod(pod.name)
        for path in (folder.token, folder.record, folder.worker_log, folder.supervisor_log, here.folder.job):
            assert path.stat().st_mode & 0o077 == 0, path
        sockets = Path(pod.sockets)
        assert os.stat(sockets).st_mode & 0o077 == 0  # noqa: PTH116 - nor may a path of pathlib be used here
        longest = await until_async("the sockets exist", lambda: max(map(len, map(str, sockets.iterdir())), default=0))
        assert longest <= 107, "a socket's path has no more room"


async def test_a_killed_sidecar_restarts_and_the_supervisor_keeps_running(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        before = await here.create()
        assert before.sidecar is not None
        process.signal_process(before.sidecar, signal.SIGKILL)
        after = await until_async(
            "a new sidecar runs",
            lambda: one if (one := here.whole("worker-0")) and one.sidecar != before.sidecar else None,
        )
        assert after.supervisor == before.supervisor
        assert (after.restarts, after.uid) == (0, before.uid)


async def test_a_killed_supervisor_counts_as_a_container_restart_and_starts_a_new_session(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        before = await here.create()
        assert before.supervisor is not None
        process.signal_process(before.supervisor, signal.SIGKILL)
        after = await until_async(
            "the supervisor has restarted",
            lambda: one if (one := here.whole("worker-0")) and one.restarts == 1 else None,
        )
        assert after.supervisor != before.supervisor
        assert (after.sidecar, after.uid) == (before.sidecar, before.uid)
        shown = await until_async(
            "the cluster shows the restart", lambda: pod if (pod := here.pod(after.name)).restarts == 1 else None
        )
        assert shown.started_at is not None
        assert before.started is not None
        assert shown.started_at > before.started
        await until_async("the second session begins", lambda: here.sessions(after) == 2)


async def test_a_supervisor_that_ends_with_zero_ends_its_pod(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        pod = await here.create()
        assert pod.supervisor is not None
        done = End(1, 0, 0, exit_code=0)
        here.folder.pod(pod.name).termination_log.write_text(to_words([done]))
        process.signal_process(pod.supervisor, signal.SIGTERM)
        over = await until_async(
            "the pod is shown as terminated", lambda: one if (one := here.pod(pod.name)).terminated else None
        )
        assert (over.reason, over.started_at, over.restarts) == ("Completed", None, 0)
        assert over.last_words is not None
        assert over.last_words.ends == (done,)
        assert not alive(pod.supervisor)
        assert not alive(pod.sidecar)
        assert pod_record.load_pod(here.folder.pod(pod.name)) is not None, "the object stays until it is deleted"


async def test_the_end_of_a_pod_is_later_than_its_start_after_the_wall_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock._TERM, "offset", clock._TERM.offset + 3600)  # noqa: SLF001
    async with machine(tmp_path) as here, here.controlled() as cluster:
        pod = await here.create()
        await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid))
        over = await until_async("it has ended", lambda: one if (one := here.pod(pod.name)).terminated else None)
        assert over.ended_at is not None
        assert over.ended_at > over.created_at


def test_the_back_off_grows_while_a_process_keeps_dying_soon_after_its_start() -> None:
    assert [back_off(quick) for quick in range(9)] == [0, 0, 0, 0, 2, 4, 8, 16, 30]


async def test_a_deleted_pod_is_shown_as_terminated_and_then_only_its_logs_remain(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        pod = await here.create()
        await cluster.delete_pod(here.job, DeletePod(pod.name, "another-uid"))
        assert not here.pod(pod.name).deleting
        await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid))
        assert here.pod(pod.name).deleting
        stored = pod_record.load_pod(here.folder.pod(pod.name))
        assert stored is not None
        assert stored.deleting, "the next controller continues the deletion"
        await until_async("the pod is shown as terminated", lambda: here.pod(pod.name).terminated)
        assert not left(here.state)
        await until_async("the pod is gone", lambda: not here.pods)
        logs = ["sidecar.log", "supervisor.log", "worker.log"]
        assert sorted(path.name for path in here.folder.pod(pod.name).path.iterdir()) == logs
        assert pod.sockets not in map(str, runtime_directory().iterdir())
        assert isinstance(await cluster.authenticate(pod.token), Refusal)
        again = await here.create()
        assert again.uid != pod.uid


async def test_a_supervisor_that_ignores_sigterm_is_killed_with_its_tree_after_the_grace_period(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        pod = await here.create()
        assert pod.supervisor is not None
        marks = {**os.environ, "GANG_POD_UID": pod.uid, "GANG_SUPERVISED": "1"}
        escaped = process.spawn(["sleep", "600"], marks, tmp_path, tmp_path / "log")
        process.signal_process(pod.supervisor, signal.SIGSTOP)
        await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid, grace_seconds=0))
        await until_async("the pod is shown as terminated", lambda: here.pod(pod.name).terminated)
        assert not alive(pod.supervisor)
        assert not alive(escaped)
        await process.wait_for_end(escaped)


async def test_a_pod_whose_template_cannot_run_here_is_rejected(tmp_path: Path) -> None:
    job = manifest(env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
    async with machine(tmp_path, job) as here, here.controlled() as cluster:
        with pytest.raises(
            Terminal, match=r"containers\[0\]\.env\[0\]\.valueFrom: local mode can't resolve it; set a value for POD_IP"
        ):
            await cluster.create_pod(here.job, CreatePod("worker-0", 0))
        assert here.pods == ()
