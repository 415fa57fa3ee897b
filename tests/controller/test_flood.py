"""A namespace whose pods flood the hub delays no other one. The flood comes from another process."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.controller.refusals import ConnectionRefusal
from gangctl.controller.shares import Owner
from gangsidecar import wire
from tests.controller.fake_sidecars import MEMBERS, Served, Sidecar, job, report, serving
from tests.controller.flooding import GANG, largest
from tests.wait import until_async

FLOODERS = 6
ROUNDS = 200
BOUND_SECONDS = 0.25
"""Of 99 of 100 answers, on a machine that has other work as well. One largest report takes about 10 ms."""


async def known(token: str) -> MemberIdentity | Refusal:
    if token.startswith("flood-"):
        return MemberIdentity(GANG, f"worker-{token.removeprefix('flood-')}", 0, token, "team-flood")
    return MEMBERS.get(token, Refusal(RefusalReason.UNKNOWN_POD, "the token is unknown"))


@asynccontextmanager
async def flooded(here: Served) -> AsyncIterator[asyncio.StreamReader]:
    """The flood, and what it prints."""
    words = (sys.executable, "-m", "tests.controller.flooding", here.url, str(FLOODERS))
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
    """How long a report of a new session takes until its directive is there."""
    began = time.monotonic()
    await member.say(report(session=f"session-{number}", seq=1))
    await member.hear()
    return time.monotonic() - began


def test_the_reports_of_the_flood_are_the_largest_that_are_taken() -> None:
    text = largest(0).format(seq=1)
    assert 20_000 < len(text) <= wire.MAX_REPORT_BYTES
    assert isinstance(wire.decode(text), wire.Report)


async def test_a_flood_of_one_namespace_delays_no_other_and_its_pods_are_told() -> None:
    async with aiohttp.ClientSession() as session, serving(session, identify=known) as here:
        here.hub.publish(job())
        member = await here.dial()
        async with flooded(here) as printed:
            await until_async("the flood is paused", lambda: here.hub.intake.pauses[Owner.POD] > FLOODERS)
            seconds = sorted([await answer_seconds(member, number) for number in range(ROUNDS)])
            assert seconds[ROUNDS * 99 // 100] < BOUND_SECONDS, seconds[-10:]
            await until_async("a pod is closed", lambda: here.hub.refused[ConnectionRefusal.FLOODING], seconds=30)
            async with asyncio.timeout(10):
                assert b"its pod floods the controller" in await printed.readline()
        await session.close()
