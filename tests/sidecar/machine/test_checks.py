"""Checks: one runs at a time while Ready, and nothing of it is left before anything else runs."""

from __future__ import annotations

from gangsidecar.supervisor.machine import CheckEnded, KillTree, PortsFound, RunCheck, Send, Spawn, Terminate, TreeGone
from gangsidecar.wire import Check, Checked, Phase, Ping
from tests.sidecar.machine.machines import Driver, finish, hold, ready, run


def check(turn: int = 1, attempt: int = 1, name: str = "disk", timeout_ms: int = 5_000) -> Check:
    return Check(attempt, turn, name, timeout_ms, command=("true",))


def checking(turn: int = 1) -> Driver:
    driver = ready()
    assert driver.feed(check(turn)) == [RunCheck(check(turn))]
    return driver


def test_a_check_reports_how_it_ended_when_nothing_of_it_is_left() -> None:
    driver = checking()
    assert driver.feed(CheckEnded(1, exit_code=1, detail="slow disk"), after=70) == [KillTree()]
    assert not driver.report.checks
    assert driver.feed(TreeGone()) == [Send()]
    assert driver.report.checks == (Checked(1, 1, "disk", 70, exit_code=1, detail="slow disk"),)
    assert driver.phase() is Phase.READY


def test_each_turn_is_run_once() -> None:
    driver = checking()
    assert driver.feed(check()) == []
    driver.feed(CheckEnded(1, exit_code=0), TreeGone())
    assert driver.feed(check()) == [Send()]
    assert driver.feed(check(2)) == [RunCheck(check(2))]


def test_a_check_that_takes_too_long_is_killed_and_says_its_last_line() -> None:
    driver = checking()
    assert driver.sleep() == [KillTree()]
    assert driver.now == 6_000
    driver.feed(CheckEnded(1, signal=9, detail="waits for rank 0"))
    driver.feed(TreeGone())
    assert driver.report.checks == (Checked(1, 1, "disk", 5_000, detail="waits for rank 0"),)


def test_a_check_that_survives_sigkill_is_stuck() -> None:
    driver = checking()
    driver.sleep()
    driver.sleep()
    assert driver.phase() is Phase.STUCK


def test_the_next_attempt_ends_the_check_and_forgets_it() -> None:
    driver = checking()
    driver.feed(CheckEnded(1, exit_code=1))
    assert KillTree() not in driver.feed(hold(2))  # It is being killed already.
    assert driver.phase() is Phase.STOPPING
    driver.feed(TreeGone())
    driver.feed(PortsFound(2, (29400,)))
    assert (driver.phase(), driver.report.checks) == (Phase.READY, ())
    assert driver.feed(check()) == []  # Of the attempt before.


def test_run_waits_until_nothing_of_the_check_is_left() -> None:
    driver = checking()
    assert KillTree() in driver.feed(run(1))
    assert driver.phase() is Phase.STOPPING
    effects = driver.feed(TreeGone())
    assert [type(one) for one in effects[:1]] == [Spawn]
    assert driver.report.checks == ()
    assert driver.feed(check(2)) == []


def test_finish_ends_the_check() -> None:
    driver = checking()
    assert KillTree() in driver.feed(finish(1))
    driver.feed(TreeGone())
    assert driver.phase() is Phase.DONE


def test_a_pod_that_is_to_end_begins_no_check_and_ends_the_one_that_runs() -> None:
    driver = ready()
    driver.feed(Terminate())
    assert driver.feed(check()) == []
    driver = checking()
    driver.feed(Terminate())
    assert driver.sleep() == [KillTree()]
    driver.feed(TreeGone())
    assert not driver.report.checks


def test_a_later_turn_ends_the_check_and_runs_when_it_is_gone() -> None:
    driver = checking()
    assert driver.feed(check(2)) == [KillTree()]
    assert driver.feed(check(1)) == []
    assert driver.feed(CheckEnded(1, signal=9)) == []
    assert driver.feed(TreeGone()) == [RunCheck(check(2)), Send()]
    assert driver.report.checks == ()


def test_a_lease_that_ends_ends_the_check_without_a_result() -> None:
    driver = Driver()
    driver.feed(hold(1, isolation_ms=2_000))
    driver.feed(PortsFound(1, (29400,)))
    driver.feed(check())
    assert driver.sleep() == [KillTree()]
    driver.feed(Ping(driver.now), TreeGone())
    assert (driver.phase(), driver.report.checks) == (Phase.READY, ())


def test_a_check_needs_a_supervisor_that_is_ready_for_its_attempt() -> None:
    driver = Driver()
    assert driver.feed(check()) == []
    driver.feed(hold(1))
    assert driver.feed(check()) == []
    driver.feed(PortsFound(1, (29400,)))
    assert driver.feed(check(attempt=2)) == []
    driver.feed(run(1))
    assert driver.feed(check()) == []
