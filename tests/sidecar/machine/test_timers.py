"""What time alone does: SIGTERM of the pod, isolation, a supervisor without a controller."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
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
)
from tests.sidecar.machine.machines import GRACE, Driver, finish, hold, ready, run, running


class TestTerminate:
    def test_it_is_reported_first_and_the_worker_waits_for_the_gang(self) -> None:
        driver = running(1)
        assert driver.feed(Terminate()) == [Send()]
        assert driver.report.terminating
        assert driver.feed(Tick(), after=1_999) == []
        assert driver.feed(Tick(), after=1) == [Signal(15)]
        assert machine.deadline(driver.state) == driver.now + GRACE

    def test_the_planned_hold_gives_its_own_grace(self) -> None:
        driver = running(1)
        driver.feed(Terminate())
        assert driver.feed(hold(2, planned=True, grace_ms=120_000)) == [Signal(15), Send()]
        assert machine.deadline(driver.state) == driver.now + 120_000

    def test_when_nothing_runs_it_ends_after_two_seconds(self) -> None:
        driver = running(1)
        driver.feed(Terminate(), hold(2))
        driver.feed(Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()), after=500)
        assert driver.phase() is Phase.READY
        assert driver.feed(Tick(), after=1_999) == []
        assert driver.feed(Tick(), after=1) == [Send(), Save(), Quit()]

    def test_when_finish_comes_it_ends_at_once(self) -> None:
        driver = Driver()
        driver.feed(Terminate())
        assert Quit() in driver.feed(finish(1))

    def test_nothing_is_started_after_it(self) -> None:
        driver = ready()
        driver.feed(run(1, restore=Restore(1, "shared", "/x")), Terminate())
        assert driver.feed(RestoreSeen(1)) == []
        driver = ready()
        driver.feed(Terminate())
        assert driver.feed(run(1)) == []

    def test_without_any_directive_the_grace_is_fifteen_seconds(self) -> None:
        assert machine.GRACE_MS == 15_000

    def test_a_worker_stopped_without_a_directive_stays_running(self) -> None:
        driver = running(1)
        driver.feed(Terminate())
        driver.feed(Tick(), after=2_000)
        driver.feed(Exited(0, signal=15), TreeGone())
        assert driver.phase() is Phase.RUNNING
        assert all(end.stopped for end in driver.report.ends)


class TestIsolation:
    def isolated(self) -> Driver:
        driver = ready()
        driver.feed(replace(run(1), isolation_ms=3_000), Started())
        return driver

    def test_a_worker_is_stopped_after_that_long_without_a_ping(self) -> None:
        driver = self.isolated()
        driver.feed(Ping(), after=2_000)
        assert driver.feed(Tick(), after=2_999) == []
        assert driver.feed(Tick(), after=1) == [Signal(15)]
        driver.feed(Exited(0, exit_code=0), TreeGone())
        assert (driver.phase(), driver.report.ends[0].stopped) == (Phase.RUNNING, True)

    def test_it_never_starts_again_in_this_attempt(self) -> None:
        driver = self.isolated()
        driver.feed(Tick(), after=3_000)
        driver.feed(Exited(0, signal=15), TreeGone(), Ping())
        assert driver.feed(replace(run(1), isolation_ms=3_000)) == [Send()]

    def test_a_late_ping_does_not_undo_it(self) -> None:
        driver = self.isolated()
        assert driver.feed(Ping(), after=3_000) == [Signal(15)]

    def test_a_session_that_is_cut_off_starts_nothing_until_a_ping_arrives(self) -> None:
        driver = ready()
        late = replace(run(1), isolation_ms=3_000)
        assert driver.feed(late, after=3_000) == []
        assert isinstance(driver.feed(Ping(), late)[0], Spawn)

    def test_without_an_isolation_time_a_worker_is_never_stopped(self) -> None:
        driver = running(1)
        assert driver.feed(Tick(), after=10**9) == []
        assert machine.deadline(driver.state) is None


class TestOrphans:
    def test_without_controller_and_worker_it_ends(self) -> None:
        driver = ready()
        driver.feed(Ping(), after=100_000)
        assert driver.sleep() == [Send(), Save(), Quit()]
        assert driver.now == 1_000 + 100_000 + 600_000

    def test_a_live_worker_keeps_it(self) -> None:
        driver = running(1)
        assert driver.feed(Tick(), after=10**8) == []
        driver.feed(Exited(0, exit_code=0), TreeGone())
        assert machine.deadline(driver.state) == driver.now + 600_000

    def test_a_directive_sets_how_long(self) -> None:
        driver = Driver()
        driver.feed(hold(1, orphan_ms=77))
        assert machine.deadline(driver.state) == driver.now + 77
