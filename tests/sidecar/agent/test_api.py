"""Calls that the framework API accepts, and their effects."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangsidecar import wire
from gangsidecar.agent.progress import WINDOW
from tests.sidecar.agent.api_calls import CHECKPOINT, CORRUPTION, LOADED, RESTART, RESTORE, STEP, WHO, call
from tests.sidecar.agent.sidecars import (
    HOLD,
    REPORT,
    run,
    sidecar,
    supervisor,
    training,
    until,
    world,
)
from tests.wait import SECONDS


async def test_the_api_describes_the_attempt(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        assert await call(here, "GET", "/v1/attempt") == (
            200,
            {
                "gang": "gang-uid",
                "member": "worker-2",
                "attempt": 3,
                "phase": "Running",
                "ranks": [4, 5],
                "worldSize": 8,
                "masterAddress": "10.0.0.7",
                "masterPort": 29401,
                "restore": {"step": 1200, "tier": "shared", "path": "/checkpoints/1200"},
                "reason": "worker-1 was killed",
            },
        )


async def test_each_rank_finds_the_path_that_it_registered_in_a_member_tier(directory: Path) -> None:
    async with training(directory, wire.Restore(1300, "ram")) as here:
        registered = tuple(wire.Checkpoint("ram", step, 4, 2, f"/dev/shm/{step}") for step in (1300, 1200))
        await here.report(attempt=3, phase=wire.Phase.RUNNING, checkpoints=registered)
        _, answer = await call(here, "GET", "/v1/attempt")
        assert answer["restore"] == {"step": 1300, "tier": "ram", "paths": [{"rank": 4, "path": "/dev/shm/1300"}]}


async def test_a_worker_may_call_before_its_supervisor_reports_running(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=3, phase=wire.Phase.READY)
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 409
        await here.direct(run(3, RESTORE))
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 200


async def test_the_attempt_contains_a_stop_with_its_time_left(directory: Path) -> None:
    async with training(directory) as here:
        await here.direct(replace(HOLD, attempt=4, reason="node drain", planned=True, grace_ms=120_000))
        _, answer = await call(here, "GET", "/v1/attempt")
        assert answer["attempt"] == 3
        assert answer["stopping"]["planned"] is True
        assert answer["stopping"]["reason"] == "node drain"
        assert 110_000 < answer["stopping"]["millisecondsLeft"] <= 120_000


async def test_a_run_of_another_session_changes_nothing(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=3, phase=wire.Phase.READY)
        await here.direct(run(3, session="session-z"))
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 409


async def test_the_first_step_goes_to_the_supervisor_at_once_and_others_once_a_second(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        assert await call(here, "POST", "/v1/progress", {**STEP, "seconds": 0.25}) == (200, {})
        first = await here.supervisor.wait_for(wire.Progress)
        began = time.monotonic()
        assert (first.step, first.first_step, first.phase) == (1201, 1201, "Step")
        for step in range(1202, 1300):
            assert (await call(here, "POST", "/v1/progress", {**STEP, "step": step}))[0] == 200
        told = await until(
            lambda: all_told if (all_told := here.supervisor.all(wire.Progress))[-1].step == 1299 else []
        )
        seconds, last = time.monotonic() - began, told[-1]
        assert last.first_step == 1201
        assert last.first_age_ms is not None
        assert last.first_age_ms > 900
        assert last.first_age_ms > last.age_ms
        assert len(told) <= 2 + int(seconds), "the calls may take longer than a second on a busy machine"


async def test_a_first_step_right_after_the_startup_goes_out_at_once(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        await call(here, "POST", "/v1/progress", {**STEP, "phase": "Startup", "step": 0})
        await call(here, "POST", "/v1/progress", STEP)
        first = await here.supervisor.wait_for(wire.Progress, 2)
        assert [one.first_step for one in here.supervisor.all(wire.Progress)] == [None, 1201]
        assert first.age_ms < 500, "it did not wait for the next second"


async def test_progress_waits_for_a_supervisor_that_is_away(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        assert (await call(here, "POST", "/v1/progress", STEP))[0] == 200
        async with supervisor(directory, replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)) as back:
            assert (await back.wait_for(wire.Progress)).step == 1201


@pytest.mark.parametrize("step", [1200, 1201])
async def test_a_first_step_after_the_restore_point_gets_no_warning(directory: Path, step: int) -> None:
    async with training(directory, RESTORE) as here:
        assert await call(here, "POST", "/v1/progress", {**STEP, "step": step}) == (200, {})


@pytest.mark.parametrize(("restore", "steps"), [(RESTORE, (1,)), (RESTORE, (1202, 1203)), (None, (20, 30))])
async def test_a_first_step_from_elsewhere_gets_a_warning_once_it_is_known(
    directory: Path, restore: wire.Restore | None, steps: tuple[int, ...]
) -> None:
    async with training(directory, restore) as here:
        for step in steps[:-1]:
            assert await call(here, "POST", "/v1/progress", {**STEP, "step": step}) == (200, {})
        _, answer = await call(here, "POST", "/v1/progress", {**STEP, "step": steps[-1]})
        assert answer["warning"] == "RestorePointIgnored"
        assert f"the first step reported is {steps[0]}" in answer["message"]
        assert "RestorePointIgnored" in here.sidecar.log()
        assert await call(here, "POST", "/v1/progress", {**STEP, "step": steps[-1] + 1}) == (200, {})


@pytest.mark.parametrize("first", [1201, 1205, 1210])
async def test_reporting_every_tenth_step_gets_no_warning(directory: Path, first: int) -> None:
    async with training(directory, RESTORE) as here:
        for step in (first, first + 10, first + 20):
            assert await call(here, "POST", "/v1/progress", {**STEP, "step": step}) == (200, {})
        assert "RestorePointIgnored" not in here.sidecar.log()
        await here.direct(replace(HOLD, attempt=4))
        await until(lambda: here.supervisor.all(wire.Progress)[-1].step == first + 20)
        assert here.supervisor.all(wire.Progress)[-1].every == 10


async def test_the_slowest_ranks_own_part_of_a_step_reaches_the_supervisor_when_its_window_is_full(
    directory: Path,
) -> None:
    async with training(directory, RESTORE) as here:
        for step in range(1201, 1201 + WINDOW):
            seconds = 30.0 if step % 10 == 0 else 0.2  # Every tenth step writes a checkpoint.
            assert await call(here, "POST", "/v1/progress", {**STEP, "step": step, "seconds": seconds}) == (200, {})
        await until(lambda: here.supervisor.all(wire.Progress)[-1].step == 1200 + WINDOW)
        told = here.supervisor.all(wire.Progress)
        assert (told[0].own_ms, told[0].own_rank) == (None, None)
        assert (told[-1].own_ms, told[-1].own_rank) == (200, STEP["rank"])


async def test_the_steps_until_a_stop_reach_the_supervisor_before_it(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        for step in range(1201, 1210):
            assert await call(here, "POST", "/v1/progress", {**STEP, "step": step}) == (200, {})
        before = len(here.supervisor.all(wire.Directive))
        await here.direct(replace(HOLD, attempt=4))
        await here.supervisor.wait_for(wire.Directive, before + 1)
        stop = here.supervisor.received.index(here.supervisor.all(wire.Directive)[-1])
        steps = [one.step for one in here.supervisor.received[:stop] if isinstance(one, wire.Progress)]
        assert steps[-1] == 1209


@pytest.mark.parametrize(("seconds", "milliseconds"), [(2.5, 2500), (0, 0), (0.0004, 0), (1e9, 10**12)])
async def test_a_loading_goes_to_the_supervisor(directory: Path, seconds: float, milliseconds: int) -> None:
    async with training(directory) as here:
        assert await call(here, "POST", "/v1/checkpoints/loaded", {**LOADED, "seconds": seconds}) == (200, {})
        assert await here.supervisor.wait_for(wire.Reached) == wire.Reached(
            3, wire.Milestone.CHECKPOINT_LOAD, 0, milliseconds, rank=4
        )


async def test_the_longest_first_step_of_all_ranks_goes_to_the_supervisor_at_once(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        for rank, seconds in ((4, 0.25), (5, 0.75), (4, 9.0)):  # rank 4 does its second step
            step = {**STEP, "rank": rank, "step": 1202 if seconds == 9.0 else 1201, "seconds": seconds}
            assert await call(here, "POST", "/v1/progress", step) == (200, {})
        both = await here.supervisor.wait_for(wire.Progress, 2)
        assert [one.first_ms for one in here.supervisor.all(wire.Progress)] == [250, 750]
        assert both.first_step == 1201
        third = await here.supervisor.wait_for(wire.Progress, 3)
        assert (third.step, third.first_ms) == (1202, 750)


async def test_a_restarted_sidecar_doesnt_take_a_later_step_for_the_first(directory: Path) -> None:
    async with training(directory, RESTORE) as here:
        assert await call(here, "POST", "/v1/progress", {**STEP, "step": 5000, "seconds": 60}) == (200, {})
        assert (await here.supervisor.wait_for(wire.Progress)).first_ms is None


async def test_checkpoints_go_to_the_supervisor(directory: Path) -> None:
    async with training(directory) as here:
        for state in ("Begun", "Completed", "Dropped"):
            assert await call(here, "POST", "/v1/checkpoints", {**CHECKPOINT, "state": state}) == (200, {})
        await until(lambda: len(here.supervisor.all(wire.Dropped)) == 2)
        dropped = wire.Dropped("ram", 1300, 4, 3)
        assert here.supervisor.received[-3:] == [
            dropped,
            wire.Checkpoint("ram", 1300, 4, 3, "/dev/shm/1300"),
            dropped,
        ]


async def test_a_copy_is_registered_for_its_owner_in_the_tier_of_the_peers_only(directory: Path) -> None:
    async with training(directory) as here:
        copy = {**CHECKPOINT, "owner": 7}
        status, answer = await call(here, "POST", "/v1/checkpoints", copy)
        assert (status, answer["error"]["reason"]) == (422, "OwnerUnknown")
        assert "holds no copy for rank 7: tier ram does not have scope Peers" in answer["error"]["message"]
        assert await call(here, "POST", "/v1/checkpoints", {**copy, "tier": "near"}) == (200, {})
        told = await here.supervisor.wait_for(wire.Checkpoint)
        assert (told.tier, told.rank) == ("near", 7)


async def test_a_restarted_sidecar_takes_a_copy_before_it_knows_the_tiers(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=3, phase=wire.Phase.RUNNING)
        assert await call(here, "POST", "/v1/checkpoints", {**CHECKPOINT, "owner": 7}) == (200, {})
        assert (await here.supervisor.wait_for(wire.Checkpoint)).rank == 7


async def test_only_checkpoints_count_while_a_worker_is_being_stopped(directory: Path) -> None:
    async with training(directory) as here:
        await here.direct(replace(HOLD, attempt=4))
        for _ in range(2):  # before and after the supervisor has reported Stopping
            assert await call(here, "POST", "/v1/checkpoints", CHECKPOINT) == (200, {})
            assert await call(here, "POST", "/v1/progress", STEP) == (200, {"ignored": "AttemptEnding"})
            answer = await call(here, "POST", "/v1/restart", RESTART)
            assert answer == (202, {"incident": 4, "ignored": "AttemptEnding"})
            await here.report(attempt=4, phase=wire.Phase.STOPPING)
        assert len(here.supervisor.all(wire.Checkpoint)) == 2
        assert here.supervisor.all(wire.Progress) == []
        assert here.supervisor.all(wire.Request) == []
        await here.report(attempt=4, phase=wire.Phase.READY)
        status, answer = await call(here, "POST", "/v1/checkpoints", CHECKPOINT)
        assert status == 409
        assert answer["error"]["attempt"] == 4


async def test_a_sidecar_that_starts_in_the_middle_of_a_stop_takes_checkpoints(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(attempt=4, phase=wire.Phase.STOPPING)
        assert await call(here, "POST", "/v1/checkpoints", CHECKPOINT) == (200, {})
        assert (await here.supervisor.wait_for(wire.Checkpoint)).attempt == 3


async def test_a_sidecar_that_starts_late_serves_a_worker_without_the_controller(directory: Path) -> None:
    running = replace(REPORT, attempt=3, phase=wire.Phase.RUNNING)
    async with sidecar(directory, "ws://127.0.0.1:9/") as here, supervisor(directory, running) as below:
        await until(lambda: here.process.pid)
        async with asyncio.timeout(SECONDS):
            while (await here.call("GET", "/v1/attempt"))[0] != 200:
                pass
        assert (await here.call("GET", "/v1/attempt"))[1]["attempt"] == 3
        assert (await here.call("POST", "/v1/checkpoints", CHECKPOINT))[0] == 200
        assert (await here.call("POST", "/v1/restart", RESTART))[0] == 202
        assert (await below.wait_for(wire.Request)).level is wire.Level.POD


async def test_a_request_for_a_restart_goes_to_the_supervisor(directory: Path) -> None:
    async with training(directory) as here:
        assert await call(here, "POST", "/v1/restart", RESTART) == (202, {"incident": 4})
        expected = wire.Request(3, 0, "the loss is NaN", 4, wire.Level.POD, exclude_node=True)
        assert await here.supervisor.wait_for(wire.Request) == expected
        assert (await call(here, "POST", "/v1/restart", {**WHO, "reason": "x"}))[0] == 202
        assert (await here.supervisor.wait_for(wire.Request, 2)).level is wire.Level.PROCESS


async def test_corruption_goes_to_the_supervisor_with_the_rank_at_fault(directory: Path) -> None:
    async with training(directory) as here:
        assert await call(here, "POST", "/v1/corruption", CORRUPTION) == (202, {"incident": 4})
        assert await here.supervisor.wait_for(wire.Corruption) == wire.Corruption(3, 0, 1100, "the loss is NaN", 4)
        assert (await call(here, "POST", "/v1/corruption", {**CORRUPTION, "rankAtFault": 7}))[0] == 202
        assert (await here.supervisor.wait_for(wire.Corruption, 2)).rank == 7
        status, body = await call(here, "POST", "/v1/corruption", {**CORRUPTION, "rankAtFault": 8})
        assert (status, body["error"]["reason"], body["error"]["field"]) == (422, "RankUnknown", "body.rankAtFault")


POSTS: dict[str, dict[str, Any]] = {
    "/v1/progress": STEP,
    "/v1/checkpoints": CHECKPOINT,
    "/v1/checkpoints/loaded": LOADED,
    "/v1/joined": LOADED,
    "/v1/restart": RESTART,
    "/v1/corruption": CORRUPTION,
    "/v1/checkpoints/verified": {**WHO, "step": 1200},
}
