"""A directive asks for the stacks of a worker that hangs: nothing ends it before, and nothing waits long for them."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    KillTree,
    Park,
    Parkable,
    PortsFound,
    Send,
    Signal,
    StacksTaken,
    Started,
    TakeStacks,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.wire import Phase, Stacks, Watching
from tests.sidecar.machine.machines import Driver, finish, hold, run, running

LONG = 10_000
TEXT = "process 7 (python)\n"


def hung(grace_ms: int = LONG) -> Driver:
    """The stacks of attempt 1 are being taken."""
    driver = running(1)
    by_ms = driver.now + min(1_500, grace_ms // 2)
    assert driver.feed(hold(2, stacks=True, grace_ms=grace_ms)) == [TakeStacks(1, by_ms), Send()]
    assert driver.phase() is Phase.STOPPING
    return driver


def test_the_worker_hears_of_the_stop_when_the_stacks_of_all_workers_are_there() -> None:
    driver = hung()
    assert driver.feed(Tick(), after=300) == []
    assert driver.feed(StacksTaken(1, TEXT)) == []
    assert driver.report.stacks is None, "or the sidecar would tell of the stop"
    assert driver.feed(Tick(), after=1_199) == []
    assert driver.feed(Tick(), after=1) == [Signal(15), Send()]
    assert driver.report.stacks == Stacks(1, TEXT)
    assert machine.deadline(driver.state) == driver.now - 1_500 + LONG, "the grace counts from the directive"


def test_the_stop_goes_on_without_stacks_when_their_time_is_over() -> None:
    driver = hung()
    assert driver.feed(Tick(), after=1_499) == []
    assert driver.feed(Tick(), after=1) == [Signal(15), Send()]
    assert driver.report.stacks == Stacks(1, ""), "so the sidecar knows it"


def test_stacks_that_come_late_are_reported_and_signal_nothing_twice() -> None:
    driver = hung()
    driver.feed(Tick(), after=1_500)
    assert driver.feed(StacksTaken(1, TEXT), after=1) == [Send()]
    driver.feed(Exited(0, signal=15), TreeGone(), PortsFound(2, ()))
    assert driver.feed(StacksTaken(1, TEXT)) == [Send()]
    assert driver.phase() is Phase.READY
    assert driver.report.stacks == Stacks(1, TEXT)


def test_half_of_a_short_grace_is_left_for_the_stop() -> None:
    driver = hung(grace_ms=1_000)
    assert driver.feed(Tick(), after=500) == [Signal(15), Send()]
    assert driver.feed(Tick(), after=500) == [KillTree()]


def test_without_a_grace_nothing_is_looked_at() -> None:
    driver = running(1)
    assert driver.feed(hold(2, stacks=True, grace_ms=0), Tick()) == [Signal(15), Send(), KillTree()]


def test_readers_are_waited_for_after_the_stacks_and_not_before() -> None:
    driver = running(1)
    driver.feed(Watching(1, 1), hold(2, stacks=True, grace_ms=LONG))
    assert driver.feed(Watching(1, 0), Watching(1, 1), after=100) == [], "the stacks are not there yet"
    assert driver.feed(StacksTaken(1, TEXT)) == []
    assert driver.feed(Watching(1, 0), Watching(1, 1), after=100) == [], "those of the others may not be"
    assert driver.feed(Tick(), after=1_300) == [Send()]
    assert driver.feed(Watching(1, 0), after=100) == [Signal(15)]


def test_a_process_is_told_to_park_only_after_its_stacks_are_taken() -> None:
    driver = running(1)
    driver.feed(Parkable(0), hold(2, stacks=True, grace_ms=LONG))
    assert driver.feed(StacksTaken(1, TEXT), after=500) == []
    assert driver.feed(Tick(), after=1_000) == [Park(1, (0,), LONG - 1_500), Signal(15, (0,)), Send()]


def test_a_finish_meanwhile_lets_nothing_park() -> None:
    driver = running(1)
    driver.feed(Parkable(0), hold(2, stacks=True, grace_ms=LONG))
    driver.feed(replace(finish(2), grace_ms=LONG), StacksTaken(1, TEXT), after=100)
    assert driver.feed(Tick(), after=1_400) == [Signal(15), Send()]


def test_a_shorter_grace_meanwhile_kills_in_time() -> None:
    driver = hung()
    driver.feed(hold(2, stacks=True, grace_ms=200), after=100)
    assert driver.feed(Tick(), after=100) == [KillTree()]
    assert driver.feed(StacksTaken(1, TEXT)) == [Send()], "and SIGTERM is of no use any more"


def test_a_worker_that_ends_while_it_is_looked_at_was_stopped() -> None:
    driver = hung()
    driver.feed(Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()))
    assert (driver.phase(), driver.report.ends[-1].stopped) == (Phase.READY, True)


def test_stacks_of_an_older_worker_are_told_no_more_when_the_next_one_runs() -> None:
    driver = hung()
    driver.feed(StacksTaken(1, TEXT), Exited(0, signal=15), TreeGone(), PortsFound(2, ()))
    assert driver.report.stacks is not None
    driver.feed(run(2), Started(), StacksTaken(1, TEXT))
    assert driver.report.stacks is None


def test_the_kubelets_sigterm_meanwhile_stops_the_worker_no_later() -> None:
    driver = hung()
    driver.feed(Terminate(), after=100)
    assert driver.feed(Tick(), after=1_400) == [Signal(15), Send()]


def test_a_hold_without_the_wish_takes_nothing() -> None:
    assert running(1).feed(hold(2)) == [Signal(15), Send()]
