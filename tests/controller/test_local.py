"""The controller as a process, with real gangs."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Snapshot
from gangctl.cli.gang_view import live_snapshot
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.pod_record import PodProcess, PodRecord, live_processes, pod_of
from gangctl.cluster.local.process import LocalProcess
from gangctl.words.decisions import unstored
from tests.cluster.local import Machine, left, machine, manifest
from tests.wait import SECONDS, until_async

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@asynccontextmanager
async def controller(here: Machine, *arguments: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """A controller of the state directory; killed at the end, if it is still there."""
    options = {"stdin": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL, **options}
    command = (sys.executable, "-m", "gangctl.controller", "--state-dir", str(here.state.path), *arguments)
    started = await asyncio.create_subprocess_exec(*command, env=ENVIRONMENT, **options)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def runs(here: Machine, attempt: int, replicas: int = 2) -> list[LocalProcess]:
    """Wait until the attempt runs; its workers."""

    def workers() -> list[LocalProcess] | None:
        status = here.store.read().status
        if (status.phase, status.attempt) != (GangPhase.RUNNING, attempt):
            return None
        pods = [pod_of(here.folder, f"worker-{at}") for at in range(replicas)]
        found = [list(live_processes(pod, here.folder.pod(pod.name), PodProcess.WORKER)) for pod in pods]
        return [one[0] for one in found] if all(len(one) == 1 for one in found) else None

    found: list[LocalProcess] = await until_async(f"attempt {attempt} runs", workers)
    return found


async def snapshot(here: Machine) -> Snapshot:
    """What the controller shows; on a busy machine it may answer later than a reader waits, so it is asked again."""
    return await until_async(
        "the controller answers", lambda: asyncio.to_thread(live_snapshot, here.state, here.job.metadata.name)
    )


def ids(here: Machine) -> list[tuple[LocalProcess | None, LocalProcess | None]]:
    return [(pod.sidecar, pod.supervisor) for pod in pod_record.load_all(here.folder)]


async def test_a_killed_worker_costs_one_attempt_two_writes_and_no_pod(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, controller(here):
        workers = await runs(here, 1)
        before, version = ids(here), int(here.job.metadata.resource_version)
        process.signal_process(workers[0], signal.SIGKILL)
        again = await runs(here, 2)
        assert int(here.job.metadata.resource_version) == version + 2
        assert ids(here) == before
        assert not set(again) & set(workers)
        assert here.job.status.incidents[0].cause.signal == "SIGKILL"


async def test_the_successor_of_a_killed_controller_touches_no_worker(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with controller(here) as first:
            workers = await runs(here, 1)
            before = ids(here)
            first.kill()
            await first.wait()
        assert all(process.is_alive(one) for one in workers), "without a controller they train on"
        async with controller(here):
            await until_async(
                "the second controller has started",
                lambda: here.state.lock.read_text().strip() and here.state.url.exists(),
            )
            process.signal_process(workers[1], signal.SIGTERM)
            again = await runs(here, 2)
            assert ids(here) == before
            assert process.is_alive(workers[0]) is (workers[0] in again)
            assert here.job.status.restarts.counted == 1, "the change of controllers was none"


async def test_a_new_controller_recovers_from_faults_of_the_time_without_one(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with controller(here):
            workers = await runs(here, 1)
        process.signal_process(workers[0], signal.SIGKILL)
        pod = pod_of(here.folder, "worker-1")
        assert pod.sidecar is not None
        process.signal_process(pod.sidecar, signal.SIGKILL)
        async with controller(here):
            await runs(here, 2)
            after = await until_async("the pod of worker-1 is whole", lambda: here.whole("worker-1"))
            assert after.supervisor == pod.supervisor
            assert after.sidecar != pod.sidecar


async def test_a_killed_supervisor_costs_one_attempt_and_leaves_no_worker_behind(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, controller(here):
        workers = await runs(here, 1)
        pod = pod_of(here.folder, "worker-0")
        assert pod.supervisor is not None
        process.signal_process(pod.supervisor, signal.SIGKILL)
        await runs(here, 2)
        assert not process.is_alive(workers[0])
        assert here.job.status.incidents[0].cause.reason == "ContainerRestarted"
        assert [one.restarts for one in pod_record.load_all(here.folder)] == [1, 0]


async def test_a_gang_that_succeeded_leaves_no_process(tmp_path: Path) -> None:
    async with machine(tmp_path, manifest(command=("true",))) as here, controller(here):
        await until_async("the gang has succeeded", lambda: here.job.status.phase is GangPhase.SUCCEEDED)
        await until_async(
            "every pod has terminated", lambda: all(pod.terminated for pod in pod_record.load_all(here.folder))
        )
        assert [line for line in left(here.state) if "gangctl.controller" not in line] == []


async def test_suspending_deletes_the_pods_and_resuming_makes_new_ones(tmp_path: Path) -> None:
    def suspend(here: Machine, *, on: bool) -> GangJob:
        return here.store.update_spec(lambda spec: spec.model_copy(update={"suspend": on}))

    async with machine(tmp_path) as here, controller(here):
        await runs(here, 1)
        before: tuple[PodRecord, ...] = pod_record.load_all(here.folder)
        suspend(here, on=True)
        await until_async(
            "the gang is suspended and has no pods",
            lambda: here.job.status.phase is GangPhase.SUSPENDED and not pod_record.load_all(here.folder),
        )
        suspend(here, on=False)
        await runs(here, 2)
        after = pod_record.load_all(here.folder)
        assert not {pod.uid for pod in before} & {pod.uid for pod in after}
        assert here.job.status.restarts.counted == 0


async def test_sigterm_ends_only_the_controller(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with controller(here) as running:
            workers = await runs(here, 1)
            running.terminate()
            async with asyncio.timeout(SECONDS):
                assert await running.wait() == 0
        assert all(process.is_alive(one) for one in workers)


async def test_the_end_of_its_input_ends_only_the_controller(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        async with controller(here, stdin=asyncio.subprocess.PIPE) as running:
            workers = await runs(here, 1)
            assert running.stdin is not None
            running.stdin.close()
            async with asyncio.timeout(SECONDS):
                assert await running.wait() == 0
        assert all(process.is_alive(one) for one in workers)


async def test_a_second_controller_names_the_first_one_and_ends(tmp_path: Path) -> None:
    async with machine(tmp_path) as here, controller(here) as first:
        await runs(here, 1)
        async with controller(here, stderr=asyncio.subprocess.PIPE) as second:
            _, said = await second.communicate()
            assert second.returncode == 1
            assert f"process {first.pid} is already the controller of" in said.decode()


async def test_a_status_that_cannot_be_written_is_logged_and_nothing_happens_until_it_can(tmp_path: Path) -> None:
    """The limit of a file's size is the full disk; it is taken back while the controller runs."""
    async with machine(tmp_path) as here, controller(here, stderr=asyncio.subprocess.PIPE) as running:
        workers = await runs(here, 1)
        good = here.job
        before = resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        process.signal_process(workers[0], signal.SIGKILL)
        assert running.stderr is not None
        async with asyncio.timeout(SECONDS):
            await running.stderr.readuntil(unstored("").encode())
            assert b"gangjob.json can't be written: File too large" in await running.stderr.readline()
        assert here.job == good
        seen = await snapshot(here)
        assert "gangjob.json can't be written: File too large" in seen.unstored
        assert seen.status.message == unstored(seen.unstored)
        assert seen.status.ready == "1/2", "the worker that has ended is not restarted"
        assert [one.phase for one in seen.members] == ["Ended", "Running"]
        assert process.is_alive(workers[1]), "no worker was stopped for an attempt that is not stored"
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, before)
        await runs(here, 2)
        assert not (await snapshot(here)).unstored


async def test_the_json_log_has_an_entry_for_each_decision(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with machine(tmp_path) as here, controller(here, "--log-format", "json", "--log-file", str(log)):
        await runs(here, 1)
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        decisions = [entry for entry in entries if "because" in entry]
        assert [(entry["attempt"], entry["phase"]) for entry in decisions] == [(1, "Pending"), (1, "Running")]
        assert decisions[0]["actions"] == ["CreatePod", "CreatePod"]
