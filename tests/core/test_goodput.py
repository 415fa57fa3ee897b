"""What a gang's time went to: nothing is lost or counted twice, whatever happens and whoever counts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Spent, Status
from gangctl.core.decide import decide
from gangctl.core.goodput import goodput, spent_until, total
from gangctl.core.world import Observed
from tests.core.arbitrary import jobs, worlds
from tests.core.scenario import sentence
from tests.core.test_random_walks import GO_ON, JOB, OF_ALL, OF_ONE
from tests.core.world import MANIFEST, START, World

CALM = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
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
    assert after.lost_progress <= after.training + 1e-9


@CALM
@given(st.lists(lines, min_size=3, max_size=30))
def test_all_time_since_it_was_first_seen_is_in_one_bucket_whatever_happens(walk: list[tuple[str, ...]]) -> None:
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
def test_no_bucket_ever_goes_down_whatever_was_stored(data: st.DataObject) -> None:
    job = data.draw(jobs())
    spent = job.status.spent
    if spent.lost_progress > spent.training:
        spent = spent.model_copy(update={"lost_progress": 0.0})
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
def test_reading_it_later_never_shows_less(job: GangJob, seconds: int) -> None:
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


def test_what_was_done_again_is_no_goodput() -> None:
    assert goodput(Spent(training=60, lost_progress=10, start_up=20, recovery=20)) == 0.5
    assert goodput(Spent(start_up=20)) is None
