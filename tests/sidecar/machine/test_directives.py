"""Which directives a supervisor obeys; Hold and Finish."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    FindPorts,
    KillTree,
    PortsFound,
    Quit,
    Save,
    Send,
    Signal,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.wire import (
    Phase,
)
from tests.sidecar.machine.machines import GRACE, Driver, finish, hold, ready, run, running


def test_an_older_directive_changes_nothing() -> None:
    driver = running(3)
    for old in (hold(3), run(2), finish(2), hold(1)):
        before = driver.state
        assert driver.feed(old) == []
        assert driver.state == before


def test_the_same_directive_again_only_sends_a_report() -> None:
    driver = running(3)
    before = driver.state
    assert driver.feed(run(3)) == [Send()]
    assert driver.state == before


def test_the_same_directive_again_may_carry_newer_timers() -> None:
    driver = running(1)
    driver.feed(replace(run(1), isolation_ms=5_000, orphan_ms=9))
    assert driver.state.orphan_ms == 9
    assert machine.deadline(driver.state) == 1_000 + 5_000


def test_a_directive_for_another_gang_or_pod_is_ignored() -> None:
    driver = ready()
    before = driver.state
    assert driver.feed(replace(hold(9), gang="g2"), replace(hold(9), pod="p2")) == []
    assert driver.state == before


def test_no_directive_is_obeyed_after_finish() -> None:
    driver = running(1)
    driver.feed(finish(1))
    assert driver.feed(hold(2)) == []
    assert driver.report.attempt == 1


def test_a_new_session_is_idle_at_attempt_zero() -> None:
    report = Driver().report
    assert (report.phase, report.attempt, report.session) == (Phase.IDLE, 0, "s1")


def test_with_nothing_running_it_is_ready_as_soon_as_ports_are_found() -> None:
    driver = Driver()
    assert driver.feed(hold(1, base_port=5, port_count=7)) == [FindPorts(1, 5, 7)]
    assert driver.phase() is not Phase.READY
    assert driver.feed(PortsFound(1, (6, 7))) == [Send()]
    assert (driver.phase(), driver.report.ports, driver.report.stop_ms) == (Phase.READY, (6, 7), None)


def test_ports_of_an_older_hold_do_not_make_ready() -> None:
    driver = Driver()
    driver.feed(hold(1), hold(2), PortsFound(1, (6,)))
    assert driver.phase() is not Phase.READY


def test_ports_that_are_free_later_are_reported_while_the_worker_waits() -> None:
    driver = Driver()
    driver.feed(hold(1), PortsFound(1, ()))
    assert (driver.phase(), driver.report.ports) == (Phase.READY, ())
    assert driver.feed(PortsFound(1, (6,)), after=9) == [Send()]
    assert (driver.phase(), driver.report.ports, driver.report.phase_age_ms) == (Phase.READY, (6,), 9)
    assert driver.feed(PortsFound(1, (7,))) == []
    driver.feed(hold(2), PortsFound(1, (8,)))
    assert driver.report.ports == ()


def test_a_worker_gets_sigterm_then_grace_then_sigkill() -> None:
    driver = running(1)
    assert driver.feed(hold(2)) == [Signal(15), Send()]
    assert driver.phase() is Phase.STOPPING
    assert machine.deadline(driver.state) == driver.now + GRACE
    assert driver.feed(Tick(), after=GRACE - 1) == []
    assert driver.feed(Tick(), after=1) == [KillTree()]
    driver.feed(Exited(0, signal=9))
    assert driver.phase() is Phase.STOPPING
    driver.feed(TreeGone(), PortsFound(2, ()))
    assert driver.phase() is Phase.READY


def test_ready_waits_for_descendants_that_outlive_the_main_process() -> None:
    driver = running(1)
    driver.feed(hold(2), Exited(0, exit_code=0))
    assert driver.phase() is Phase.STOPPING
    assert driver.sleep() == [KillTree()]
    assert FindPorts(2, 29400, 64) in driver.feed(TreeGone())


def test_what_a_worker_left_behind_is_killed_without_grace() -> None:
    driver = running(1)
    driver.feed(Exited(0, signal=11))
    assert driver.feed(hold(2)) == [KillTree(), Send()]


def test_a_process_that_survives_sigkill_for_ten_seconds_is_stuck_and_ready_once_gone() -> None:
    driver = running(1)
    driver.feed(hold(2))
    driver.feed(Tick(), after=GRACE)
    assert driver.sleep() == [Send()]
    assert driver.now == 1_000 + GRACE + 10_000
    assert driver.phase() is Phase.STUCK
    assert machine.deadline(driver.state) is None
    driver.feed(TreeGone(), PortsFound(2, ()))
    assert driver.phase() is Phase.READY


def test_a_newer_hold_can_only_bring_sigkill_nearer() -> None:
    driver = running(1)
    driver.feed(hold(2))
    driver.feed(hold(3, grace_ms=60_000))
    assert machine.deadline(driver.state) == driver.now + GRACE
    driver.feed(hold(4, grace_ms=10))
    assert machine.deadline(driver.state) == driver.now + 10


def test_stop_ms_counts_from_the_directive_to_the_last_process_gone() -> None:
    driver = running(1)
    driver.feed(hold(2))
    driver.feed(Exited(0, signal=15), after=30)
    driver.feed(TreeGone(), after=12)
    driver.feed(PortsFound(2, ()), after=5)
    assert driver.report.stop_ms == 42
    assert driver.report.phase_age_ms == 5


def test_killed_ms_tells_who_outlived_the_grace_and_no_other() -> None:
    driver = running(1)
    driver.feed(hold(2))
    driver.feed(Tick(), after=GRACE)
    driver.feed(Exited(0, signal=9), TreeGone(), PortsFound(2, ()), after=7)
    assert (driver.report.killed_ms, driver.report.stop_ms) == (GRACE, GRACE + 7)
    driver.feed(hold(3), PortsFound(3, ()))
    assert driver.report.killed_ms is None, "nothing was stopped for this one"
    ended_in_time, left_a_child = running(1), running(1)
    ended_in_time.feed(hold(2))
    ended_in_time.feed(Exited(0, signal=15), TreeGone(), PortsFound(2, ()), after=GRACE - 1)
    left_a_child.feed(Exited(0, signal=11), hold(2), TreeGone(), PortsFound(2, ()))
    assert (ended_in_time.report.killed_ms, left_a_child.report.killed_ms) == (None, None)


def test_with_nothing_running_it_ends_at_once() -> None:
    driver = ready()
    assert driver.feed(finish(1)) == [Send(), Save(), Quit()]
    assert driver.phase() is Phase.DONE


def test_it_stops_the_worker_with_grace_and_then_ends() -> None:
    driver = running(1)
    assert driver.feed(finish(1)) == [Signal(15), Send()]
    driver.feed(Exited(0, exit_code=0))
    assert driver.report.ends[0].stopped
    assert driver.feed(TreeGone()) == [Send(), Save(), Quit()]


def test_after_done_nothing_happens_any_more() -> None:
    driver = ready()
    driver.feed(finish(1))
    before = driver.state
    assert driver.feed(hold(5), Terminate(), Tick(), TreeGone(), after=10**9) == []
    assert driver.state == before
    assert machine.deadline(driver.state) is None
