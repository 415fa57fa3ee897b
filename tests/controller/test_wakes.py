from __future__ import annotations

import asyncio

import pytest

from gangctl.controller import loop
from gangctl.controller.loop import Wakes
from gangctl.controller.reports import ReportChange, ReportStore
from gangsidecar.wire import Phase, Progress
from tests.controller.fake_sidecars import report
from tests.moved_clock import MovedClock


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch)


async def test_many_late_wake_ups_cause_one_round_in_time(clock: MovedClock) -> None:
    here = Wakes()
    here.wake("g")
    here.begin(await here.new())
    for _ in range(99):
        here.wake_later("g")
        await clock.move(0.01 * loop.LATER_SECONDS)
    assert not here.is_set("g")
    await clock.move(0.02 * loop.LATER_SECONDS)
    assert here.is_set("g")
    here.begin("g")
    await clock.move(1.5 * loop.LATER_SECONDS)
    assert not here.is_set("g"), "there was one for all of them"


async def test_the_more_gangs_there_are_the_later_is_a_round_for_what_changes_all_the_time(clock: MovedClock) -> None:
    here, gangs = Wakes(), 10 * loop.LATER_ROUNDS
    for at in range(gangs):
        here.wake(f"g{at}")
        here.begin(await here.new())
    for at in range(gangs):
        here.wake_later(f"g{at}")
    await clock.move(9 * loop.LATER_SECONDS)
    assert not any(here.is_set(f"g{at}") for at in range(gangs))
    here.wake("g7")
    assert here.is_set("g7"), "a fault doesn't wait"
    await clock.move(2 * loop.LATER_SECONDS)
    assert all(here.is_set(f"g{at}") for at in range(gangs))


async def test_an_urgent_round_covers_late_wake_ups(clock: MovedClock) -> None:
    here = Wakes()
    here.wake("g")
    here.begin(await here.new())
    here.wake_later("g")
    here.wake("g")
    assert here.is_set("g"), "at once"
    here.begin("g")
    await clock.move(1.5 * loop.LATER_SECONDS)
    assert not here.is_set("g")


async def test_a_late_wake_up_does_not_reach_a_forgotten_gang(clock: MovedClock) -> None:
    here = Wakes()
    here.wake("g")
    await here.new()
    here.wake_later("g")
    here.forget("g")
    fresh = asyncio.ensure_future(here.new())
    await clock.move(1.5 * loop.LATER_SECONDS)
    assert not fresh.done()
    fresh.cancel()


def test_a_report_that_changes_more_than_the_step_changes_the_state() -> None:
    reports = ReportStore()

    def take(seq: int, progress: Progress | None, phase: Phase = Phase.RUNNING) -> ReportChange:
        return reports.add(report(seq=seq, attempt=1, progress=progress, phase=phase), 0.0)

    assert take(1, None) is ReportChange.STATE
    assert take(2, Progress(1, 5, 10, first_step=5, first_age_ms=10)) is ReportChange.STATE, (
        "the first step ends an incident"
    )
    assert take(3, Progress(1, 6, 10, first_step=5, first_age_ms=30)) is ReportChange.STEP
    assert take(4, Progress(1, 6, 90, first_step=5, first_age_ms=110)) is ReportChange.NONE
    assert take(5, Progress(1, 7, 90, "Checkpoint", first_step=5)) is ReportChange.STATE, "other deadlines hold in it"
    assert take(6, Progress(2, 8, 90, "Checkpoint", first_step=5)) is ReportChange.STATE
    assert take(7, Progress(2, 9, 90, "Checkpoint", first_step=5), phase=Phase.IDLE) is ReportChange.STATE
    reports.disconnect("uid-g", "pod-0")
    assert take(8, Progress(2, 10, 90, "Checkpoint", first_step=5), phase=Phase.IDLE) is ReportChange.STATE, (
        "it is back"
    )
