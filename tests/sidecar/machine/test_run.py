"""When a Run starts a worker, and with which checkpoints."""

from __future__ import annotations

from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    LookForRestore,
    PortsFound,
    RestoreMissing,
    RestoreSeen,
    Save,
    Send,
    Spawn,
    Started,
    Terminate,
    TreeGone,
)
from gangsidecar.wire import (
    Phase,
    Restore,
)
from tests.sidecar.machine.machines import IDENTITY, Driver, hold, ready, restarted, run, running


def test_a_run_starts_the_worker_of_a_ready_session() -> None:
    driver = ready()
    directive = run(1)
    assert directive.run is not None
    assert driver.feed(directive) == [Spawn(1, directive.run), Save()]
    assert driver.feed(Started(), after=7) == [Send()]
    assert (driver.phase(), driver.report.phase_age_ms) == (Phase.RUNNING, 0)


def test_another_session_refuses_a_run() -> None:
    driver = ready()
    assert driver.feed(run(1, session="s0")) == []
    assert driver.phase() is Phase.READY
    assert driver.feed(run(1))[0] == Spawn(1, run(1).run)  # type: ignore[arg-type]


def test_a_session_that_isnt_ready_refuses_a_run() -> None:
    driver = Driver()
    assert driver.feed(run(1)) == []
    assert driver.report.attempt == 0
    driver = running(1)
    driver.feed(hold(2))
    assert driver.feed(run(2)) == []


def test_a_session_that_is_ready_at_another_attempt_refuses_a_run() -> None:
    driver = ready(1)
    assert driver.feed(run(2)) == []


def test_a_later_session_of_the_pod_does_not_start_the_attempt_again() -> None:
    driver = Driver(machine.start_session(IDENTITY, "s2", 1_000, ran=3))
    driver.feed(hold(3), PortsFound(3, ()))
    assert driver.feed(run(3, "s2")) == []
    driver.feed(hold(4), PortsFound(4, ()))
    assert isinstance(driver.feed(run(4, "s2"))[0], Spawn)


def test_a_run_starts_a_worker_at_most_once() -> None:
    driver = running(1)
    driver.feed(Exited(0, exit_code=1), TreeGone())
    assert driver.feed(run(1)) == [Send()]


def test_a_run_looks_for_its_restore_point_first() -> None:
    driver = ready()
    restore = Restore(40, "shared", "/ckpt/step-40")
    assert driver.feed(run(1, restore=restore)) == [LookForRestore(1, restore)]
    assert driver.phase() is Phase.READY
    assert isinstance(driver.feed(RestoreSeen(1))[0], Spawn)


def test_a_run_doesnt_look_for_a_restore_point_without_a_path() -> None:
    assert isinstance(ready().feed(run(1, restore=Restore(40, "ram")))[0], Spawn)


def test_a_missing_restore_point_starts_nothing_and_is_reported() -> None:
    driver = ready()
    driver.feed(run(1, restore=Restore(40, "shared", "/ckpt/step-40")))
    assert driver.feed(RestoreMissing(1)) == [Send()]
    assert (driver.phase(), driver.report.missing_step) == (Phase.READY, 40)
    assert driver.feed(RestoreSeen(1)) == []
    driver.feed(hold(2), PortsFound(2, ()))
    assert (driver.report.missing_step, driver.report.missing_attempt) == (40, 1)
    assert not driver.report.missing_folder
    driver.feed(run(2))
    assert (driver.report.missing_step, driver.report.missing_attempt) == (None, 0)


def test_a_restore_point_whose_folder_is_missing_is_reported_as_such_until_the_next_run() -> None:
    driver = ready()
    driver.feed(run(1, restore=Restore(40, "shared", "/ckpt/step-40")), RestoreMissing(1, in_folder=False))
    assert (driver.report.missing_step, driver.report.missing_folder) == (40, True)
    driver.feed(hold(2), PortsFound(2, ()))
    assert driver.report.missing_folder
    driver.feed(run(2))
    assert not driver.report.missing_folder


def test_an_answer_to_an_older_look_starts_nothing() -> None:
    driver = ready()
    restore = Restore(40, "shared", "/ckpt/step-40")
    driver.feed(run(1, restore=restore), hold(2), PortsFound(2, ()), run(2, restore=restore))
    assert driver.feed(RestoreSeen(1)) == []
    assert isinstance(driver.feed(RestoreSeen(2))[0], Spawn)


def test_a_pod_that_was_told_to_end_starts_nothing_when_its_restore_point_is_seen() -> None:
    driver = ready()
    driver.feed(run(1, restore=Restore(40, "shared", "/ckpt/step-40")), Terminate())
    assert driver.feed(RestoreSeen(1)) == []
    assert driver.phase() is Phase.READY


def test_registrations_above_the_restore_point_are_dropped() -> None:
    driver = restarted(1)
    effects = driver.feed(run(2, restore=Restore(10, "ram"), checkpointed=True))
    assert isinstance(effects[0], Spawn)
    assert Save() in effects
    assert [one.step for one in driver.report.checkpoints] == [10]


def test_a_start_from_the_beginning_drops_all_registrations() -> None:
    driver = restarted(1)
    driver.feed(run(2, checkpointed=True))
    assert driver.report.checkpoints == ()


def test_registrations_stay_if_the_job_has_no_checkpoint_tiers() -> None:
    driver = restarted(1)
    driver.feed(run(2))
    assert [one.step for one in driver.report.checkpoints] == [20, 10]
