"""What the framework API passes on: progress, loading, checkpoints, requests."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGTERM

from gangsidecar import wire
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    Exited,
    PortsFound,
    Save,
    Send,
    Signal,
    Started,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.wire import (
    Checkpoint,
    Corruption,
    Dropped,
    Milestone,
    Progress,
    Reached,
    Request,
    Restore,
    Verified,
)
from tests.sidecar.machine.machines import hold, restarted, run, running


def test_progress_keeps_the_highest_step_the_newest_call_and_the_first_step() -> None:
    driver = running(1)
    driver.feed(Progress(1, 100, 0, phase="Startup"))
    assert driver.report.progress == Progress(1, 100, 0, "Startup")
    driver.feed(Progress(1, 101, 0), after=10)
    driver.feed(Progress(1, 107, 0), after=10)
    driver.feed(Progress(1, 106, 4), after=10)
    driver.now += 5
    assert driver.report.progress == Progress(1, 107, 9, "Step", first_step=101, first_age_ms=25)


def test_progress_without_a_step_has_ages_and_no_number() -> None:
    driver = running(1)
    assert driver.feed(Progress(1, 0, 0, uncounted=True)) == [Send()]
    assert driver.feed(Progress(1, 0, 3, uncounted=True), after=500) == [], "at most once a second"
    assert driver.report.progress == Progress(1, 0, 3, "Step", first_age_ms=500, uncounted=True)
    assert driver.feed(Progress(1, 0, 0, uncounted=True), after=500) == [Send()]
    driver.feed(Progress(2, 0, 0, uncounted=True))
    assert driver.report.progress == Progress(1, 0, 0, "Step", first_age_ms=1000, uncounted=True)


def test_the_last_of_several_steps_is_reported_without_another_call() -> None:
    driver = running(1)
    assert driver.feed(Progress(1, 1, 0)) == [Send()]
    assert driver.feed(Progress(1, 8, 0), after=999) == []
    assert machine.deadline(driver.state) == driver.now + 1
    assert driver.feed(Tick(), after=1) == [Send()]
    assert machine.deadline(driver.state) is None, "there is nothing left to report"
    assert driver.feed(Progress(1, 9, 0), after=500) == []
    assert driver.feed(Progress(1, 10, 0), after=500) == [Send()], "with what is newer"


def test_a_step_that_is_held_back_delays_no_stop() -> None:
    driver = running(1)
    driver.feed(Progress(1, 1, 0))
    driver.feed(Progress(1, 8, 0), after=1)
    driver.feed(Terminate())
    assert driver.feed(Tick(), after=999) == [Send()]
    assert Signal(SIGTERM) in driver.feed(Tick(), after=1001)


def test_a_step_that_is_known_outweighs_those_that_are_not() -> None:
    driver = running(1)
    driver.feed(Progress(1, 0, 0, uncounted=True))
    driver.feed(Progress(1, 7, 0), after=10)
    assert driver.report.progress == Progress(1, 7, 0, "Step", first_step=7, first_age_ms=0)
    driver.feed(Progress(1, 0, 0, uncounted=True), after=10)
    assert driver.report.progress == Progress(1, 7, 0, "Step", first_step=7, first_age_ms=10)


def test_progress_without_a_step_ends_the_startup() -> None:
    driver = running(1)
    driver.feed(Progress(1, 100, 0, phase="Startup"))
    assert driver.feed(Progress(1, 0, 0, uncounted=True), after=10) == [Send()]
    told = driver.report.progress
    assert told is not None
    assert (told.phase, told.uncounted, told.first_step, told.first_age_ms) == ("Step", True, None, 0)


def test_first_step_and_phase_changes_are_reported_at_once_steps_once_a_second() -> None:
    driver = running(1)
    assert driver.feed(Progress(1, 0, 0, phase="Startup")) == [Send()]
    assert driver.feed(Progress(1, 1, 0)) == [Send()]
    assert driver.feed(Progress(1, 2, 0), after=999) == []
    assert driver.feed(Progress(1, 3, 0), after=1) == [Send()]
    assert driver.feed(Progress(1, 3, 0, phase="Checkpoint")) == [Send()]


def test_the_longest_first_step_of_the_members_ranks_is_reported_at_once() -> None:
    driver = running(1)
    driver.feed(Progress(1, 101, 0, first_step=101, first_age_ms=0, first_ms=400))
    assert driver.feed(Progress(1, 101, 0, first_step=101, first_age_ms=10, first_ms=900), after=10) == [Send()]
    assert driver.feed(Progress(1, 102, 0, first_step=101, first_age_ms=20, first_ms=300), after=10) == []
    assert driver.report.progress == Progress(1, 102, 0, "Step", 101, 20, first_ms=900)


def test_a_later_step_after_a_sidecar_restart_doesnt_become_the_first() -> None:
    driver = running(1)
    driver.feed(Progress(1, 101, 0, first_step=101, first_age_ms=0, first_ms=400))
    driver.feed(Progress(1, 500, 0, first_step=500, first_age_ms=0, first_ms=9000), after=1000)
    assert driver.report.progress == Progress(1, 500, 0, "Step", 101, 1000, first_ms=400)
    driver.feed(Progress(1, 501, 0, first_step=500, first_age_ms=10), after=10)
    assert driver.report.progress == Progress(1, 501, 0, "Step", 101, 1010, first_ms=400)


def test_the_rank_that_loaded_last_is_reported_with_its_age() -> None:
    driver = running(1)
    assert driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 0, 2500, rank=3)) == [Send()]
    assert driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 0, 1500, rank=2), after=100) == [Send()]
    driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 60, 9000, rank=1), after=50)  # its call was under way for longer
    driver.now += 7
    assert driver.report.reached == (Reached(1, Milestone.CHECKPOINT_LOAD, 57, 1500, rank=2),)


def test_the_second_loading_of_a_rank_is_ignored() -> None:
    driver = running(1)
    driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 0, 2500, rank=3))
    driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 0, 1500, rank=2), after=100)
    for again in (2, 3):
        assert driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 0, 7777, rank=again), after=100) == []
    assert driver.report.reached == (Reached(1, Milestone.CHECKPOINT_LOAD, 200, 1500, rank=2),)


def test_each_milestone_has_the_rank_that_was_last_there() -> None:
    driver = running(1)
    joined, loaded = (Reached(1, one, 0) for one in (Milestone.RENDEZVOUS, Milestone.CHECKPOINT_LOAD))
    for rank in (0, 1):
        driver.feed(replace(joined, rank=rank), after=100)
    driver.feed(replace(loaded, milliseconds=50, rank=1), replace(joined, rank=1), after=100)
    assert driver.report.reached == (replace(joined, age_ms=100, rank=1), replace(loaded, milliseconds=50, rank=1))


def test_a_loading_after_the_first_step_is_ignored() -> None:
    driver = running(1)
    driver.feed(Progress(1, 10, 0, phase="Startup"), Reached(1, Milestone.CHECKPOINT_LOAD, 0, 2500, rank=3))
    driver.feed(Progress(1, 11, 0))
    assert driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, 0, 1500, rank=2), after=100) == []
    assert driver.report.reached == (Reached(1, Milestone.CHECKPOINT_LOAD, 100, 2500, rank=3),)


def test_a_new_attempt_starts_without_the_last_ones_measurements() -> None:
    driver = running(1)
    driver.feed(
        Reached(1, Milestone.CHECKPOINT_LOAD, 0, 2500, rank=3),
        Progress(1, 11, 0, first_step=11, first_age_ms=0, first_ms=5),
    )
    driver.feed(hold(2), Exited(0, signal=15), TreeGone())
    assert driver.report.reached == (Reached(1, Milestone.CHECKPOINT_LOAD, 0, 2500, rank=3),), (
        "it is kept for the attempt that it belongs to"
    )
    driver.feed(PortsFound(2, (29400,)), run(2), Started())
    assert not driver.report.reached
    assert driver.report.progress is None
    driver.feed(Reached(2, Milestone.CHECKPOINT_LOAD, 0, 10, rank=3))
    assert driver.report.reached == (Reached(2, Milestone.CHECKPOINT_LOAD, 0, 10, rank=3),), "the rank counts again"


def test_many_ranks_and_odd_numbers_stay_bounded() -> None:
    driver = running(1)
    for rank in range(500):
        driver.feed(Reached(1, Milestone.CHECKPOINT_LOAD, -5, 1, rank=rank), after=1)
    assert driver.report.reached[0].age_ms >= 0
    assert len(driver.state.history.reached[0].ranks) == 64


def test_a_call_of_an_older_attempt_is_ignored() -> None:
    driver = restarted(1)
    driver.feed(run(2), Started())
    for late in (
        Progress(1, 5, 0),
        Reached(1, Milestone.CHECKPOINT_LOAD, 0, 2500),
        Request(1, 0, "x"),
        Corruption(1, 0, 10, "x", 0),
        Verified(1, 10),
        Checkpoint("ram", 30, 10, 1),
        Dropped("ram", 10, 10, 1),
    ):
        before = driver.state
        assert driver.feed(late) == []
        assert driver.state == before


def test_a_request_is_reported_with_its_age() -> None:
    driver = running(1)
    assert driver.feed(Request(1, 5, "nan", rank=3)) == [Send()]
    driver.now += 10
    assert driver.report.request == Request(1, 15, "nan", rank=3)


def test_corruption_is_reported_with_its_age_and_the_lowest_step_until_the_next_run() -> None:
    driver = running(1)
    assert driver.feed(Corruption(1, 5, 200, "nan", 3)) == [Send()]
    driver.now += 10
    assert driver.report.corruption == Corruption(1, 15, 200, "nan", 3)
    driver.feed(hold(2))
    assert driver.feed(Corruption(1, 0, 150, "inf", 4)) == [Send()], "also while the worker is being stopped"
    assert driver.report.corruption == Corruption(1, 15, 150, "nan", 3)
    driver.feed(Corruption(1, 0, 180, "inf", 4), Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()))
    assert driver.report.corruption == Corruption(1, 15, 150, "nan", 3)
    driver.feed(run(2))
    assert driver.report.corruption is None


def test_the_newest_verified_steps_are_reported_until_the_next_run() -> None:
    driver = running(1)
    assert driver.feed(Verified(1, 10)) == [Send(), Save()]
    assert driver.feed(Verified(1, 10)) == []
    driver.feed(
        hold(2), *(Verified(1, step) for step in range(20, 36)), Exited(0, exit_code=0), TreeGone(), PortsFound(2, ())
    )
    assert [one.step for one in driver.report.verified] == [*range(35, 19, -1)]
    driver.feed(run(2))
    assert driver.report.verified == ()


def test_a_checkpoint_is_taken_while_its_worker_is_being_stopped() -> None:
    driver = running(1)
    driver.feed(hold(2))
    assert driver.feed(Checkpoint("ram", 30, 10, 1)) == [Send(), Save()]
    driver.feed(Exited(0, exit_code=0), TreeGone())
    assert driver.feed(Checkpoint("ram", 31, 10, 1)) == []
    assert [one.step for one in driver.report.checkpoints] == [30]


def test_a_checkpoint_registered_twice_exists_once_until_it_is_dropped() -> None:
    driver = running(1)
    one = Checkpoint("ram", 30, 10, 1)
    driver.feed(one)
    assert driver.feed(one) == []
    assert driver.feed(Dropped("ram", 30, 10, 1)) == [Send(), Save()]
    assert driver.report.checkpoints == ()


def test_a_dropped_step_is_reported_until_it_is_completed_again() -> None:
    driver, gone = running(1), Dropped("ram", 30, 10, 1)
    driver.feed(gone)
    assert driver.report.dropped == (gone,)
    assert driver.feed(gone) == []
    driver.feed(Checkpoint("ram", 30, 10, 1))
    assert not driver.report.dropped


def test_the_newest_dropped_steps_are_kept_and_those_that_a_restart_undoes_are_not() -> None:
    driver = running(1)
    driver.feed(*(Dropped("ram", step, 10, 1) for step in range(200)))
    assert [one.step for one in driver.report.dropped] == list(range(199, 103, -1))
    driver.feed(hold(2), Exited(0, exit_code=0), TreeGone(), PortsFound(2, ()))
    driver.feed(run(2, restore=Restore(105, "ram"), checkpointed=True))
    assert [one.step for one in driver.report.dropped] == [105, 104]


def test_newest_checkpoints_are_kept_and_a_report_stays_small() -> None:
    driver = running(1)
    for step in range(100):
        for rank in range(8):
            driver.feed(Checkpoint("ram", step, rank, 1, f"/dev/shm/{'é' * 20}/{step}/{rank}"))
    told = driver.report.checkpoints
    assert len(told) <= 256
    assert {one.step for one in told[:8]} == {99}
    assert {(one.step, one.rank) for one in told if one.step > 90} >= {(s, r) for s in range(91, 100) for r in range(8)}
    driver.feed(*(Checkpoint("ram", step, 0, 1, "p" * 8192) for step in range(100, 120)))
    assert len(wire.encode(driver.report)) < 64 << 10


def test_a_tier_that_is_written_each_step_pushes_no_step_of_another_out() -> None:
    driver = running(1)
    for step in range(1, 101):
        for rank in range(8):
            driver.feed(Checkpoint("ram", step, rank, 1, f"/ram/{step}"))
            if step in {20, 40}:
                driver.feed(Checkpoint("store", step, rank, 1, f"/store/{step}"))
    told = driver.report.checkpoints
    assert [one.step for one in told if (one.tier, one.rank) == ("store", 7)] == [40, 20]
    assert len([one for one in told if one.tier == "store"]) == 16
    assert [one.step for one in told] == sorted((one.step for one in told), reverse=True)
    assert min(one.step for one in told if one.tier == "ram") > 70


def test_a_tier_that_drops_each_step_pushes_no_drop_of_another_out() -> None:
    driver = running(1)
    driver.feed(Dropped("store", 10, 0, 1))
    for step in range(20, 21 + wire.MAX_DROPPED):
        driver.feed(Dropped("ram", step, 0, 1))
    told = driver.report.dropped
    assert len(told) == wire.MAX_DROPPED
    assert (told[-1].tier, told[-1].step) == ("store", 10)
