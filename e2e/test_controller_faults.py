"""A controller may die or freeze at any moment, and the API server may be away: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.api_proxy import ApiProxy, Call, Fault, proxy, refusal
from e2e.controllers import LocalControllers
from e2e.failpoints import WRITE_1, WRITE_2, Failpoint, writes
from e2e.gangs import Gang, plain, sleepers
from tests.wait import until_async

Submit = Callable[[dict[str, Any]], Gang]


def started(shared_dir: Path, member: str) -> list[str]:
    """The attempts that workers of the member started for, as the workers wrote them."""
    return [line.split()[1] for line in (shared_dir / member).read_text().splitlines()]


async def assert_restarts(gang: Gang, shared_dir: Path, uids: dict[str, str], attempt: int = 2) -> None:
    """There was one restart for each attempt after the first, of all members, in the same pods, and no other.

    Each worker started once for each.
    """
    status = await asyncio.to_thread(gang.runs, attempt, 120)
    assert await asyncio.to_thread(gang.uids) == uids
    assert (len(status["incidents"]), status["restarts"]["counted"]) == (min(attempt - 1, 10), attempt - 1)
    await until_async(
        "every worker was started again", lambda: all(len(started(shared_dir, one)) >= attempt for one in uids), 60
    )
    attempts = [str(one) for one in range(1, attempt + 1)]
    assert {member: started(shared_dir, member) for member in uids} == dict.fromkeys(uids, attempts)
    masters = {(shared_dir / member).read_text().splitlines()[-1].split()[3] for member in uids}
    assert len(masters) == 1


@pytest.mark.parametrize(
    ("phase", "after"),
    [
        pytest.param(WRITE_1, False, id="before-write-1", marks=pytest.mark.nightly),
        pytest.param(WRITE_1, True, id="between-write-1-and-directives"),
        pytest.param(WRITE_2, False, id="during-the-barrier", marks=pytest.mark.nightly),
        pytest.param(WRITE_2, True, id="between-write-2-and-directives", marks=pytest.mark.nightly),
    ],
)
async def test_a_controller_killed_during_a_restart_loses_nothing_and_does_nothing_twice(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    submit: Submit,
    shared_dir: Path,
    phase: str,
    *,
    after: bool,
) -> None:
    first = await local_controllers.start("first", api_proxy.url)
    gang = await asyncio.to_thread(submit, sleepers("mid", replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    failpoint = Failpoint(lambda: first, writes(phase), after=after)
    api_proxy.faults.append(failpoint)
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    await until_async("the controller was killed", lambda: failpoint.done)
    await local_controllers.start("second", api_proxy.url)
    await assert_restarts(gang, shared_dir, uids)


@pytest.mark.nightly
async def test_a_leader_that_was_frozen_writes_nothing_after_it_thaws(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    api_server: tuple[str, str],
    machine_address: str,
    submit: Submit,
    shared_dir: Path,
) -> None:
    async with proxy(*api_server, machine_address) as beside:
        first = await local_controllers.start("first", api_proxy.url)
        gang = await asyncio.to_thread(submit, sleepers("frozen", replicas=3, directory=str(shared_dir)))
        await asyncio.to_thread(gang.runs, 1)
        uids = await asyncio.to_thread(gang.uids)
        await local_controllers.start("second", beside.url)
        await until_async("the second one stands by", lambda: any("/leases/" in call.path for call in beside.calls))
        first.freeze()
        await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
        await assert_restarts(gang, shared_dir, uids)  # the second controller does it
        api_proxy.forget()
        first.thaw()
        await until_async("the first one is awake", lambda: any("/leases/" in call.path for call in api_proxy.calls))
        await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-2"])))
        status = await asyncio.to_thread(gang.runs, 3)
        assert status["restarts"]["counted"] == 2
        written = [
            call for call in api_proxy.calls if call.method not in {"GET", "HEAD"} and "/leases/" not in call.path
        ]
        assert written == []
        assert first.process.returncode is None


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [30, 300])
async def test_an_unreachable_api_server_only_delays_a_restart(
    local_controllers: LocalControllers, api_proxy: ApiProxy, submit: Submit, shared_dir: Path, seconds: float
) -> None:
    await local_controllers.start("first", api_proxy.url)
    gang = await asyncio.to_thread(submit, sleepers("away", replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    api_proxy.leave()
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    others = [await asyncio.to_thread(process_faults.worker, uids[member]) for member in ("worker-0", "worker-2")]
    api_proxy.forget()
    await until_async("a write was tried", lambda: any("/status" in call.path for call in api_proxy.calls))
    await asyncio.sleep(seconds)  # the time without an API server is what is tested
    assert all(one.alive for one in others)
    api_proxy.come_back()
    await assert_restarts(gang, shared_dir, uids)


async def test_conflicts_broken_watches_and_expired_versions_do_not_disturb_a_restart(
    local_controllers: LocalControllers, api_proxy: ApiProxy, submit: Submit, shared_dir: Path
) -> None:
    refused: set[tuple[str, str]] = set()
    expired = [True]

    async def trouble(call: Call) -> Any:
        status = call.status_write
        if status is not None:
            what = (status.get("phase", ""), str(status.get("attempt")))
            if what not in refused:
                refused.add(what)
                return refusal(409, "Conflict", "the object has been modified")
        if call.is_watch and "/pods" in call.path and expired:
            expired.pop()
            return refusal(410, "Expired", "too old resource version")
        return None

    api_proxy.faults.append(Fault(before=trouble))
    await local_controllers.start("first", api_proxy.url)
    gang = await asyncio.to_thread(submit, sleepers("conflicts", replicas=3, directory=str(shared_dir)))
    await asyncio.to_thread(gang.runs, 1)
    uids = await asyncio.to_thread(gang.uids)
    assert api_proxy.cut_watches() > 0
    await asyncio.to_thread(lambda: process_faults.kill(process_faults.worker(uids["worker-1"])))
    await assert_restarts(gang, shared_dir, uids)
    assert {(WRITE_1, "2"), (WRITE_2, "2")} <= refused


def test_a_restart_of_etcd_does_not_disturb_a_restart_of_the_gang(lab: Any, submit: Submit, shared_dir: Path) -> None:
    gang = submit(plain("etcd", replicas=2, directory=str(shared_dir), steps=100000))
    gang.runs(1)
    uids = gang.uids()
    lab.control_plane.stop("etcd")
    lab.control_plane.start("etcd")
    process_faults.kill(process_faults.worker(uids["worker-1"]))
    status = gang.runs(2)
    assert gang.uids() == uids
    assert status["restarts"]["counted"] == 1
