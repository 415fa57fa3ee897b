"""Members of a large gang are served in slices: other work of the event loop comes in between."""

from __future__ import annotations

import asyncio

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.controller import turns
from gangctl.controller.turns import SLICE, in_slices
from gangsidecar import wire
from tests.controller.fake_sidecars import held, job, report, served
from tests.wait import until_async


async def test_other_work_comes_between_slices_and_every_item_is_served_once_in_order() -> None:
    done: list[int] = []
    in_slices(iter(range(3 * SLICE + 1)), done.append)
    assert len(done) == SLICE, "the first slice is served at once, and no more"
    seen = []
    while len(done) < 3 * SLICE + 1:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert seen[:3] == [2 * SLICE, 3 * SLICE, 3 * SLICE + 1]
    assert done == list(range(3 * SLICE + 1))


async def test_a_job_that_is_published_between_slices_is_what_the_rest_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "SLICE", 2)
    told: list[tuple[str, str]] = []

    def tell(stored: GangJob, said: wire.Report) -> wire.Directive | None:
        told.append((said.pod, stored.metadata.resource_version))
        return held(stored, said)

    async with served(tell) as here:
        sidecars = [await here.dial(f"token-{at}") for at in range(5)]
        for at, sidecar in enumerate(sidecars):
            await sidecar.say(report(at))
        await until_async("all reports arrive", lambda: len(here.hub.reports.heard("uid-g")) == len(sidecars))
        here.hub.publish(job(version="1"))
        assert len(told) == turns.SLICE, "the others are told in later turns"
        here.hub.publish(job(version="2"))
        for sidecar in sidecars:
            while (await sidecar.hear()).reason != "version 2":
                pass
        last = [pod for pod, version in told if version == "1"]
        assert len(last) == turns.SLICE, "what is stored no longer is told to no member"
