from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.port import MemberIdentity
from gangctl.core.policy.pods import DeletePod
from tests.cluster.local import alive, left, machine
from tests.wait import until_async


def ids(pod: PodRecord) -> tuple[object, object]:
    return pod.sidecar, pod.supervisor


async def test_the_next_controller_adopts_pods_without_touching_them(tmp_path: Path) -> None:
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
            process.signal_process(one, signal.SIGKILL)
            await until_async("a new sidecar runs", lambda: (pod := here.whole("worker-1")) and pod.sidecar != one)


async def test_the_next_controller_restarts_processes_that_died_meanwhile(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled():
            pod = await here.create()
        assert pod.supervisor is not None
        process.signal_process(pod.supervisor, signal.SIGKILL)
        await until_async("the supervisor has ended", lambda: not alive(pod.supervisor))
        async with here.controlled():
            after = await here.running()
            assert (after.sidecar, after.uid, after.restarts) == (pod.sidecar, pod.uid, 1)


async def test_the_next_controller_finds_processes_that_were_started_but_not_recorded(tmp_path: Path) -> None:
    """As if the controller had been killed right after it had started them."""
    async with machine(tmp_path) as here:
        async with here.controlled():
            pod = await here.create()
        forgotten = pod.model_copy(update={"sidecar": None, "supervisor": None, "started": None})
        pod_record.save_pod(here.folder.pod(pod.name), forgotten, durable=True)
        async with here.controlled():
            after = await here.running()
            assert ids(after) == ids(pod)
            assert (after.restarts, len([line for line in left(here.state) if "supervisor.pyz run" in line])) == (0, 1)


async def test_the_next_controller_completes_a_deletion(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with here.controlled() as cluster:
            pod = await here.create()
            await cluster.delete_pod(here.job, DeletePod(pod.name, pod.uid))
        async with here.controlled():
            await until_async("the pod is gone", lambda: not here.pods)
            assert not left(here.state)


@pytest.mark.parametrize("step", range(7))
async def test_a_controller_killed_while_it_creates_a_pod_leaves_no_duplicate(tmp_path: Path, step: int) -> None:
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
from gangctl.cluster.local import atomic_files, cluster, programs, pod_record, process
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
    programs.write_file = pod_record.write_file = dying(atomic_files.write_file)
    programs.spawn = dying(process.spawn)
    await here.create_pod(here.gang(uid), CreatePod("worker-0", 0))
    await watching

asyncio.run(main())
"""


def test_a_state_directory_has_at_most_one_controller(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from gangctl.cluster.local.layout import only_controller\n"
        "from gangctl.cluster.local.layout import StateDirectory\n"
        "with only_controller(StateDirectory(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        second = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert f"process {first.pid} is already the controller of" in second.stderr
        first.kill()
    third = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, input="")
    assert third.returncode == 0, "a killed one holds nothing"
