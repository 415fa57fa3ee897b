"""Processes that park, and attempts whose output is searched: none goes on into one, or out of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gangsidecar.supervisor.machine import (
    Exited,
    FindPorts,
    KillTree,
    LookForRestore,
    Parkable,
    PortsFound,
    Quit,
    Refuse,
    RestoreSeen,
    Send,
    Signal,
    Spawn,
    Started,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.supervisor.machine.stop import LOG_SEARCHED, SEARCHED, STUCK_MS
from gangsidecar.wire import Phase, Ping, Restore, Source
from tests.sidecar.machine.machines import Driver, finish, hold, parked, ready, run

PATTERN = Source(pattern="step (?P<step>[0-9]+)")
RESTORE = Restore(3, "shared", "/x")


def ending(**more: Any) -> Driver:
    """Two processes have parked, and a Run has come whose output is searched."""
    driver = parked(isolation_ms=5_000)
    begin = replace(run(2, processes=2, source=PATTERN, **more), isolation_ms=5_000)
    assert driver.feed(begin) == [KillTree(), Send()]
    assert driver.phase() is Phase.STOPPING
    assert not driver.state.parked
    return driver


def test_they_end_before_the_worker_of_such_a_run_starts() -> None:
    driver = ending()
    again = driver.feed(Exited(0, signal=9), run(2, processes=2, source=PATTERN), Exited(1, signal=9))
    assert not any(isinstance(effect, Spawn) for effect in again)
    effects = driver.feed(TreeGone(), Started(), after=20)
    assert [effect.parked for effect in effects if isinstance(effect, Spawn)] == [()]
    assert driver.phase() is Phase.RUNNING
    assert not driver.report.ends
    assert driver.feed(run(2, processes=2, source=PATTERN)) == [Send()], "it starts once"


def test_its_restore_point_is_looked_for_when_they_are_gone() -> None:
    driver = ending(restore=RESTORE)
    assert driver.feed(TreeGone()) == [LookForRestore(2, RESTORE), Send()]
    assert driver.phase() is Phase.READY
    assert isinstance(driver.feed(RestoreSeen(2))[0], Spawn)


def test_a_hold_in_between_starts_nothing() -> None:
    driver = ending()
    driver.feed(hold(3))
    assert driver.feed(TreeGone()) == [FindPorts(3, 29400, 64)]


def test_the_gangs_end_in_between_starts_nothing() -> None:
    driver = ending()
    driver.feed(finish(2))
    assert Quit() in driver.feed(TreeGone())


def test_the_pods_end_in_between_starts_nothing() -> None:
    driver = ending()
    driver.feed(Terminate())
    assert driver.feed(TreeGone()) == [Send()]
    assert Quit() in driver.sleep()


def test_a_lease_that_is_over_in_between_starts_nothing() -> None:
    driver = ending()
    assert driver.feed(TreeGone(), after=5_000) == [Send()]
    assert driver.phase() is Phase.READY


def test_one_that_can_not_be_killed_is_stuck() -> None:
    driver = ending()
    driver.feed(Ping(driver.now), Tick(), after=STUCK_MS)
    assert driver.phase() is Phase.STUCK
    assert driver.feed(TreeGone()) == [Send()], "the controller has given it up"
    assert driver.phase() is Phase.READY


def test_a_file_that_is_watched_needs_no_new_process() -> None:
    effects = parked().feed(run(2, processes=2, source=Source(file="/f")))
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == (0, 1)


def test_a_process_whose_output_is_searched_is_refused_and_signalled() -> None:
    driver = ready()
    driver.feed(run(1, source=PATTERN), Started())
    assert driver.feed(Parkable(0)) == [Refuse(0, SEARCHED)]
    assert driver.feed(hold(2)) == [Signal(15), Send()]


def test_a_process_whose_output_is_searched_for_patterns_is_refused_and_signalled() -> None:
    driver = ready()
    driver.feed(run(1, log_patterns=("Xid",)), Started())
    assert driver.feed(Parkable(0)) == [Refuse(0, LOG_SEARCHED)]
    assert driver.feed(hold(2)) == [Signal(15), Send()]


def test_a_process_whose_command_keeps_it_from_it_is_refused_and_signalled() -> None:
    driver = ready()
    driver.feed(run(1), Started())
    assert driver.feed(Parkable(0, refusal="$(RANK)")) == [Refuse(0, "$(RANK)")]
    assert driver.feed(hold(2)) == [Signal(15), Send()]


def test_a_run_that_comes_again_after_its_ports_were_found_late_changes_nothing() -> None:
    driver = ending()
    assert driver.feed(PortsFound(2, (1,))) == []
