"""The rules of a supervisor, one test a rule, and what no order of events may break."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsidecar import wire
from gangsidecar.supervisor import machine
from gangsidecar.supervisor.machine import (
    End,
    Exited,
    FindPorts,
    Identity,
    KillTree,
    LookForRestore,
    PortsFound,
    RestoreMissing,
    RestoreSeen,
    Save,
    Send,
    Signal,
    Spawn,
    Started,
    State,
    Terminate,
    Tick,
    TreeGone,
)
from gangsidecar.wire import (
    Checkpoint,
    Directive,
    Dropped,
    Loaded,
    Phase,
    Ping,
    Process,
    Progress,
    Request,
    Restore,
    Run,
    Verb,
)

IDENTITY = Identity(gang="g1", member="worker-0", incarnation=0, pod="p1", address="10.0.0.1")
GRACE = 1_000


class Driver:
    """A machine with its time and the effects since last looked at."""

    def __init__(self, state: State | None = None) -> None:
        self.now = 1_000
        self.state = state or machine.start(IDENTITY, "s1", self.now)
        self.effects: list[machine.Effect] = []

    def feed(self, *events: machine.Event, after: int = 0) -> list[machine.Effect]:
        self.now += after
        self.effects = []
        for event in events:
            self.state, effects = machine.step(self.state, self.now, event)
            self.effects += effects
        return self.effects

    @property
    def report(self) -> wire.Report:
        return machine.report(self.state, self.now, 1)

    def phase(self) -> Phase:
        return self.report.phase

    def sleep(self) -> list[machine.Effect]:
        due = machine.deadline(self.state)
        assert due is not None
        self.now = max(due, self.now)
        return self.feed(Tick())


def hold(attempt: int, **more: object) -> Directive:
    return replace(Directive("g1", "p1", attempt, Verb.HOLD, grace_ms=GRACE), **more)  # type: ignore[arg-type]


def run(attempt: int, session: str = "s1", processes: int = 1, **more: object) -> Directive:
    started = tuple(Process(local_rank=at, env=(), rank=10 + at) for at in range(processes))
    return Directive("g1", "p1", attempt, Verb.RUN, grace_ms=GRACE, run=replace(Run(session, started), **more))  # type: ignore[arg-type]


def finish(attempt: int) -> Directive:
    return Directive("g1", "p1", attempt, Verb.FINISH, grace_ms=GRACE)


def ready(attempt: int = 1) -> Driver:
    driver = Driver()
    driver.feed(hold(attempt), PortsFound(attempt, (29400,)))
    assert driver.phase() is Phase.READY
    return driver


def running(attempt: int = 1, processes: int = 1) -> Driver:
    driver = ready(attempt)
    driver.feed(run(attempt, processes=processes), Started())
    assert driver.phase() is Phase.RUNNING
    return driver


def restarted(attempt: int, **more: object) -> Driver:
    """Ready at ``attempt + 1`` after a worker of ``attempt`` was stopped."""
    driver = running(attempt)
    driver.feed(Checkpoint("ram", 10, 10, attempt), Checkpoint("ram", 20, 10, attempt))
    driver.feed(hold(attempt + 1, **more), Exited(0, signal=15), TreeGone(), PortsFound(attempt + 1, ()))
    assert driver.phase() is Phase.READY
    return driver


class TestDirectives:
    def test_an_older_directive_changes_nothing(self) -> None:
        driver = running(3)
        for old in (hold(3), run(2), finish(2), hold(1)):
            before = driver.state
            assert driver.feed(old) == []
            assert driver.state == before

    def test_the_same_directive_again_only_sends_a_report(self) -> None:
        driver = running(3)
        before = driver.state
        assert driver.feed(run(3)) == [Send()]
        assert driver.state == before

    def test_the_same_directive_again_may_carry_newer_timers(self) -> None:
        driver = running(1)
        driver.feed(replace(run(1), isolation_ms=5_000, orphan_ms=9))
        assert driver.state.orphan_ms == 9
        assert machine.deadline(driver.state) == 1_000 + 5_000

    @pytest.mark.parametrize("other", [{"gang": "g2"}, {"pod": "p2"}])
    def test_a_directive_for_another_gang_or_pod_is_ignored(self, other: dict[str, str]) -> None:
        driver = ready()
        before = driver.state
        assert driver.feed(replace(hold(9), **other)) == []  # type: ignore[arg-type]
        assert driver.state == before

    def test_nothing_is_heard_after_finish(self) -> None:
        driver = running(1)
        driver.feed(finish(1))
        assert driver.feed(hold(2)) == []
        assert driver.report.attempt == 1

    def test_a_new_session_is_idle_at_attempt_zero(self) -> None:
        report = Driver().report
        assert (report.phase, report.attempt, report.session) == (Phase.IDLE, 0, "s1")


class TestHold:
    def test_with_nothing_running_it_is_ready_as_soon_as_ports_are_found(self) -> None:
        driver = Driver()
        assert driver.feed(hold(1, base_port=5, port_count=7)) == [FindPorts(1, 5, 7)]
        assert driver.phase() is not Phase.READY
        assert driver.feed(PortsFound(1, (6, 7))) == [Send()]
        assert (driver.phase(), driver.report.ports, driver.report.stop_ms) == (Phase.READY, (6, 7), None)

    def test_ports_of_an_older_hold_do_not_make_ready(self) -> None:
        driver = Driver()
        driver.feed(hold(1), hold(2), PortsFound(1, (6,)))
        assert driver.phase() is not Phase.READY

    def test_a_worker_gets_sigterm_then_grace_then_sigkill(self) -> None:
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

    def test_ready_waits_for_descendants_that_outlive_the_main_process(self) -> None:
        driver = running(1)
        driver.feed(hold(2), Exited(0, exit_code=0))
        assert driver.phase() is Phase.STOPPING
        assert driver.sleep() == [KillTree()]
        assert FindPorts(2, 29400, 64) in driver.feed(TreeGone())

    def test_leftovers_of_a_worker_that_ended_by_itself_are_killed_without_grace(self) -> None:
        driver = running(1)
        driver.feed(Exited(0, signal=11))
        assert driver.feed(hold(2)) == [KillTree(), Send()]

    def test_who_survives_sigkill_for_ten_seconds_is_stuck_and_ready_once_gone(self) -> None:
        driver = running(1)
        driver.feed(hold(2))
        driver.feed(Tick(), after=GRACE)
        assert driver.sleep() == [Send()]
        assert driver.now == 1_000 + GRACE + 10_000
        assert driver.phase() is Phase.STUCK
        assert machine.deadline(driver.state) is None
        driver.feed(TreeGone(), PortsFound(2, ()))
        assert driver.phase() is Phase.READY

    def test_a_newer_hold_with_less_grace_brings_sigkill_nearer_and_never_further(self) -> None:
        driver = running(1)
        driver.feed(hold(2))
        driver.feed(hold(3, grace_ms=60_000))
        assert machine.deadline(driver.state) == driver.now + GRACE
        driver.feed(hold(4, grace_ms=10))
        assert machine.deadline(driver.state) == driver.now + 10

    def test_stop_ms_counts_from_the_directive_to_the_last_process_gone(self) -> None:
        driver = running(1)
        driver.feed(hold(2))
        driver.feed(Exited(0, signal=15), after=30)
        driver.feed(TreeGone(), after=12)
        driver.feed(PortsFound(2, ()), after=5)
        assert driver.report.stop_ms == 42
        assert driver.report.phase_age_ms == 5


class TestRun:
    def test_it_starts_the_worker_of_a_ready_session(self) -> None:
        driver = ready()
        directive = run(1)
        assert directive.run is not None
        assert driver.feed(directive) == [Spawn(1, directive.run)]
        assert driver.feed(Started(), after=7) == [Send()]
        assert (driver.phase(), driver.report.phase_age_ms) == (Phase.RUNNING, 0)

    def test_it_is_refused_by_another_session(self) -> None:
        driver = ready()
        assert driver.feed(run(1, session="s0")) == []
        assert driver.phase() is Phase.READY
        assert driver.feed(run(1))[0] == Spawn(1, run(1).run)  # type: ignore[arg-type]

    def test_it_is_refused_by_a_session_that_has_not_said_ready(self) -> None:
        driver = Driver()
        assert driver.feed(run(1)) == []
        assert driver.report.attempt == 0
        driver = running(1)
        driver.feed(hold(2))
        assert driver.feed(run(2)) == []

    def test_it_is_refused_by_a_session_that_is_ready_at_another_attempt(self) -> None:
        driver = ready(1)
        assert driver.feed(run(2)) == []

    def test_it_starts_a_worker_at_most_once(self) -> None:
        driver = running(1)
        driver.feed(Exited(0, exit_code=1), TreeGone())
        assert driver.feed(run(1)) == [Send()]

    def test_a_restore_point_is_looked_for_first(self) -> None:
        driver = ready()
        restore = Restore(40, "shared", "/ckpt/step-40")
        assert driver.feed(run(1, restore=restore)) == [LookForRestore(1, restore)]
        assert driver.phase() is Phase.READY
        assert isinstance(driver.feed(RestoreSeen(1))[0], Spawn)

    def test_a_restore_point_without_a_path_is_not_looked_for(self) -> None:
        assert isinstance(ready().feed(run(1, restore=Restore(40, "ram")))[0], Spawn)

    def test_a_missing_restore_point_starts_nothing_and_is_said(self) -> None:
        driver = ready()
        driver.feed(run(1, restore=Restore(40, "shared", "/ckpt/step-40")))
        assert driver.feed(RestoreMissing(1)) == [Send()]
        assert (driver.phase(), driver.report.missing_step) == (Phase.READY, 40)
        assert driver.feed(RestoreSeen(1)) == []
        driver.feed(hold(2), PortsFound(2, ()))
        assert (driver.report.missing_step, driver.report.missing_attempt) == (40, 1)
        driver.feed(run(2))
        assert (driver.report.missing_step, driver.report.missing_attempt) == (None, 0)

    def test_an_answer_to_an_older_look_starts_nothing(self) -> None:
        driver = ready()
        restore = Restore(40, "shared", "/ckpt/step-40")
        driver.feed(run(1, restore=restore), hold(2), PortsFound(2, ()), run(2, restore=restore))
        assert driver.feed(RestoreSeen(1)) == []
        assert isinstance(driver.feed(RestoreSeen(2))[0], Spawn)

    def test_registrations_above_the_restore_point_are_dropped(self) -> None:
        driver = restarted(1)
        effects = driver.feed(run(2, restore=Restore(10, "ram"), checkpointed=True))
        assert isinstance(effects[0], Spawn)
        assert Save() in effects
        assert [one.step for one in driver.report.checkpoints] == [10]

    def test_all_registrations_are_dropped_by_a_start_from_the_beginning(self) -> None:
        driver = restarted(1)
        driver.feed(run(2, checkpointed=True))
        assert driver.report.checkpoints == ()

    def test_registrations_stay_if_the_job_has_no_checkpoint_tiers(self) -> None:
        driver = restarted(1)
        driver.feed(run(2))
        assert [one.step for one in driver.report.checkpoints] == [20, 10]


class TestEnds:
    def test_a_natural_end_stays_running_and_is_told_with_rank_and_age(self) -> None:
        driver = running(1, processes=2)
        assert driver.feed(Exited(1, exit_code=3, message="no")) == [Send(), Save()]
        driver.now += 50
        (end,) = driver.report.ends
        assert (end.attempt, end.local_rank, end.rank, end.exit_code, end.stopped) == (1, 1, 11, 3, False)
        assert (end.age_ms, end.message) == (50, "no")
        assert driver.phase() is Phase.RUNNING

    def test_a_worker_that_finished_with_zero_holds_its_supervisor(self) -> None:
        driver = running(1)
        driver.feed(Exited(0, exit_code=0), TreeGone())
        assert driver.phase() is Phase.RUNNING
        driver.feed(Ping(), after=500_000)
        assert End() not in driver.effects

    def test_an_end_after_a_hold_is_stopped(self) -> None:
        driver = running(1)
        driver.feed(hold(2), Exited(0, exit_code=0))
        assert driver.report.ends[0].stopped

    def test_an_end_after_sigterm_to_the_supervisor_is_stopped(self) -> None:
        driver = running(1)
        driver.feed(Terminate(), Exited(0, exit_code=0))
        assert driver.report.ends[0].stopped

    def test_an_end_that_was_reaped_before_the_hold_is_natural(self) -> None:
        driver = running(1)
        driver.feed(Exited(0, exit_code=0), hold(2))
        assert not driver.report.ends[0].stopped

    def test_an_end_that_came_as_a_timer_was_due_is_natural(self) -> None:
        driver = running(1)
        driver.feed(replace(run(1), isolation_ms=10))
        driver.feed(Exited(0, exit_code=7), after=10)
        assert not driver.report.ends[0].stopped

    def test_a_signal_excludes_an_exit_code(self) -> None:
        driver = running(1)
        driver.feed(Exited(0, exit_code=1, signal=9, oom=True))
        (end,) = driver.report.ends
        assert (end.exit_code, end.signal, end.oom) == (None, 9, True)

    def test_an_end_of_no_known_process_is_ignored(self) -> None:
        driver = running(1)
        driver.feed(Exited(0, exit_code=0))
        before = driver.state
        driver.feed(Exited(0, exit_code=1), Exited(7, exit_code=1))
        assert driver.state == before

    def test_ends_of_the_newest_two_attempts_are_kept_and_at_most_64(self) -> None:
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

    def test_what_an_earlier_session_kept_is_told_with_its_age(self) -> None:
        end = wire.End(attempt=4, local_rank=0, age_ms=300, exit_code=1)
        kept = Checkpoint("ram", 5, 0, 4, "/x")
        driver = Driver(machine.start(IDENTITY, "s2", 1_000, (end,), (kept,)))
        driver.now += 20
        assert driver.report.ends == (replace(end, age_ms=320),)
        assert driver.report.checkpoints == (kept,)


class TestFinish:
    def test_with_nothing_running_it_ends_at_once(self) -> None:
        driver = ready()
        assert driver.feed(finish(1)) == [Send(), Save(), End()]
        assert driver.phase() is Phase.DONE

    def test_it_stops_the_worker_with_grace_and_then_ends(self) -> None:
        driver = running(1)
        assert driver.feed(finish(1)) == [Signal(15), Send()]
        driver.feed(Exited(0, exit_code=0))
        assert driver.report.ends[0].stopped
        assert driver.feed(TreeGone()) == [Send(), Save(), End()]

    def test_after_done_nothing_happens_any_more(self) -> None:
        driver = ready()
        driver.feed(finish(1))
        before = driver.state
        assert driver.feed(hold(5), Terminate(), Tick(), TreeGone(), after=10**9) == []
        assert driver.state == before
        assert machine.deadline(driver.state) is None


class TestTerminate:
    def test_it_is_told_first_and_the_worker_waits_for_the_gang(self) -> None:
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
        assert driver.feed(Tick(), after=1) == [Send(), Save(), End()]

    def test_when_finish_comes_it_ends_at_once(self) -> None:
        driver = Driver()
        driver.feed(Terminate())
        assert End() in driver.feed(finish(1))

    def test_nothing_is_started_after_it(self) -> None:
        driver = ready()
        driver.feed(run(1, restore=Restore(1, "shared", "/x")), Terminate())
        assert driver.feed(RestoreSeen(1)) == []
        driver = ready()
        driver.feed(Terminate())
        assert driver.feed(run(1)) == []

    def test_without_any_directive_the_grace_is_fifteen_seconds(self) -> None:
        assert machine.GRACE_MS == 15_000

    def test_stopped_by_itself_it_still_says_running(self) -> None:
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

    def test_who_is_cut_off_starts_nothing_until_a_ping_comes(self) -> None:
        driver = ready()
        late = replace(run(1), isolation_ms=3_000)
        assert driver.feed(late, after=3_000) == []
        assert isinstance(driver.feed(Ping(), late)[0], Spawn)

    def test_without_it_a_worker_trains_on_for_ever(self) -> None:
        driver = running(1)
        assert driver.feed(Tick(), after=10**9) == []
        assert machine.deadline(driver.state) is None


class TestOrphans:
    def test_without_controller_and_worker_it_ends(self) -> None:
        driver = ready()
        driver.feed(Ping(), after=100_000)
        assert driver.sleep() == [Send(), Save(), End()]
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


class TestWhatTheFrameworkSays:
    def test_progress_keeps_the_highest_step_the_newest_call_and_the_first_step(self) -> None:
        driver = running(1)
        driver.feed(Progress(1, 100, 0, phase="Startup"))
        assert driver.report.progress == Progress(1, 100, 0, "Startup")
        driver.feed(Progress(1, 101, 0), after=10)
        driver.feed(Progress(1, 107, 0), after=10)
        driver.feed(Progress(1, 106, 4), after=10)
        driver.now += 5
        assert driver.report.progress == Progress(1, 107, 9, "Step", first_step=101, first_age_ms=25)

    def test_the_first_step_and_a_change_of_phase_are_told_at_once_steps_once_a_second(self) -> None:
        driver = running(1)
        assert driver.feed(Progress(1, 0, 0, phase="Startup")) == [Send()]
        assert driver.feed(Progress(1, 1, 0)) == [Send()]
        assert driver.feed(Progress(1, 2, 0), after=999) == []
        assert driver.feed(Progress(1, 3, 0), after=1) == [Send()]
        assert driver.feed(Progress(1, 3, 0, phase="Checkpoint")) == [Send()]

    def test_the_longest_first_step_of_the_members_ranks_is_told_at_once(self) -> None:
        driver = running(1)
        driver.feed(Progress(1, 101, 0, first_step=101, first_age_ms=0, first_ms=400))
        assert driver.feed(Progress(1, 101, 0, first_step=101, first_age_ms=10, first_ms=900), after=10) == [Send()]
        assert driver.feed(Progress(1, 102, 0, first_step=101, first_age_ms=20, first_ms=300), after=10) == []
        assert driver.report.progress == Progress(1, 102, 0, "Step", 101, 20, first_ms=900)

    def test_a_sidecar_that_has_restarted_takes_no_later_step_for_the_first(self) -> None:
        driver = running(1)
        driver.feed(Progress(1, 101, 0, first_step=101, first_age_ms=0, first_ms=400))
        driver.feed(Progress(1, 500, 0, first_step=500, first_age_ms=0, first_ms=9000), after=1000)
        assert driver.report.progress == Progress(1, 500, 0, "Step", 101, 1000, first_ms=400)
        driver.feed(Progress(1, 501, 0, first_step=500, first_age_ms=10), after=10)
        assert driver.report.progress == Progress(1, 501, 0, "Step", 101, 1010, first_ms=400)

    def test_the_rank_that_was_ready_last_is_told_with_its_age(self) -> None:
        driver = running(1)
        assert driver.feed(Loaded(1, 0, 2500, rank=3)) == [Send()]
        assert driver.feed(Loaded(1, 0, 1500, rank=2), after=100) == [Send()]
        driver.feed(Loaded(1, 60, 9000, rank=1), after=50)  # its call was under way for longer
        driver.now += 7
        assert driver.report.loaded == Loaded(1, 57, 1500, rank=2)

    def test_a_rank_that_says_twice_that_it_has_loaded_is_heard_once(self) -> None:
        driver = running(1)
        driver.feed(Loaded(1, 0, 2500, rank=3))
        driver.feed(Loaded(1, 0, 1500, rank=2), after=100)
        for again in (2, 3):
            assert driver.feed(Loaded(1, 0, 7777, rank=again), after=100) == []
        assert driver.report.loaded == Loaded(1, 200, 1500, rank=2)

    def test_what_is_loaded_after_the_first_step_is_no_part_of_the_restart(self) -> None:
        driver = running(1)
        driver.feed(Progress(1, 10, 0, phase="Startup"), Loaded(1, 0, 2500, rank=3))
        driver.feed(Progress(1, 11, 0))
        assert driver.feed(Loaded(1, 0, 1500, rank=2), after=100) == []
        assert driver.report.loaded == Loaded(1, 100, 2500, rank=3)

    def test_a_new_attempt_begins_without_what_the_last_one_measured(self) -> None:
        driver = running(1)
        driver.feed(Loaded(1, 0, 2500, rank=3), Progress(1, 11, 0, first_step=11, first_age_ms=0, first_ms=5))
        driver.feed(hold(2), Exited(0, signal=15), TreeGone())
        assert driver.report.loaded == Loaded(1, 0, 2500, rank=3), "evidence of the attempt that it belongs to"
        driver.feed(PortsFound(2, (29400,)), run(2), Started())
        assert driver.report.loaded is None
        assert driver.report.progress is None
        driver.feed(Loaded(2, 0, 10, rank=3))
        assert driver.report.loaded == Loaded(2, 0, 10, rank=3), "the rank is heard again"

    def test_many_ranks_and_odd_numbers_stay_bounded(self) -> None:
        driver = running(1)
        for rank in range(500):
            driver.feed(Loaded(1, -5, 1, rank=rank), after=1)
        assert driver.report.loaded is not None
        assert driver.report.loaded.age_ms >= 0
        assert driver.state.history.load is not None
        assert len(driver.state.history.load.ranks) == 64

    def test_what_an_older_attempt_says_is_ignored(self) -> None:
        driver = restarted(1)
        driver.feed(run(2), Started())
        for late in (
            Progress(1, 5, 0),
            Loaded(1, 0, 2500),
            Request(1, 0, "x"),
            Checkpoint("ram", 30, 10, 1),
            Dropped("ram", 10, 10, 1),
        ):
            before = driver.state
            assert driver.feed(late) == []
            assert driver.state == before

    def test_a_request_is_told_with_its_age(self) -> None:
        driver = running(1)
        assert driver.feed(Request(1, 5, "nan", rank=3)) == [Send()]
        driver.now += 10
        assert driver.report.request == Request(1, 15, "nan", rank=3)

    def test_a_checkpoint_is_taken_while_its_worker_is_being_stopped(self) -> None:
        driver = running(1)
        driver.feed(hold(2))
        assert driver.feed(Checkpoint("ram", 30, 10, 1)) == [Send(), Save()]
        driver.feed(Exited(0, exit_code=0), TreeGone())
        assert driver.feed(Checkpoint("ram", 31, 10, 1)) == []
        assert [one.step for one in driver.report.checkpoints] == [30]

    def test_a_checkpoint_said_twice_is_there_once_and_dropped_it_is_gone(self) -> None:
        driver = running(1)
        one = Checkpoint("ram", 30, 10, 1)
        driver.feed(one)
        assert driver.feed(one) == []
        assert driver.feed(Dropped("ram", 30, 10, 1)) == [Send(), Save()]
        assert driver.report.checkpoints == ()

    def test_newest_checkpoints_are_kept_and_a_report_stays_small(self) -> None:
        driver = running(1)
        for step in range(100):
            for rank in range(8):
                driver.feed(Checkpoint("ram", step, rank, 1, f"/dev/shm/{'é' * 20}/{step}/{rank}"))
        told = driver.report.checkpoints
        assert len(told) <= 256
        assert {one.step for one in told[:8]} == {99}
        assert {(one.step, one.rank) for one in told if one.step > 90} >= {
            (s, r) for s in range(91, 100) for r in range(8)
        }
        driver.feed(*(Checkpoint("ram", step, 0, 1, "p" * 8192) for step in range(100, 120)))
        assert len(wire.encode(driver.report)) < 64 << 10


def events() -> st.SearchStrategy[tuple[int, machine.Event | None]]:
    attempts = st.integers(0, 4)
    directives = st.one_of(
        st.builds(hold, attempts, isolation_ms=st.sampled_from([None, 500])),
        st.builds(
            run,
            attempts,
            st.sampled_from(["s1", "s1", "s1", "s0"]),
            st.integers(0, 2),
            restore=st.sampled_from([None, Restore(3, "ram"), Restore(3, "shared", "/x")]),
            checkpointed=st.booleans(),
        ),
        st.builds(finish, attempts),
    )
    others: st.SearchStrategy[machine.Event | None] = st.one_of(
        st.builds(Exited, st.integers(0, 2), st.integers(0, 3)),
        st.builds(Checkpoint, st.just("ram"), st.integers(0, 9), st.integers(0, 1), attempts),
        st.builds(Dropped, st.just("ram"), st.integers(0, 9), st.integers(0, 1), attempts),
        st.builds(Progress, attempts, st.integers(0, 9), st.integers(0, 9)),
        st.builds(Loaded, attempts, st.integers(-9, 9), st.integers(-9, 9), st.none() | st.integers(0, 2)),
        st.builds(Request, attempts, st.integers(0, 9), st.just("why")),
        st.builds(RestoreSeen, attempts),
        st.builds(RestoreMissing, attempts),
        st.builds(PortsFound, attempts, st.just(())),
        st.sampled_from([Ping(), TreeGone(), Started(), Tick()]),
        st.just(None),
    )
    rare = st.one_of(*[others] * 6, st.just(Terminate()))
    return st.tuples(st.integers(0, 3_000), st.one_of(directives, rare))


@settings(max_examples=400, deadline=None)
@given(st.lists(events(), max_size=60))
def test_no_order_of_events_breaks_the_invariants(sequence: list[tuple[int, machine.Event | None]]) -> None:
    state = machine.start(IDENTITY, "s1", 0)
    now, spawned, alive, terminated, attempt, done = 0, set[int](), False, False, 0, False
    for after, event in sequence:
        now += after
        before = state
        state, effects = machine.step(state, now, event)  # type: ignore[arg-type]
        hash(state)
        terminated = terminated or isinstance(event, Terminate)
        if isinstance(event, TreeGone):
            alive = False
        for effect in effects:
            assert not done, "nothing may be done after End"
            if isinstance(effect, Spawn):
                assert effect.attempt not in spawned, "a worker starts at most once an attempt"
                assert effect.run.session == "s1", "only this session's Run starts anything"
                assert not terminated, "nothing starts after SIGTERM"
                assert not alive, "no two workers at once"
                assert before.phase is Phase.READY
                assert before.directive is not None
                assert before.directive.attempt == effect.attempt, "only what is Ready at N runs N"
                spawned.add(effect.attempt)
                alive = True
            if isinstance(effect, (Signal, KillTree)):
                assert alive, "nobody is signalled but a live worker"
            if isinstance(effect, End):
                assert not alive, "a supervisor never leaves a worker behind"
                done = True
        report = machine.report(state, now, 1)
        assert wire.decode(wire.encode(report)) == report
        assert report.attempt >= attempt, "a supervisor never goes back"
        attempt = report.attempt
        if report.phase in {Phase.READY, Phase.DONE, Phase.IDLE}:
            assert not alive, "Ready is said only when no process is left"
        due = machine.deadline(state)
        if done:
            assert due is None
        if due is not None:
            ticked, _ = machine.step(state, max(due, now), Tick())
            assert machine.deadline(ticked) != due or ticked != state, "a timer that fires is over"


@settings(max_examples=100, deadline=None)
@given(st.lists(events(), max_size=40))
def test_left_alone_a_supervisor_without_a_controller_ends(sequence: list[tuple[int, machine.Event | None]]) -> None:
    driver = Driver()
    for after, event in sequence:
        driver.now += after
        driver.state, _ = machine.step(driver.state, driver.now, event)  # type: ignore[arg-type]
    driver.feed(TreeGone(), Tick())
    directive = driver.state.directive
    if directive is not None:
        driver.feed(PortsFound(directive.attempt, ()))
    for _ in range(10):
        if machine.deadline(driver.state) is None:
            break
        driver.sleep()
    assert driver.phase() is Phase.DONE
