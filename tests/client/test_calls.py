"""Calls that wait for the sidecar, and the events that it sends."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import gangclient
from gangsidecar import wire
from tests.client.scripts import environment, frozen
from tests.sidecar.agent.sidecars import HOLD, REPORT, sidecar, supervisor, training, until

FOREVER = 3600.0


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, directory: Path) -> gangclient.Client:
    """A client in this process."""
    for name, value in environment(directory, directory / "gang.sock").items():
        monkeypatch.setenv(name, value)
    return gangclient.connect()


async def test_a_frozen_sidecar_ends_no_training_and_hears_the_checkpoint_later(
    directory: Path, worker: gangclient.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with training(directory) as here:
        with frozen(here):
            assert not await asyncio.to_thread(worker.checkpoint_begun, 1300, "ram", "/x", 0.3)
            # A sidecar that is known to be away is not waited for again: that would be for longer than a test may take.
            monkeypatch.setattr("gangclient._client.DEADLINE", FOREVER)
            assert not worker.checkpoint_completed(1300, "ram", "/x", FOREVER)
            assert not worker.request_restart("the loss is NaN")
        await here.supervisor.wait_for(wire.Request)
        told = [one for one in here.supervisor.received if isinstance(one, (wire.Checkpoint, wire.Dropped))]
        assert list(dict.fromkeys(told)) == [wire.Dropped("ram", 1300, 4, 3), wire.Checkpoint("ram", 1300, 4, 3, "/x")]


async def test_calls_while_the_sidecar_is_away_are_told_to_the_next_one_within_bounds(
    directory: Path, worker: gangclient.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gangclient._calls.MAX_CALLS", 3)
    assert not await asyncio.to_thread(worker.checkpoint_completed, 1, "ram", "/x", 0.2)
    for step in (2, 3, 4):
        assert not worker.checkpoint_completed(step, "ram", "/x")
    assert await asyncio.to_thread(worker.attempt, 0.2) == {}
    running = replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)  # A worker calls after its Run, never before it.
    async with sidecar(directory, ""), supervisor(directory, running) as below:
        told = await until(lambda: steps if 4 in (steps := [one.step for one in below.all(wire.Checkpoint)]) else None)
        assert list(dict.fromkeys(told)) == [2, 3, 4]
    assert "training goes on" in caplog.text
    assert "the oldest call that was kept is forgotten" in caplog.text


async def test_a_checkpoint_waits_for_a_supervisor_that_comes_back(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        waiting = asyncio.create_task(asyncio.to_thread(worker.checkpoint_completed, 1300, "ram", Path("/x")))
        async with supervisor(directory, replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)) as back:
            assert (await back.wait_for(wire.Checkpoint)).path == "/x"
            assert await waiting


async def test_a_misspelt_tier_raises_with_the_tiers_that_there_are(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory):
        with pytest.raises(gangclient.GangError, match=r"no checkpoint tier 'rma'.* has ram, near, shared") as caught:
            await asyncio.to_thread(worker.checkpoint_completed, 1300, "rma")
        assert caught.value.reason == "TierUnknown"
        assert await asyncio.to_thread(worker.checkpoint_completed, 1300, "shared")


async def test_a_misspelt_tier_ends_no_training_that_has_something_to_lose(
    directory: Path, worker: gangclient.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with training(directory):
        assert await asyncio.to_thread(worker.checkpoint_completed, 1300, "ram")
        assert not await asyncio.to_thread(worker.checkpoint_completed, 1300, "rma")
        assert "no checkpoint tier 'rma'" in caplog.text
        monkeypatch.setenv("GANG_RESTORE_STEP", "1200")
        assert not await asyncio.to_thread(gangclient.connect().checkpoint_completed, 1300, "rma")


async def test_a_call_of_an_old_attempt_is_refused_at_once(
    directory: Path, worker: gangclient.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with training(directory) as here:
        await here.report(attempt=4, phase=wire.Phase.RUNNING)
        assert not await asyncio.to_thread(worker.checkpoint_completed, 1300, "ram")
        assert "AttemptOver: attempt 3 is over: the current attempt is 4" in caplog.text


async def test_on_stop_calls_back_once_with_the_reason(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory) as here:
        stops: list[gangclient.Event] = []
        worker.on_stop(stops.append)
        await here.direct(replace(HOLD, attempt=4, reason="worker-5 was killed", grace_ms=15_000))
        await until(lambda: stops)
        assert stops[0][:4] == ("stop", 3, "worker-5 was killed", False)
        assert stops[0].seconds_left is not None
        assert 13 < stops[0].seconds_left <= 15


async def test_the_signal_waits_for_on_stop_and_no_longer(directory: Path, worker: gangclient.Client) -> None:
    async with training(directory) as here:
        stops: list[gangclient.Event] = []
        acts = threading.Event()

        def act(stop: gangclient.Event) -> None:
            stops.append(stop)
            acts.wait(5)

        worker.on_stop(act)
        assert await here.supervisor.wait_for(wire.Watching) == wire.Watching(3, 1)
        await here.direct(replace(HOLD, attempt=4))
        await until(lambda: stops)
        assert len(here.supervisor.all(wire.Watching)) == 1
        acts.set()
        assert await here.supervisor.wait_for(wire.Watching, 2) == wire.Watching(3, 0)


async def test_a_callback_that_raises_is_called_once_and_holds_nothing_up(
    directory: Path, worker: gangclient.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    async with training(directory) as here:
        calls: list[int] = []

        def fail(stop: gangclient.Event) -> None:
            calls.append(stop.attempt)
            raise ValueError("a mistake of the user's")

        worker.on_stop(fail)
        await here.supervisor.wait_for(wire.Watching)
        await here.direct(replace(HOLD, attempt=4))
        assert await here.supervisor.wait_for(wire.Watching, 2) == wire.Watching(3, 0)
        assert calls == [3]


async def test_after_close_no_callback_is_called_and_no_thread_is_left(
    directory: Path, worker: gangclient.Client
) -> None:
    async with training(directory) as here:
        before = set(threading.enumerate())
        stops: list[gangclient.Event] = []
        worker.on_stop(stops.append)
        assert await here.supervisor.wait_for(wire.Watching) == wire.Watching(3, 1)
        worker.close()
        assert await here.supervisor.wait_for(wire.Watching, 2) == wire.Watching(3, 0)
        await until(lambda: set(threading.enumerate()) <= before)
        worker.on_stop(stops.append)
        await here.direct(replace(HOLD, attempt=4))
        await until(lambda: set(threading.enumerate()) <= before)
        assert list(worker.events()) == []
        assert stops == []


async def test_a_stop_that_arrives_with_the_close_is_not_told(
    worker: gangclient.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is over: the next one may run in this process already."""
    stops: list[gangclient.Event] = []

    def told_and_closed(_events: object) -> gangclient.Event:
        worker.close()
        return gangclient.Event("stop", 3)

    monkeypatch.setattr(worker, "_own_stop", told_and_closed)
    worker.on_stop(stops.append)
    await until(lambda: all(one.name != "gangclient-stop" for one in threading.enumerate()))
    assert stops == []


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
