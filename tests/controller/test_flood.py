"""A namespace whose pods flood the hub delays no other one. The flood comes from another process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller import intake
from gangctl.controller.gate import ConnectionRefusal
from gangctl.controller.intake import Owner
from gangsidecar import wire
from tests.controller.fake_sidecars import MEMBERS, Served, Sidecar, job, report, serving
from tests.controller.flooding import GANG, largest
from tests.wait import SECONDS, until_async

pytestmark = pytest.mark.nightly
log = logging.getLogger(__name__)

FLOODERS = 6
ROUNDS = 200
MANY, FLOOD_SECONDS = 32, 10.0
LONGEST_SECONDS = 1.0
PACE_SECONDS = 0.05
"""Between two reports of the other member; without it, it would flood as well."""
BOUND_MIB = 96
"""By how much the controller's process may grow: what each of many connections has in its buffers."""
BOUND_SECONDS = 0.25
"""Of nine of ten answers, in processor time. One largest report takes about 10 ms."""


async def known(token: str) -> MemberIdentity | Refusal:
    if token.startswith("flood-"):
        return MemberIdentity(GANG, f"worker-{token.removeprefix('flood-')}", 0, token, "team-flood")
    return MEMBERS.get(token, Refusal(RefusalReason.UNKNOWN_POD, "the token is unknown"))


@asynccontextmanager
async def flooded(here: Served, pods: int, *seconds: float) -> AsyncIterator[asyncio.StreamReader]:
    """The flood of so many pods, for so many seconds, and what it prints."""
    words = (sys.executable, "-m", "tests.controller.flooding", here.url, str(pods), *map(str, seconds))
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2], env=os.environ
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.wait()


async def answer_seconds(member: Sidecar, number: int) -> float:
    """How much processor time the hub takes until the directive to a report of a new session is there.

    So other work on the machine does not count; what the hub does before is what delays.
    """
    began = time.process_time()
    await member.say(report(session=f"session-{number}", seq=1))
    await member.hear()
    return time.process_time() - began


def resident_mib() -> float:
    """Memory of this process, in which the hub runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_the_reports_of_the_flood_are_the_largest_that_are_taken() -> None:
    text = largest(0).format(seq=1)
    assert 20_000 < len(text) <= wire.MAX_REPORT_BYTES
    assert isinstance(wire.decode(text), wire.Report)


async def test_a_flood_of_one_namespace_delays_no_other() -> None:
    async with aiohttp.ClientSession() as session, serving(session, identify=known) as here:
        here.hub.publish(job())
        async with flooded(here, FLOODERS):
            await until_async("all of them flood", lambda: len(here.hub.reports.heard(GANG)) == FLOODERS)
            member = await here.dial()  # One that is there before and reads nothing meanwhile would answer no ping.
            seconds = sorted([await answer_seconds(member, number) for number in range(ROUNDS)])
            assert seconds[ROUNDS * 9 // 10] < BOUND_SECONDS, seconds[-10:]
        await session.close()


async def test_the_pods_of_a_flood_are_paused_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # So small a share is used up on a busy machine too, where the hub itself gets a tenth of a processor.
    monkeypatch.setitem(intake.SHARES, Owner.POD, intake.LoopShare(rate=0.002, burst=0.02))
    monkeypatch.setattr(intake, "LONGEST_PAUSE", 0.2)
    async with aiohttp.ClientSession() as session, serving(session, identify=known) as here:
        here.hub.publish(job())
        async with flooded(here, FLOODERS) as printed:
            await until_async("a pod is closed", lambda: here.hub.refusals.counts[ConnectionRefusal.FLOODING])
            assert here.hub.intake.pauses[Owner.POD] >= intake.FLOOD
            async with asyncio.timeout(SECONDS):
                assert b"its pod floods the controller" in await printed.readline()
        await session.close()


async def test_thirty_two_pods_that_flood_delay_no_other_take_no_memory_and_lose_nothing() -> None:
    async with aiohttp.ClientSession() as session, serving(session, identify=known) as here:
        here.hub.publish(job())
        member = await here.dial()
        await answer_seconds(member, 0)
        before, most, seconds, newest = resident_mib(), 0.0, list[float](), dict[str, int]()

        async def read(printed: asyncio.StreamReader) -> None:
            while len(newest) < MANY:
                at, _, seq = (await printed.readline()).decode().partition(" ")
                if at.isdecimal():
                    newest[f"flood-{at}"] = int(seq)

        async with flooded(here, MANY, FLOOD_SECONDS) as printed:
            await until_async("all of them flood", lambda: len(here.hub.reports.heard(GANG)) == MANY)
            reading = asyncio.create_task(read(printed))
            while not reading.done():
                seconds.append(await answer_seconds(member, len(seconds) + 1))
                most = max(most, resident_mib())
                await asyncio.sleep(PACE_SECONDS)
            await reading
            seconds.sort()
            median, p90, longest = seconds[len(seconds) // 2], seconds[len(seconds) * 9 // 10], seconds[-1]
            text = "%d answers beside the flood of %d pods: p50 %.0f ms, p90 %.0f ms, longest %.0f ms; %.0f MiB more"
            log.info(text, len(seconds), MANY, median * 1000, p90 * 1000, longest * 1000, most - before)
            assert p90 < BOUND_SECONDS, seconds
            assert longest < LONGEST_SECONDS, "a full garbage collection may come on top"
            assert most - before < BOUND_MIB

            def are_heard() -> bool:
                return {one.report.pod: one.report.seq for one in here.hub.reports.heard(GANG)} == newest

            await until_async("the newest report of each is taken", are_heard)
        await session.close()
