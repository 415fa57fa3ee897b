"""How ends are recorded: natural or stopped, within bounds."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar import wire
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    PortsFound,
    Quit,
    Save,
    Send,
    Started,
    Terminate,
    TreeGone,
)
from gangsidecar.wire import (
    Checkpoint,
    LogMatch,
    Phase,
    Ping,
)
from tests.sidecar.machine.machines import IDENTITY, Driver, hold, run, running


def test_a_natural_end_stays_running_and_is_reported_with_rank_and_age() -> None:
    driver = running(1, processes=2)
    assert driver.feed(Exited(1, exit_code=3, message="no")) == [Send(), Save()]
    driver.now += 50
    (end,) = driver.report.ends
    assert (end.attempt, end.local_rank, end.rank, end.exit_code, end.stopped) == (1, 1, 11, 3, False)
    assert (end.age_ms, end.message) == (50, "no")
    assert driver.phase() is Phase.RUNNING


def test_a_worker_that_exits_with_0_holds_its_supervisor() -> None:
    driver = running(1)
    driver.feed(Exited(0, exit_code=0), TreeGone())
    assert driver.phase() is Phase.RUNNING
    driver.feed(Ping(), after=500_000)
    assert Quit() not in driver.effects


def test_an_end_after_a_hold_is_stopped() -> None:
    driver = running(1)
    driver.feed(hold(2), Exited(0, exit_code=0))
    assert driver.report.ends[0].stopped


def test_an_end_after_sigterm_to_the_supervisor_is_stopped() -> None:
    driver = running(1)
    driver.feed(Terminate(), Exited(0, exit_code=0))
    assert driver.report.ends[0].stopped


def test_an_end_that_was_reaped_before_the_hold_is_natural() -> None:
    driver = running(1)
    driver.feed(Exited(0, exit_code=0), hold(2))
    assert not driver.report.ends[0].stopped


def test_an_end_at_the_time_of_a_due_timer_is_natural() -> None:
    driver = running(1)
    driver.feed(replace(run(1), isolation_ms=10))
    driver.feed(Exited(0, exit_code=7), after=10)
    assert not driver.report.ends[0].stopped


def test_a_signal_excludes_an_exit_code() -> None:
    driver = running(1)
    driver.feed(Exited(0, exit_code=1, signal=9, oom=True))
    (end,) = driver.report.ends
    assert (end.exit_code, end.signal, end.oom) == (None, 9, True)


def test_an_end_of_no_known_process_is_ignored() -> None:
    driver = running(1)
    driver.feed(Exited(0, exit_code=0))
    before = driver.state
    driver.feed(Exited(0, exit_code=1), Exited(7, exit_code=1))
    assert driver.state == before


def test_ends_of_the_newest_two_attempts_are_kept_and_at_most_64() -> None:
    driver = running(1, processes=64)
    driver.feed(*(Exited(at, exit_code=1, message="x" * 10_000) for at in range(64)), TreeGone())
    for attempt in (2, 3):
        driver.feed(hold(attempt), PortsFound(attempt, ()), run(attempt, processes=40), Started())
        driver.feed(*(Exited(at, exit_code=attempt, message="x" * 10_000) for at in range(40)), TreeGone())
    told = driver.report.ends
    assert len(told) == 64
    assert sum(end.attempt == 3 for end in told) == 40
    assert sum(end.attempt == 2 for end in told) == 24
    assert len(wire.encode(driver.report)) < 64 << 10


def test_what_an_earlier_session_kept_is_reported_with_its_age() -> None:
    end = wire.End(attempt=4, local_rank=0, age_ms=300, exit_code=1)
    kept = Checkpoint("ram", 5, 0, 4, "/x")
    driver = Driver(machine.start_session(IDENTITY, "s2", 1_000, (end,), (kept,)))
    driver.now += 20
    assert driver.report.ends == (replace(end, age_ms=320),)
    assert driver.report.checkpoints == (kept,)


def test_the_first_line_of_each_pattern_is_kept_for_its_worker_alone() -> None:
    driver = running(1)
    assert driver.feed(LogMatch(1, "Xid", "Xid 79")) == [Send()]
    assert driver.feed(LogMatch(1, "Xid", "Xid 48"), LogMatch(7, "NCCL", "of another attempt")) == []
    driver.feed(Exited(0, exit_code=1), LogMatch(1, "NCCL", "NCCL WARN"), TreeGone())
    found = (LogMatch(1, "Xid", "Xid 79"), LogMatch(1, "NCCL", "NCCL WARN"))
    assert driver.report.log_matches == found
    driver.feed(hold(2), PortsFound(2, (29400,)))
    assert driver.report.log_matches == found, "the controller may not have heard them"
    driver.feed(run(2), Started(), LogMatch(1, "ECC", "late"))
    assert not driver.report.log_matches


def test_lines_are_bounded() -> None:
    driver = running(1)
    driver.feed(*(LogMatch(1, str(at), "") for at in range(20)))
    assert len(driver.report.log_matches) == wire.MAX_LOG_PATTERNS
