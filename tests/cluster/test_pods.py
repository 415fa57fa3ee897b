from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangctl.cluster.errors import Conflict, Terminal
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.controller_lock import only_controller
from gangctl.cluster.local.layout import runtime_directory
from gangctl.cluster.local.local_pod import pause
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.teardown import teardown
from gangctl.cluster.port import MemberIdentity, Refusal
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.core.policy.pods import CreatePod, DeletePod
from tests.cluster.local import alive, left, machine, manifest, until


def ids(pod: PodRecord) -> tuple[object, object]:
    return pod.sidecar, pod.supervisor


async def test_a_created_pod_is_two_processes_that_carry_its_identity(tmp_path: Path) -> None:
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
        assert isinstance(await cluster.authenticate("nobody's"), Refusal)
        assert isinstance(await cluster.authenticate(""), Refusal)


async def test_creating_a_pod_twice_makes_one(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        first = await here.create()
        await cluster.create_pod(here.job, CreatePod("worker-0", 0))
        assert [(pod.name, pod.uid) for pod in here.pods] == [("g-worker-0-0", first.uid)]
        assert len([line for line in left(here.state) if "supervisor.pyz run" in line]) == 1


async def test_files_with_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        pod = await here.create()
        folder = here.folder.pod(pod.name)
        for path in (folder.token, folder.record, folder.worker_log, here.folder.job):
            assert path.stat().st_mode & 0o077 == 0, path
        sockets = Path(pod.sockets)
        assert os.stat(sockets).st_mode & 0o077 == 0  # noqa: PTH116 - nor may a path of pathlib be used here
        longest = await until(lambda: max(map(len, map(str, sockets.iterdir())), default=0))
        assert longest <= 107, "a socket's path has no more room"


async def test_a_killed_sidecar_is_started_again_and_the_supervisor_is_left_alone(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        before = await here.create()
        assert before.sidecar is not None
        process.send(before.sidecar, signal.SIGKILL)
        after = await until(lambda: (one := here.whole("worker-0")) and one.sidecar != before.sidecar and one)
        assert after.supervisor == before.supervisor
        assert (after.restarts, after.uid) == (0, before.uid)


async def test_a_killed_supervisor_is_the_restart_of_a_container_and_a_new_session(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        before = await here.create()
        assert before.supervisor is not None
        process.send(before.supervisor, signal.SIGKILL)
        after = await until(lambda: (one := here.whole("worker-0")) and one.restarts == 1 and one)
        assert after.supervisor != before.supervisor
        assert (after.sidecar, after.uid) == (before.sidecar, before.uid)
        shown = await until(lambda: (pod := here.pod(after.name)).restarts == 1 and pod)
        assert shown.started_at > before.started
        await until(lambda: here.sessions(after) == 2)


async def test_a_supervisor_that_ends_with_zero_ends_its_pod(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled():
        pod = await here.create()
        assert pod.supervisor is not None
        process.send(pod.supervisor, signal.SIGTERM)
        over = await until(lambda: here.pod(pod.name).terminated and here.pod(pod.name))
        assert (over.reason, over.started_at, over.restarts) == ("Completed", None, 0)
        assert not alive(pod.supervisor)
        assert not alive(pod.sidecar)
        assert pod_record.load(here.folder.pod(pod.name)) is not None, "the object stays until it is deleted"


def test_what_dies_again_and_again_soon_after_its_start_is_waited_for_longer_and_longer() -> None:
    assert [pause(quick) for quick in range(9)] == [0, 0, 0, 0, 2, 4, 8, 16, 30]


async def test_a_deleted_pod_is_seen_terminated_and_then_is_gone_but_for_its_logs(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        pod = await here.create()
        await cluster.delete_pod(here.job, DeletePod(pod.name, "another-uid"))
        assert not here.pod(pod.name).deleting
        await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid))
        assert here.pod(pod.name).deleting
        stored = pod_record.load(here.folder.pod(pod.name))
        assert stored is not None
        assert stored.deleting, "it goes on being deleted whoever comes next"
        await until(lambda: here.pod(pod.name).terminated)
        assert not left(here.state)
        await until(lambda: not here.pods)
        assert sorted(path.name for path in here.folder.pod(pod.name).path.iterdir()) == ["sidecar.log", "worker.log"]
        assert pod.sockets not in map(str, runtime_directory().iterdir())
        assert isinstance(await cluster.authenticate(pod.token), Refusal)
        again = await here.create()
        assert again.uid != pod.uid


async def test_a_supervisor_that_does_not_listen_is_killed_after_the_grace_with_its_tree(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        pod = await here.create()
        assert pod.supervisor is not None
        marks = {**os.environ, "GANG_POD_UID": pod.uid, "GANG_SUPERVISED": "1"}
        escaped = process.spawn(["sleep", "600"], marks, tmp_path, tmp_path / "log")
        process.send(pod.supervisor, signal.SIGSTOP)
        await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid, grace_seconds=0))
        await until(lambda: here.pod(pod.name).terminated)
        assert not alive(pod.supervisor)
        assert not alive(escaped)
        await process.ended(escaped)


async def test_the_next_controller_adopts_pods_and_touches_nothing(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            before = [await here.create(member) for member in ("worker-0", "worker-1")]
        assert all(alive(pod.sidecar) and alive(pod.supervisor) for pod in before)
        async with here.controlled() as cluster:
            after = [await here.running(member) for member in ("worker-0", "worker-1")]
            assert [ids(pod) for pod in after] == [ids(pod) for pod in before]
            assert [pod.restarts for pod in here.pods] == [0, 0]
            assert isinstance(await cluster.authenticate(before[0].token), MemberIdentity)
            one = before[1].sidecar
            assert one is not None
            process.send(one, signal.SIGKILL)
            await until(lambda: (pod := here.whole("worker-1")) and pod.sidecar != one)


async def test_what_died_without_a_controller_is_started_again_by_the_next(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            pod = await here.create()
        assert pod.supervisor is not None
        process.send(pod.supervisor, signal.SIGKILL)
        await until(lambda: not alive(pod.supervisor))
        async with here.controlled():
            after = await here.running()
            assert (after.sidecar, after.uid, after.restarts) == (pod.sidecar, pod.uid, 1)


async def test_processes_that_were_started_and_not_recorded_are_found(tmp_path: Path) -> None:
    """As if the controller had been killed right after it had started them."""
    async with machine(tmp_path) as here:
        async with here.controlled():
            pod = await here.create()
        forgotten = pod.model_copy(update={"sidecar": None, "supervisor": None, "started": None})
        pod_record.save(here.folder.pod(pod.name), forgotten, durable=True)
        async with here.controlled():
            after = await here.running()
            assert ids(after) == ids(pod)
            assert (after.restarts, len([line for line in left(here.state) if "supervisor.pyz run" in line])) == (0, 1)


async def test_a_deletion_goes_on_under_the_next_controller(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled() as cluster:
            pod = await here.create()
            await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid))
        async with here.controlled():
            await until(lambda: not here.pods)
            assert not left(here.state)


@pytest.mark.parametrize("step", range(7))
async def test_a_controller_that_is_killed_while_it_creates_a_pod_leaves_nothing_double(
    tmp_path: Path, step: int
) -> None:
    async with machine(tmp_path) as here:
        here.state.program.unlink(missing_ok=True)
        program = [sys.executable, "-c", _KILLED_AT, str(here.state.path), str(step)]
        killed = await asyncio.create_subprocess_exec(
            *program, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
        assert await killed.wait() == -signal.SIGKILL
        async with here.controlled():
            pod = await here.create()
            supervisors = [line for line in left(here.state) if "supervisor.pyz run" in line]
            sidecars = [line for line in left(here.state) if "gangsidecar.agent" in line]
            assert (len(supervisors), len(sidecars)) == (1, 1)
            assert pod.uid in supervisors[0]
            assert [(shown.uid, shown.restarts) for shown in here.pods] == [(pod.uid, 0)]


_KILLED_AT = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from gangctl.cluster.local import atomic_files, cluster, pod_record, process, programs
from gangctl.cluster.local.layout import StateDirectory
from gangctl.core.policy.pods import CreatePod

left = int(sys.argv[2])
mutex = threading.Lock()

def dying(function):
    def call(*arguments, **options):
        global left
        with mutex:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return function(*arguments, **options)
    return call

async def main():
    here = cluster.LocalCluster(StateDirectory(Path(sys.argv[1])))
    seen = asyncio.Event()
    watching = asyncio.create_task(here.watch(lambda uid: seen.set()))
    await seen.wait()
    (uid,) = here._gangs
    # Its writes, in order: supervisor, token, record; then the two starts, and their two records.
    cluster.write = pod_record.write = dying(atomic_files.write)
    programs.spawn = dying(process.spawn)
    await here.create_pod(here.gang(uid), CreatePod("worker-0", 0))
    await watching

asyncio.run(main())
"""


async def test_changes_by_others_are_noticed_and_a_conflict_shows_the_fresh_object(tmp_path: Path) -> None:
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
        await until(lambda: here.changes)
        found = cluster.gang(uid)
        assert found is not None
        assert (found.spec.restart_token, found.status.attempt) == ("again", 1)


async def test_a_gang_whose_object_is_removed_takes_its_processes_along(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        await here.create()
        uid = here.job.metadata.uid
        here.changes.clear()
        here.folder.job.unlink()
        await until(lambda: cluster.gang(uid) is None and uid in here.changes)
        await until(lambda: not left(here.state))


async def test_a_gang_that_is_created_anew_never_gets_the_pods_of_the_old(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        old, pod = here.job, await here.create()
        here.folder.job.unlink()
        new = here.store.create(manifest(), tmp_path)
        await until(lambda: cluster.gang(new.metadata.uid))
        assert cluster.gang(old.metadata.uid) is None
        assert not here.pods
        await until(lambda: not alive(pod.supervisor))

        async def created() -> None:
            while not here.pods:
                here.changes.clear()
                await cluster.create_pod(new, CreatePod("worker-0", 0))
                await until(lambda: here.changes or here.pods)

        async with asyncio.timeout(20):
            await created()
        assert (await here.running()).gang == new.metadata.uid


async def test_a_corrupt_object_is_left_alone_and_other_gangs_go_on(
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


async def test_a_corrupt_pod_stops_the_controller_from_running_a_second_one_beside_it(
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


async def test_a_pod_whose_template_cannot_be_run_here_is_refused(tmp_path: Path) -> None:
    job = manifest(env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
    async with machine(tmp_path, job) as here, here.controlled() as cluster:
        with pytest.raises(Terminal, match=r"containers\[0\]\.env\[0\]\.valueFrom: nothing to take POD_IP from"):
            await cluster.create_pod(here.job, CreatePod("worker-0", 0))
        assert here.pods == ()


async def test_events_are_kept_for_people(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, here.controlled() as cluster:
        await cluster.emit(here.job, Event(EventType.WARNING, "ExitCode", "worker-0 ended with 3", "worker-0"))
        await cluster.emit(here.job, Event(EventType.NORMAL, "Running", "attempt 2 starts"))
        assert [line.count("reason") for line in here.folder.events.read_text().splitlines()] == [1, 1]


async def test_teardown_leaves_no_process_also_none_that_fled(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            pods = [await here.create(member) for member in ("worker-0", "worker-1")]
            with (
                only_controller(here.state),
                pytest.raises(Terminal, match=f"controller already: process {os.getpid()}"),
            ):
                await teardown(here.state, "g", 0.0)
        marks = {**os.environ, "GANG_POD_UID": pods[0].uid, "GANG_SUPERVISED": "1"}
        fled = process.spawn(["sh", "-c", "trap '' TERM; sleep 600 & wait; wait"], marks, tmp_path, tmp_path / "log")
        assert pods[1].supervisor is not None
        process.send(pods[1].supervisor, signal.SIGSTOP)
        await teardown(here.state, "g", 0.2)
        assert not left(here.state)
        assert not alive(fled)
        assert process.marked(pods[0].uid) == ()
        await process.ended(fled)
        assert [pod.terminated for pod in pod_record.load_all(here.folder)] == [True, True]
        await teardown(here.state, "g", 0.0)
        async with here.controlled():
            assert [(pod.terminated, pod.reason) for pod in here.pods] == [(True, "TornDown")] * 2
            assert not left(here.state), "what was torn down stays so"


def test_there_is_one_controller_for_a_state_directory(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from gangctl.cluster.local.controller_lock import only_controller\n"
        "from gangctl.cluster.local.layout import StateDirectory\n"
        "with only_controller(StateDirectory(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        second = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert f"has a controller already: process {first.pid}" in second.stderr
        first.kill()
    third = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, input="")
    assert third.returncode == 0, "a killed one holds nothing"
