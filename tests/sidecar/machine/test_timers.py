"""What time alone does: SIGTERM of the pod, isolation, a supervisor without a controller."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    KillTree,
    PortsFound,
    Quit,
    RestoreSeen,
    Save,
    Send,
    Signal,
    Spawn,
    Started,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.wire import (
    Phase,
    Ping,
    Restore,
    Watching,
)
from tests.sidecar.machine.machines import GRACE, Driver, finish, hold, ready, run, running


def test_it_is_reported_first_and_the_worker_waits_for_the_gang() -> None:
    driver = running(1)
    assert driver.feed(Terminate()) == [Send()]
    assert driver.report.terminating
    assert driver.feed(Tick(), after=1_999) == []
    assert driver.feed(Tick(), after=1) == [Signal(15)]
    assert machine.deadline(driver.state) == driver.now + GRACE


def test_the_planned_hold_gives_its_own_grace() -> None:
    driver = running(1)
    driver.feed(Terminate())
    assert driver.feed(hold(2, planned=True, grace_ms=120_000)) == [Signal(15), Send()]
    assert machine.deadline(driver.state) == driver.now + 120_000


def test_when_nothing_runs_it_ends_after_two_seconds() -> None:
    driver = running(1)
    driver.feed(Terminate(), hold(2))
    driver.feed(Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()), after=500)
    assert driver.phase() is Phase.READY
    assert driver.feed(Tick(), after=1_999) == []
    assert driver.feed(Tick(), after=1) == [Send(), Save(), Quit()]


def test_when_finish_comes_it_ends_at_once() -> None:
    driver = Driver()
    driver.feed(Terminate())
    assert Quit() in driver.feed(finish(1))


def test_nothing_is_started_after_it() -> None:
    driver = ready()
    driver.feed(run(1, restore=Restore(1, "shared", "/x")), Terminate())
    assert driver.feed(RestoreSeen(1)) == []
    driver = ready()
    driver.feed(Terminate())
    assert driver.feed(run(1)) == []


def test_without_any_directive_the_grace_is_fifteen_seconds() -> None:
    assert machine.GRACE_MS == 15_000


def test_a_worker_stopped_without_a_directive_stays_running() -> None:
    driver = running(1)
    driver.feed(Terminate())
    driver.feed(Tick(), after=2_000)
    driver.feed(Exited(0, signal=15), TreeGone())
    assert driver.phase() is Phase.RUNNING
    assert all(end.stopped for end in driver.report.ends)


def isolated() -> Driver:
    driver = ready()
    driver.feed(replace(run(1), isolation_ms=3_000), Started())
    return driver


def test_a_worker_is_stopped_after_that_long_without_a_ping() -> None:
    driver = isolated()
    driver.feed(Ping(heard_ms=driver.now + 2_000), after=2_000)
    assert driver.feed(Tick(), after=2_999) == []
    assert driver.feed(Tick(), after=1) == [Signal(15)]
    driver.feed(Exited(0, exit_code=0), TreeGone())
    assert (driver.phase(), driver.report.ends[0].stopped) == (Phase.RUNNING, True)


def test_it_never_starts_again_in_this_attempt() -> None:
    driver = isolated()
    driver.feed(Tick(), after=3_000)
    driver.feed(Exited(0, signal=15), TreeGone(), Ping(driver.now))
    assert driver.feed(replace(run(1), isolation_ms=3_000)) == [Send()]


def test_a_late_ping_does_not_undo_it() -> None:
    driver = isolated()
    assert driver.feed(Ping(driver.now + 3_000), after=3_000) == [Signal(15)]


def test_a_lease_counts_from_when_the_report_was_sent_that_a_ping_answers() -> None:
    driver = isolated()
    sent = driver.report.sent_ms
    driver.feed(Ping(heard_ms=sent), after=2_900)
    assert driver.feed(Tick(), after=100) == [Signal(15)]


def test_a_ping_that_answers_no_report_prolongs_no_lease() -> None:
    driver = isolated()
    driver.feed(Ping(heard_ms=0), after=2_000)
    assert driver.feed(Tick(), after=1_000) == [Signal(15)]


def test_a_ping_that_answers_an_older_report_takes_nothing_back() -> None:
    driver = isolated()
    first = driver.report.sent_ms
    driver.feed(Tick(), after=2_000)
    driver.feed(Ping(heard_ms=driver.report.sent_ms), Ping(heard_ms=first))
    assert driver.feed(Tick(), after=2_999) == []
    assert driver.feed(Tick(), after=1) == [Signal(15)]


def test_a_time_of_before_the_machine_was_restarted_prolongs_no_lease() -> None:
    driver = isolated()
    driver.feed(Ping(heard_ms=10**9), after=2_000)
    assert driver.feed(Tick(), after=1_000) == [Signal(15)]


def test_a_restore_point_that_is_found_after_the_lease_starts_nothing() -> None:
    driver = ready()
    driver.feed(replace(run(1, restore=Restore(1, "shared", "/x")), isolation_ms=3_000))
    assert driver.feed(RestoreSeen(1), after=3_000) == []


def test_other_timers_count_only_if_their_number_is_not_older() -> None:
    driver = ready()
    driver.feed(replace(run(1), isolation_ms=3_000, fencing=4), Started())
    driver.feed(replace(run(1), isolation_ms=9_000, fencing=3))
    assert driver.report.fencing == 4
    assert driver.feed(Tick(), after=3_000) == [Signal(15)]


def test_a_report_returns_the_number_of_the_timers_that_count() -> None:
    driver = ready()
    driver.feed(replace(run(1), isolation_ms=3_000, fencing=4), Started())
    driver.feed(replace(run(1), isolation_ms=9_000, fencing=5))
    assert driver.report.fencing == 5
    assert driver.feed(Tick(), after=8_999) == []


def test_a_session_that_is_cut_off_starts_nothing_until_a_ping_arrives() -> None:
    driver = ready()
    late = replace(run(1), isolation_ms=3_000)
    assert driver.feed(late, after=3_000) == []
    assert isinstance(driver.feed(Ping(driver.now), late)[0], Spawn)


def test_without_an_isolation_time_a_worker_is_never_stopped() -> None:
    driver = running(1)
    assert driver.feed(Tick(), after=10**9) == []
    assert machine.deadline(driver.state) is None


def test_without_controller_and_worker_it_ends() -> None:
    driver = ready()
    driver.feed(Ping(), after=100_000)
    assert driver.sleep() == [Send(), Save(), Quit()]
    assert driver.now == 1_000 + 100_000 + 600_000


def test_a_live_worker_keeps_it() -> None:
    driver = running(1)
    assert driver.feed(Tick(), after=10**8) == []
    driver.feed(Exited(0, exit_code=0), TreeGone())
    assert machine.deadline(driver.state) == driver.now + 600_000


def test_a_directive_sets_how_long() -> None:
    driver = Driver()
    driver.feed(hold(1, orphan_ms=77))
    assert machine.deadline(driver.state) == driver.now + 77


def test_who_wants_to_hear_of_a_stop_first_has_a_moment_before_the_signal() -> None:
    driver = running(1)
    driver.feed(Watching(1, 1))
    assert driver.feed(hold(2, grace_ms=3_000)) == [Send()]
    assert driver.feed(Tick(), after=499) == []
    assert driver.feed(Tick(), after=1) == [Signal(15)]
    assert driver.feed(Tick(), after=2_499) == []
    assert driver.feed(Tick(), after=1) == [KillTree()], "the moment is part of the grace"
    driver.feed(Exited(0, signal=9), TreeGone(), PortsFound(2, ()))
    assert driver.report.killed_ms == 3_000


def test_the_signal_comes_once_and_as_soon_as_no_reader_is_left() -> None:
    driver = running(1)
    driver.feed(Watching(1, 2), hold(2))
    assert driver.feed(Watching(1, 1), after=10) == []
    assert driver.feed(Watching(1, 0), after=10) == [Signal(15)]
    assert driver.feed(Watching(1, 0), Watching(1, 1), after=10) == []
    assert machine.deadline(driver.state) == driver.now - 30 + GRACE


def test_an_end_while_the_signal_waits_comes_after_the_stop() -> None:
    driver = running(1)
    driver.feed(Watching(1, 1), hold(2), Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()))
    assert (driver.phase(), driver.report.ends[-1].stopped) == (Phase.READY, True)


def test_readers_of_another_attempt_delay_no_signal() -> None:
    driver = running(1)
    driver.feed(Watching(1, 1), hold(2), Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()))
    driver.feed(run(2), Started(), Watching(1, 1))
    assert Signal(15) in driver.feed(hold(3))


def test_a_stop_without_a_grace_kills_at_once_though_it_is_waited_for() -> None:
    driver = running(1)
    driver.feed(Watching(1, 1), hold(2, grace_ms=0))
    assert driver.feed(Tick()) == [KillTree()]
    assert driver.feed(Watching(1, 0)) == [], "nothing is left to be signalled"
