"""Processes that park: which are believed, what goes on, and when they are ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangsidecar.supervisor.machine import (
    Exited,
    FindPorts,
    Kill,
    KillTree,
    Park,
    Parkable,
    Parked,
    PortsFound,
    Send,
    Signal,
    SignalOne,
    Spawn,
    Started,
    Terminate,
    TreeGone,
)
from gangsidecar.supervisor.machine.stop import LEFTOVER_MS, NOTICE_MS
from gangsidecar.wire import Checkpoint, Phase, Watching
from tests.sidecar.machine.machines import GRACE, finish, hold, parked, run, running, stopping


def test_a_hold_tells_those_that_can_to_park_and_signals_the_others() -> None:
    driver = running(processes=3)
    driver.feed(Parkable(0), Parkable(2), Parkable(2), Parkable(7))
    effects = driver.feed(hold(2, reason="worker-3 was killed", planned=True))
    assert effects == [Park(1, (0, 2), GRACE, "worker-3 was killed", planned=True), Signal(15, (0, 2)), Send()]


def test_those_that_watch_for_the_stop_delay_only_the_signal() -> None:
    driver = running(processes=2)
    driver.feed(Parkable(0), Watching(1, 1))
    assert driver.feed(hold(2)) == [Park(1, (0,), GRACE), Send()]
    assert driver.sleep() == [Signal(15, (0,))]
    assert driver.now == 1_000 + min(NOTICE_MS, GRACE // 2)


def test_a_process_that_can_park_no_more_gets_the_signal() -> None:
    driver = running()
    driver.feed(Parkable(0), Parkable(0, can=False))
    assert driver.feed(hold(2)) == [Signal(15), Send()]


def test_a_process_that_can_park_no_more_during_the_stop_gets_the_signal_alone() -> None:
    driver = stopping(grace_ms=60_000)
    assert driver.feed(Parkable(0, can=False)) == [SignalOne(15, 0)]
    assert driver.feed(Parkable(0, can=False)) == []
    driver.feed(Parked(0, 1), Parked(1, 1))
    assert driver.state.parked == ((1, 11),)
    due = driver.now + 60_000
    assert driver.sleep() == [KillTree()]
    assert driver.now == due, "it has the whole grace"


def test_a_process_that_can_park_no_more_before_the_signal_gets_it_with_the_others() -> None:
    driver = running(processes=2)
    driver.feed(Parkable(0), Parkable(1), Watching(1, 1), hold(2))
    assert driver.feed(Parkable(0, can=False)) == []
    assert driver.sleep() == [Signal(15, (1,))]


def test_a_process_that_can_park_no_more_after_sigkill_gets_nothing() -> None:
    driver = stopping()
    driver.sleep()
    assert driver.feed(Parkable(0, can=False)) == []


@pytest.mark.parametrize("why", ["finish", "terminate", "lease", "finish at once"])
def test_only_a_hold_lets_processes_park(why: str) -> None:
    driver = running()
    driver.feed(Parkable(0))
    if why == "lease":
        driver.feed(replace(run(1), isolation_ms=5_000))
    if why == "terminate":
        driver.feed(Terminate())
    effects = driver.feed(finish(1)) if why == "finish" else driver.feed(finish(2)) if why[0] == "f" else driver.sleep()
    assert Signal(15) in effects
    assert not any(isinstance(effect, Park) for effect in effects)
    driver.feed(Parked(0, 1))
    assert not driver.state.parked


def test_a_hold_in_a_pod_that_ends_signals_all() -> None:
    driver = running()
    driver.feed(Parkable(0), Terminate())
    assert driver.feed(hold(2)) == [Signal(15), Send()]


def test_all_parked_is_ready_and_the_next_run_goes_on_with_them() -> None:
    driver = parked()
    assert not driver.report.ends
    assert driver.report.stop_ms == 0
    assert driver.report.killed_ms is None
    effects = driver.feed(run(2, processes=2), Started())
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == (0, 1)
    assert not driver.state.parked
    driver.feed(Exited(1, exit_code=3))
    end = driver.report.ends[0]
    assert (end.attempt, end.local_rank, end.stopped, end.exit_code) == (2, 1, False, 3)
    assert driver.feed(hold(3))[0] == Park(2, (0,), GRACE)


def test_some_park_and_the_others_are_started_anew() -> None:
    driver = stopping(can=1)
    driver.feed(Exited(1, signal=15), Parked(0, 1), TreeGone(), PortsFound(2, ()))
    assert [(end.local_rank, end.stopped) for end in driver.report.ends] == [(1, True)]
    effects = driver.feed(run(2, processes=2))
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == (0,)


@pytest.mark.parametrize(
    "said",
    [
        Parked(0, 0),  # an older stop
        Parked(0, 2),  # the attempt to come
        Parked(1, 1),  # it was not told to
        Parked(7, 1),  # there is no such process
    ],
)
def test_what_a_process_says_for_another_stop_changes_nothing(said: Parked) -> None:
    driver = stopping(can=1)
    before = driver.state
    assert driver.feed(said) == []
    assert driver.state == before


@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_that_says_so_without_a_stop_has_not_parked(processes: int) -> None:
    driver = running(processes=processes)
    driver.feed(*(Parkable(at) for at in range(processes)), *(Parked(at, 1) for at in range(processes)))
    assert not driver.state.parked
    assert len(driver.state.mains) == processes


def test_a_process_that_was_not_told_to_has_not_parked() -> None:
    driver = stopping(can=1)
    driver.feed(Parkable(1), Parked(1, 1), Parked(0, 0))
    assert not driver.state.parked


def test_a_process_parks_once() -> None:
    driver = stopping()
    driver.feed(Parked(0, 1), Parked(0, 1))
    assert driver.state.parked == ((0, 10),)
    assert driver.state.mains == ((1, 11),)


def test_parked_with_something_left_is_not_ready() -> None:
    driver = stopping()
    driver.feed(Parked(0, 1), Parked(1, 1), PortsFound(2, ()))
    assert driver.phase() is Phase.STOPPING
    driver.feed(run(2))
    assert driver.phase() is Phase.STOPPING


def test_what_parked_processes_leave_behind_is_killed_soon() -> None:
    driver = stopping(grace_ms=60_000)
    driver.feed(Parked(0, 1))
    due = driver.now + 60_000
    driver.feed(Exited(1, signal=15), after=10)
    assert driver.sleep() == [KillTree()]
    assert driver.now == 1_010 + LEFTOVER_MS < due
    driver.feed(TreeGone(), PortsFound(2, ()), after=5)
    assert driver.state.parked == ((0, 10),)
    assert driver.report.killed_ms is None, "its worker did end within the grace"


def test_what_a_process_leaves_behind_that_dies_instead_of_parking_is_killed_soon() -> None:
    driver = stopping(1, grace_ms=60_000)
    driver.feed(Exited(0, exit_code=1))
    assert driver.sleep() == [KillTree()]
    assert driver.now == 1_000 + LEFTOVER_MS
    driver.feed(TreeGone(), PortsFound(2, ()))
    assert driver.report.killed_ms is None


def test_a_process_that_parks_too_late_is_killed() -> None:
    driver = stopping(1)
    assert driver.sleep() == [KillTree()]
    driver.feed(Parked(0, 1))
    assert not driver.state.parked
    driver.feed(Exited(0, signal=9), TreeGone(), PortsFound(2, ()))
    assert [(end.signal, end.stopped) for end in driver.report.ends] == [(9, True)]
    assert driver.report.killed_ms == GRACE


def test_a_parked_process_that_dies_is_started_anew_and_has_no_end() -> None:
    driver = parked()
    assert driver.feed(Exited(0, exit_code=0)) == []
    assert not driver.report.ends
    effects = driver.feed(run(2, processes=2))
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == (1,)


def test_a_parked_process_that_dies_while_others_stop_has_no_end() -> None:
    driver = stopping()
    driver.feed(Parked(0, 1), Exited(0, exit_code=1), Parked(1, 1), TreeGone(), PortsFound(2, ()))
    assert not driver.report.ends
    assert driver.state.parked == ((1, 11),)


def test_a_parked_process_that_closes_its_channel_is_killed() -> None:
    driver = parked()
    assert driver.feed(Parkable(1, can=False)) == [Kill(1)]
    driver.feed(Exited(1, signal=9))
    assert driver.state.parked == ((0, 10),)
    assert driver.phase() is Phase.READY


def test_a_parked_process_that_no_run_asks_for_is_killed() -> None:
    driver = parked()
    effects = driver.feed(run(2, processes=1))
    assert effects[0] == Kill(1)
    assert isinstance(effects[1], Spawn)
    assert effects[1].parked == (0,)
    driver.feed(Exited(1, signal=9))
    assert not driver.report.ends


@pytest.mark.parametrize("session", ["s0", "s2"])
def test_no_word_to_another_session_lets_a_process_go_on(session: str) -> None:
    driver = parked()
    assert driver.feed(run(2, session, processes=2)) == []
    assert driver.feed(run(3, processes=2)) == []
    assert driver.feed(run(1, processes=2)) == []
    assert len(driver.state.parked) == 2


def test_calls_of_a_parked_process_count_no_more() -> None:
    driver = parked()
    driver.feed(Checkpoint("ram", 10, 10, 1))
    assert not driver.report.checkpoints


def test_a_new_hold_keeps_them() -> None:
    driver = parked()
    assert driver.feed(hold(3)) == [FindPorts(3, 29400, 64)]
    driver.feed(PortsFound(3, ()))
    effects = driver.feed(run(3, processes=2))
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == (0, 1)
