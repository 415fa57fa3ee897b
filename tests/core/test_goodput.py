"""What a gang's time went to: nothing is lost or counted twice, whatever happens and whichever controller counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Spent, Status
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.decide import decide
from gangctl.core.record.conditions import goodput, spent_until, total
from tests.core.arbitrary import jobs, worlds
from tests.core.scenario import sentence
from tests.core.test_random_walks import GO_ON, JOB, OF_ALL, OF_ONE
from tests.core.world import MANIFEST, START, World
from tests.effort import examples

CALM = examples(40)
MORE = ("worker-0 reports step 151", "worker-1 reports step 160", "0.7 s pass", "13 s pass")
members = st.sampled_from(["worker-0", "worker-1", "worker-2"])
lines = (
    st.just(GO_ON)
    | st.builds(str.format, st.sampled_from(OF_ONE), members).map(lambda one: (one,))
    | st.sampled_from([*OF_ALL, *MORE]).map(lambda one: (one,))
)


def never_down(before: Spent, after: Spent) -> None:
    """No bucket has lost anything, and no more is lost than there was."""
    for name in Spent.model_fields:
        assert getattr(after, name) >= getattr(before, name) - 1e-9, name
    assert after.lost_progress + after.missing_members <= after.training + 1e-9


@CALM
@given(st.lists(lines, min_size=3, max_size=30))
def test_one_bucket_counts_each_second_since_the_gang_was_first_seen(walk: list[tuple[str, ...]]) -> None:
    world = World()
    world.submit(JOB)
    world.decide()
    for line in (line for some in walk for line in some):
        before = world.job.status
        try:
            sentence(world, line)
        except (KeyError, ValueError):
            continue  # Whom it speaks of isn't there.
        for _ in range(6):
            if world.decide().status is None:
                break
        after = world.job.status
        never_down(before.spent, after.spent)
        assert after.accounted_time >= before.accounted_time
        assert total(after.spent) == pytest.approx(after.accounted_time - START, abs=0.01)


@CALM
@given(st.data())
def test_no_bucket_goes_down_whatever_was_stored(data: st.DataObject) -> None:
    job = data.draw(jobs())
    spent = job.status.spent
    if spent.lost_progress + spent.missing_members > spent.training:
        spent = spent.model_copy(update={"lost_progress": 0.0, "missing_members": 0.0})
    job = job.model_copy(update={"status": job.status.model_copy(update={"spent": spent})})
    after = decide(START, job, data.draw(worlds(job))).status
    if after is not None:
        never_down(spent, after.spent)
        assert after.accounted_time >= job.status.accounted_time
        added = total(after.spent) - total(spent)
        since = job.status.accounted_time
        expected = after.accounted_time - since if since and job.status.phase is not GangPhase.NEW else 0.0
        assert added == pytest.approx(expected, abs=0.01)


@CALM
@given(jobs(), st.integers(0, 10_000))
def test_no_bucket_shows_less_when_it_is_read_later(job: GangJob, seconds: int) -> None:
    status = job.status
    never = status.phase in {GangPhase.NEW, GangPhase.SUCCEEDED, GangPhase.FAILED} or not status.accounted_time
    read = spent_until(status, START + 1000 + seconds)
    for name in Spent.model_fields:
        assert getattr(read, name) >= getattr(status.spent, name) - 1e-9
    passed = 0 if never else START + 1000 + seconds - status.accounted_time
    assert total(read) - total(status.spent) == pytest.approx(passed, abs=0.01)


def test_a_status_of_an_older_version_is_accounted_for_from_its_next_write_on() -> None:
    job = GangJob.model_validate(MANIFEST)
    old = Status(phase=GangPhase.SUSPENDED, attempt=3, phase_time=START - 100)
    made = job.model_copy(update={"status": old})
    after = decide(START, made, Observed()).status
    assert after is not None
    assert (after.accounted_time, total(after.spent)) == (START, 0.0)
    assert spent_until(old, START + 50) == old.spent


def test_goodput_does_not_count_work_that_was_done_again() -> None:
    assert goodput(Spent(training=60, lost_progress=10, start_up=20, recovery=20)) == 0.5
    assert goodput(Spent(start_up=20)) is None


TIER = "checkpoint: {tiers: [{name: store, scope: Shared, source: {type: API}}]}"


def trained() -> World:
    """A gang of two that has made 200 steps in 200 s and fails now. No rank has saved a checkpoint."""
    world = World()
    world.submit(f"roles: [{{name: worker, replicas: 2}}]\n{TIER}")
    for line in ("the gang runs", "worker-0 reports step 1", "200 s pass", "worker-0 reports step 201"):
        sentence(world, line)
    sentence(world, "worker-1 ends with 3")
    sentence(world, "decide")
    return world


def started(world: World, *lines: str) -> Spent:
    """What is spent when an attempt has been started after these lines."""
    for line in (*lines, "decide", "every pod starts", "everyone is Ready", "decide"):
        sentence(world, line)
    assert world.job.status.phase is GangPhase.RUNNING
    return world.job.status.spent


GONE = ("the pod of worker-0 has ended", "the pod of worker-1 has ended", "decide")


@pytest.mark.parametrize(
    "lines",
    [
        ("1 s pass",),
        ("suspend becomes true", "decide", *GONE, "suspend becomes false", "decide"),
        ("1 s pass", "suspend becomes true", "decide", *GONE, "a new controller starts", "suspend becomes false"),
    ],
)
def test_lost_progress_counts_when_an_attempt_that_never_ran_lies_between(lines: tuple[str, ...]) -> None:
    assert started(trained(), *lines).lost_progress == pytest.approx(200)


def test_lost_progress_counts_after_the_gang_was_held() -> None:
    world = World()
    world.submit(
        f"roles: [{{name: worker, replicas: 2}}]\n{TIER}\n"
        "recovery: {budget: {type: Windowed, maxRestarts: 0}, onExhausted: Hold}"
    )
    for line in ("the gang runs", "worker-0 reports step 1", "200 s pass", "worker-0 reports step 201"):
        sentence(world, line)
    for line in ("worker-1 ends with 3", "decide", "everyone is Ready", "60 s pass", "decide"):
        sentence(world, line)
    assert world.job.status.phase is GangPhase.HELD
    assert started(world, "restartToken becomes again").lost_progress == pytest.approx(200)
    assert world.job.status.incidents[0].lost_steps == 201


def test_what_a_script_lost_that_finds_its_checkpoints_by_itself_is_unknown() -> None:
    world = World()
    for line in ("the gang runs", "worker-0 reports step 1", "200 s pass", "worker-0 reports step 201"):
        sentence(world, line)
    for line in ("worker-1 ends with 3", "decide"):
        sentence(world, line)
    assert started(world).lost_progress == 0
    told = world.job.status.incidents[0]
    assert (told.outcome, told.lost_steps, told.lost_steps_at_most, told.lost_seconds) == (
        "Restarted",
        None,
        None,
        None,
    )


def test_lost_progress_counts_once_when_the_next_attempt_makes_no_step() -> None:
    world = trained()
    once = started(world).lost_progress
    sentence(world, "everyone runs")
    for line in ("worker-1 ends with 3", "decide", "suspend becomes true", "decide", *GONE, "suspend becomes false"):
        sentence(world, line)
    assert started(world).lost_progress == once > 0


@CALM
@given(st.floats(1.7e9, 1.9e9), st.floats(0, 1e5), st.integers(0, 100_000))
def test_a_status_is_read_back_with_the_times_that_were_written(begun: float, passed: float, age: int) -> None:
    world = World(now=round(begun, 6), listening_since=0.0)
    for line in ("the gang runs", "worker-0 reports step 1"):
        sentence(world, line)
    sentence(world, f"{passed:.6f} s pass")
    sentence(world, f"worker-1 ends with 3, {age} ms ago")
    sentence(world, "decide")  # It compares what is read back.
    status = world.job.status
    assert status.accounted_time == pytest.approx(world.now, abs=0.002)
    assert status.first_step is not None


def test_the_time_of_a_hang_that_is_only_observed_is_no_training() -> None:
    world = World()
    world.submit("{progress: {timeoutSeconds: 100}}")
    for line in ("the gang runs", "worker-0 reports step 7", "decide", "200 s pass", "decide"):
        sentence(world, line)
    status = world.job.status
    assert "no rank makes progress" in status.message
    later = spent_until(status, world.now + 1000)
    assert (later.training, later.recovery) == (status.spent.training, status.spent.recovery + 1000)
    for line in ("worker-0 reports step 8", "decide", "worker-0 reports step 9", "31 s pass", "decide"):
        sentence(world, line)
    status = world.job.status
    assert status.message == "attempt 1 runs"
    assert spent_until(status, world.now + 10).training == status.spent.training + 10
