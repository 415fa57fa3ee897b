"""Calls that wait for the sidecar, and the events that it sends."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

import gangclient
from gangsidecar import wire
from tests.client.scripts import environment, frozen
from tests.sidecar.agent.sidecars import HOLD, REPORT, sidecar, supervisor, training, until


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, directory: Path) -> gangclient.Client:
    """A client in this process."""
    for name, value in environment(directory, directory / "gang.sock").items():
        monkeypatch.setenv(name, value)
    return gangclient.connect()


async def test_a_checkpoint_that_cant_be_registered_raises_within_its_deadline(
    directory: Path, worker: gangclient.Client
) -> None:
    async with training(directory) as here:
        with frozen(here):
            began = time.monotonic()
            with pytest.raises(gangclient.GangError, match="SidecarAway"):
                await asyncio.to_thread(worker.checkpoint_completed, 1300, "ram", "/x", 0.5)
            assert time.monotonic() - began < 2
    with pytest.raises(gangclient.GangError, match=r"given up after 0\.3 s") as caught:
        await asyncio.to_thread(worker.checkpoint_completed, 1300, "ram", "/x", 0.3)
    assert caught.value.reason == "SidecarAway"


async def test_a_checkpoint_waits_for_a_supervisor_that_comes_back(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        with pytest.raises(gangclient.GangError, match="SupervisorAway"):
            await asyncio.to_thread(worker.checkpoint_completed, 1300, "ram", "/x", 0.3)
        waiting = asyncio.create_task(asyncio.to_thread(worker.checkpoint_completed, 1300, "ram", Path("/x")))
        async with supervisor(directory, replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)) as back:
            assert (await back.wait_for(wire.Checkpoint)).path == "/x"
            await waiting


async def test_a_misspelt_tier_raises_with_the_tiers_that_there_are(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory):
        with pytest.raises(gangclient.GangError, match=r"no checkpoint tier 'rma'.* has ram, shared") as caught:
            await asyncio.to_thread(worker.checkpoint_completed, 1300, "rma")
        assert caught.value.reason == "TierUnknown"
        await asyncio.to_thread(worker.checkpoint_completed, 1300, "shared")


async def test_a_call_of_an_old_attempt_is_refused_at_once(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory) as here:
        await here.report(attempt=4, phase=wire.Phase.RUNNING)
        with pytest.raises(gangclient.GangError, match="attempt 3 is over: the current attempt is 4") as caught:
            await asyncio.to_thread(worker.checkpoint_completed, 1300, "ram")
        assert caught.value.reason == "AttemptOver"


async def test_on_stop_calls_back_once_with_the_reason(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory) as here:
        stops: list[gangclient.Event] = []
        worker.on_stop(stops.append)
        await here.direct(replace(HOLD, attempt=4, reason="worker-5 was killed", grace_ms=15_000))
        await until(lambda: stops)
        assert stops[0][:4] == ("stop", 3, "worker-5 was killed", False)
        assert stops[0].seconds_left is not None
        assert 13 < stops[0].seconds_left <= 15


async def test_events_go_on_after_the_sidecar_was_killed_and_started_again(
    directory: Path, worker: gangclient.Client
) -> None:
    async with training(directory) as here:
        stops: list[gangclient.Event] = []
        worker.on_stop(stops.append)
        here.sidecar.process.kill()
        await here.sidecar.process.wait()
        stopping = replace(HOLD, attempt=4, reason="again")
        async with (
            sidecar(directory, here.controller.url),
            supervisor(directory, replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)),
        ):
            again = await here.controller.connected(2)
            await until(again.reports)
            await again.send(stopping)
            await until(lambda: stops)
        assert stops[0].reason == "again"


async def test_a_socket_with_a_long_path_is_reached(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = directory / ("d" * 60) / ("e" * 60)
    async with training(deep) as here:
        for name, value in environment(directory, here.sidecar.socket).items():
            monkeypatch.setenv(name, value)
        answer = await asyncio.to_thread(gangclient.connect().attempt)
        assert answer["attempt"] == 3
