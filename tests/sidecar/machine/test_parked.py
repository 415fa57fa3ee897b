"""Parked processes: when they are ended though no Run has come, and what a Run in between does."""

from __future__ import annotations

from dataclasses import replace

from gangsidecar.supervisor.machine import (
    Exited,
    KillTree,
    Parkable,
    Parked,
    PortsFound,
    Quit,
    RestoreMissing,
    RestoreSeen,
    Spawn,
    Started,
    Terminate,
    Tick,
    TreeGone,
    lasting_checkpoints,
)
from gangsidecar.supervisor.machine.stop import PARKED_MS, STUCK_MS
from gangsidecar.wire import Checkpoint, Phase, Ping, Restore
from tests.sidecar.machine.machines import Driver, finish, hold, parked, ready, run, stopping


def ended(driver: Driver, effects: list[object]) -> None:
    """The parked processes are being killed; nothing may start before they are gone."""
    assert KillTree() in effects
    assert driver.phase() is Phase.STOPPING
    assert not driver.state.parked
    assert not any(isinstance(effect, Spawn) for effect in driver.feed(run(2, processes=2)))
    driver.feed(Exited(0, signal=9), Exited(1, signal=9))
    assert not driver.report.ends


def test_finish_ends_them() -> None:
    driver = parked()
    ended(driver, list(driver.feed(finish(2))))
    assert Quit() in driver.feed(TreeGone())


def test_the_pods_end_ends_them() -> None:
    driver = parked()
    ended(driver, list(driver.feed(Terminate())))
    driver.feed(TreeGone(), PortsFound(2, ()))
    assert Quit() in driver.sleep()


def test_the_pods_end_during_the_stop_ends_them_when_all_have_parked() -> None:
    driver = stopping()
    driver.feed(Parked(0, 1), Terminate(), Parked(1, 1))
    ended(driver, list(driver.feed(TreeGone())))


def test_without_a_run_they_end_after_a_while() -> None:
    driver = parked()
    stopped = driver.report.stop_ms
    driver.state = replace(driver.state, orphan_ms=10 * PARKED_MS)
    began = driver.now
    ended(driver, list(driver.sleep()))
    assert driver.now == began + PARKED_MS
    driver.feed(TreeGone(), PortsFound(2, ()), after=3)
    assert driver.phase() is Phase.READY
    assert driver.report.stop_ms == stopped, "no worker was stopped"
    effects = driver.feed(run(2, processes=2))
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == ()


def test_they_end_when_the_pod_is_cut_off() -> None:
    driver = parked(isolation_ms=5_000)
    driver.feed(Ping(driver.now + 0))
    began = driver.now
    ended(driver, list(driver.sleep()))
    assert driver.now == began + 5_000


def test_they_end_before_a_supervisor_without_a_controller_does() -> None:
    driver = parked(orphan_ms=5_000)
    ended(driver, list(driver.sleep()))
    assert Quit() in driver.feed(TreeGone(), PortsFound(2, ()))


def test_they_end_when_another_process_is_stuck() -> None:
    driver = stopping()
    driver.feed(Parked(0, 1))
    driver.sleep()
    assert driver.state.parked
    driver.feed(Tick(), after=STUCK_MS)
    assert driver.phase() is Phase.STUCK
    assert not driver.state.parked


def looking() -> Driver:
    driver = parked()
    driver.feed(run(2, processes=2, restore=Restore(3, "shared", "/x")))
    assert driver.state.looking
    return driver


def test_they_wait_while_the_restore_point_is_looked_for() -> None:
    driver = looking()
    assert driver.feed(Tick(), after=2 * PARKED_MS) == []
    effects = driver.feed(RestoreSeen(2))
    assert isinstance(effects[0], Spawn)
    assert effects[0].parked == (0, 1)


def test_a_run_that_comes_to_nothing_leaves_them_to_their_time() -> None:
    driver = looking()
    driver.feed(RestoreMissing(2))
    ended(driver, list(driver.sleep()))
    driver.feed(TreeGone())
    assert driver.phase() is Phase.READY
    assert driver.report.attempt == 2
    assert driver.report.missing_step == 3


def test_the_pods_end_while_the_restore_point_is_looked_for_ends_them() -> None:
    driver = looking()
    ended(driver, list(driver.feed(Terminate())))
    assert driver.feed(RestoreSeen(2)) == []
    driver.feed(TreeGone())
    assert Quit() in driver.sleep()


def registered(driver: Driver) -> list[str]:
    return [one.tier for one in driver.report.checkpoints]


def test_what_processes_have_in_memory_is_registered_while_they_live() -> None:
    driver = ready()
    driver.feed(run(1, processes=2, process_tier="live"), Started())
    driver.feed(Parkable(0), Parkable(1), Checkpoint("store", 5, 10, 1), Checkpoint("live", 6, 10, 1))
    driver.feed(hold(2))
    driver.feed(Parked(0, 1), Exited(1, signal=9), TreeGone(), PortsFound(2, ()))
    assert registered(driver) == ["live", "store"]
    assert [one.tier for one in lasting_checkpoints(driver.state)] == ["store"], "a container's end ends them"
    driver.state = replace(driver.state, orphan_ms=10 * PARKED_MS)
    driver.sleep()
    assert registered(driver) == ["store"], "they are being killed"
    driver.feed(Exited(0, signal=9), TreeGone(), PortsFound(2, ()))
    assert registered(driver) == ["store"]


def test_what_a_process_had_in_memory_goes_with_it_alone() -> None:
    driver = ready()
    driver.feed(run(1, processes=2, process_tier="live"), Started())
    driver.feed(Checkpoint("live", 6, 10, 1), Checkpoint("live", 6, 11, 1), Exited(0, exit_code=1))
    assert [one.rank for one in driver.report.checkpoints] == [11]
