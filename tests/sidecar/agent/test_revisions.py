"""A controller of an older release gets no field that it doesn't know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gangsidecar import wire
from tests.sidecar.agent.sidecars import (
    REPORT,
    controller,
    sidecar,
    supervisor,
    until,
    world,
)

if TYPE_CHECKING:
    from pathlib import Path


MEASURED = replace(
    REPORT,
    loaded=wire.Loaded(1, 5, 2500, rank=4),
    progress=wire.Progress(1, 7, 5, first_step=7, first_age_ms=5, first_ms=90),
    warm_start=wire.WarmStart(1, 3, 1, "a thread", 300 << 20, "no_such (ModuleNotFoundError)"),
    killed_ms=3000,
    stacks=wire.Stacks(1, "process 7 (python)\n"),
)


async def test_a_controller_of_this_release_gets_the_frameworks_measurements(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(seq=2, loaded=MEASURED.loaded, progress=MEASURED.progress)
        told = here.connection.reports()[-1]
        assert told.loaded is not None
        assert told.loaded.milliseconds == 2500
        assert told.loaded.age_ms >= 5
        assert told.progress is not None
        assert told.progress.first_ms == 90


@pytest.mark.parametrize("revision", ["", "1", "0", "-2", "2.0", "two", "٢", "9" * 400])
async def test_an_older_controller_gets_no_field_that_it_doesnt_know(directory: Path, revision: str) -> None:
    async with controller() as above:
        above.revision = revision
        async with sidecar(directory, above.url), supervisor(directory, MEASURED):
            told = (await until((await above.connected()).reports))[0]
            assert told.loaded is None
            assert told.progress is not None
            assert (told.progress.step, told.progress.first_ms) == (7, None)
            assert told.warm_start is None
            assert told.killed_ms is None
            assert told.stacks is None


@pytest.mark.parametrize("revision", ["3", "4", "5"])
async def test_starts_and_kills_are_told_from_revision_4_on(directory: Path, revision: str) -> None:
    async with controller() as above:
        above.revision = revision
        async with sidecar(directory, above.url), supervisor(directory, MEASURED):
            told = (await until((await above.connected()).reports))[0]
            assert told.loaded is not None
            known = revision != "3"
            assert told.warm_start == (MEASURED.warm_start if known else None)
            assert told.killed_ms == (MEASURED.killed_ms if known else None)
            assert told.stacks == (MEASURED.stacks if revision == "5" else None)


async def test_a_controller_gets_everything_after_its_upgrade(directory: Path) -> None:
    async with controller() as above:
        above.revision = ""
        async with sidecar(directory, above.url), supervisor(directory, MEASURED):
            old = await above.connected()
            assert (await until(old.reports))[0].loaded is None
            above.revision = "3"
            await old.socket.close()
            told = (await until((await above.connected(2)).reports))[0]
            assert told.loaded is not None
            assert told.loaded.age_ms > 5
