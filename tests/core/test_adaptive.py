"""The deadline that follows the steps: never shorter than a gap allows, never longer than timeoutSeconds."""

from __future__ import annotations

import random

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, StepGaps
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Gaps, Heard, gaps
from gangctl.core.policy import hangs
from gangctl.core.policy.hangs import ENOUGH, FLOOR_SECONDS, hang
from gangsidecar.wire import Phase, Progress, Report
from tests.core.scenario import sentence
from tests.core.world import World

FACTOR = 10
MOST = 600
SPEC = f"progress: {{timeoutSeconds: {MOST}, adaptive: {{factor: {FACTOR}}}, onHang: Restart}}"


def started(spec: str = SPEC) -> World:
    made = World()
    made.submit(f"roles: [{{name: worker, replicas: 2}}]\n{spec}")
    sentence(made, "the gang runs")
    decided(made)
    return made


def decided(made: World) -> None:
    while made.decide().status is not None:
        pass


def look(made: World) -> Gang:
    return Gang(made.now, made.job, made.observed())


def step(made: World, number: int, after: float, member: str = "worker-0") -> None:
    """The member makes this step so many seconds later, and everything is decided."""
    sentence(made, f"{after} s pass")
    sentence(made, f"{member} reports step {number}")
    decided(made)


def steps(made: World, times: list[float], first: int = 1) -> None:
    """The first step, and one after each of these gaps. None of them may be called a hang."""
    attempt = made.job.status.attempt
    for number, gap in enumerate([1.0, *times], first):
        sentence(made, f"{gap} s pass")
        assert hang(look(made)) is None, f"step {number} was called a hang after {gap} s"
        step(made, number, 0)
    assert (made.job.status.phase, made.job.status.attempt) == (GangPhase.RUNNING, attempt)


def limit(made: World) -> float:
    found = hangs.adaptive_deadline(look(made))
    return MOST if found is None else found.seconds


def restarts(made: World) -> None:
    """The gang restarts for another reason, and runs."""
    sentence(made, "worker-1 ends with 3")
    decided(made)
    sentence(made, "everyone is Ready")
    decided(made)
    sentence(made, "everyone runs")
    decided(made)
    assert made.job.status.phase is GangPhase.RUNNING


def test_it_is_a_multiple_of_the_longest_gap_once_enough_were_seen() -> None:
    made = started()
    steps(made, [2.0] * (ENOUGH - 1))
    assert limit(made) == MOST
    step(made, 20, 3.0)
    assert limit(made) == 30.0


def test_a_gang_hangs_at_the_deadline_and_the_sentence_says_where_it_comes_from() -> None:
    made = started()
    steps(made, [4.0] * ENOUGH)
    sentence(made, "39 s pass")
    assert hang(look(made)) is None
    sentence(made, "1 s pass")
    fault = hang(look(made))
    assert fault is not None
    why = "the deadline is 40 s: 10 times the longest time between two reported steps (4 s)"
    assert fault.message == f"no rank makes progress; its last step was 9; {why}"


def test_fast_steps_have_the_floor() -> None:
    made = started()
    steps(made, [0.2] * 40)
    assert limit(made) == FLOOR_SECONDS
    found = hangs.adaptive_deadline(look(made))
    assert found is not None
    assert found.text.endswith("(0.2 s), and at least 15 s")


def test_it_is_never_above_the_timeout() -> None:
    made = started()
    steps(made, [MOST / FACTOR] * (2 * ENOUGH))
    assert limit(made) == MOST


def test_jitter_is_no_hang() -> None:
    drawn = random.Random(7)
    made = started()
    steps(made, [drawn.lognormvariate(0, 0.5) for _ in range(300)])


@pytest.mark.parametrize("every", [10, 200])
def test_a_checkpoint_that_takes_twenty_steps_is_no_hang_however_seldom_it_comes(every: int) -> None:
    made = started()
    steps(made, [1.0] * (ENOUGH - 2) + [20.0] + ([1.0] * (every - 1) + [20.0]) * 3)
    assert limit(made) == 200.0


def test_an_evaluation_that_is_reported_has_its_own_timeout_and_is_no_gap() -> None:
    made = started()
    steps(made, [1.0] * ENOUGH)
    sentence(made, "worker-0 is in phase Evaluation")
    sentence(made, "3000 s pass")
    assert hang(look(made)) is None
    step(made, 50, 0)
    assert limit(made) == FLOOR_SECONDS


def test_the_start_of_an_attempt_keeps_its_timeout_and_its_first_step_is_no_gap() -> None:
    made = started()
    steps(made, [1.0] * ENOUGH)
    restarts(made)
    assert limit(made) == MOST
    sentence(made, "1790 s pass")
    assert hang(look(made)) is None
    steps(made, [1.0] * ENOUGH, first=100)
    assert limit(made) == FLOOR_SECONDS


def test_an_attempt_that_repeats_steps_is_judged_by_the_timeout() -> None:
    made = started()
    steps(made, [1.0] * 20)  # To step 21.
    restarts(made)
    steps(made, [1.0] * 10, first=11)
    assert limit(made) == MOST
    step(made, 22, 1.0)
    assert limit(made) == FLOOR_SECONDS


def test_a_slow_step_that_was_called_a_hang_is_so_once() -> None:
    made = started()
    steps(made, [1.0] * 20)
    sentence(made, "15 s pass")
    decided(made)
    assert made.job.status.incidents[0].cause.reason == "Hang"
    sentence(made, "everyone is Ready")
    decided(made)
    sentence(made, "everyone runs")
    decided(made)
    steps(made, [1.0] * 9 + [50.0], first=12)
    step(made, 23, 1.0)
    assert limit(made) == 500.0


def test_a_new_controller_goes_on_with_what_is_stored() -> None:
    made = started()
    steps(made, [4.0] * ENOUGH)
    sentence(made, "31 s pass")
    decided(made)
    sentence(made, "a new controller starts")
    sentence(made, "everyone connects again")
    decided(made)
    assert limit(made) == 40.0
    assert {heard.gaps.seen for heard in made.heard.values()} == {0}


@pytest.mark.parametrize(
    "changes", [{"connected": False}, {"session": "another"}, {"attempt": 1}, {"phase": "Startup"}]
)
def test_what_was_not_heard_is_no_gap(changes: dict[str, object]) -> None:
    def report(step: int, attempt: int = 2, phase: str = "Step", session: str = "one") -> Report:
        return Report(
            "g", "worker-0", 0, "u", session, step, 2, Phase.RUNNING, progress=Progress(attempt, step, 0, phase)
        )

    known = Gaps(2, 3, 1.0)
    after = report(9)
    heard = Heard(report(1), 100.0, gaps=known)
    assert gaps(heard, after, 400.0) == Gaps(2, 4, 300.0)
    said = {name: value for name, value in changes.items() if name != "connected"}
    other = Heard(report(1, **said), 100.0, connected="connected" not in changes, gaps=known)  # type: ignore[arg-type]
    assert gaps(other, after, 400.0) == (Gaps(2) if "attempt" in changes else known)
    assert gaps(None, after, 400.0) == Gaps(2)


def test_a_stale_status_is_only_a_lower_bound() -> None:
    made = started()
    stale = StepGaps(attempt=0, longest_milliseconds=7000)
    made.job = made.job.model_copy(update={"status": made.job.status.model_copy(update={"step_gaps": stale})})
    steps(made, [1.0] * (ENOUGH - 1))
    assert limit(made) == MOST
    step(made, 50, 1.0)
    assert limit(made) == 70.0


def test_the_status_is_not_written_for_less_than_a_tenth() -> None:
    made = started()
    steps(made, [10.0] * ENOUGH)
    stored = made.job.status.step_gaps
    assert stored == StepGaps(attempt=1, longest_milliseconds=10_000)
    step(made, 50, 10.9)
    sentence(made, "31 s pass")
    decided(made)
    assert made.job.status.step_gaps == stored
    assert limit(made) == pytest.approx(109, abs=0.1)
    step(made, 51, 20.0)
    stored = made.job.status.step_gaps
    assert stored is not None
    assert stored.longest_milliseconds == pytest.approx(51_000, abs=2)


def test_the_gap_of_a_rank_is_between_its_own_steps() -> None:
    made = started()
    for number in range(1, 20):
        step(made, number, 1.0)
        if number % 10 == 1:
            step(made, number, 0, "worker-1")
    assert limit(made) == 100.0


def test_progress_without_a_number_has_no_gaps() -> None:
    made = started()
    for _ in range(20):
        sentence(made, "1 s pass")
        sentence(made, "worker-0 makes a step without a number")
    assert {heard.gaps.seen for heard in made.heard.values()} == {0}
    assert limit(made) == MOST


def test_without_the_option_nothing_is_stored() -> None:
    made = started(f"progress: {{timeoutSeconds: {MOST}, onHang: Restart}}")
    steps(made, [1.0] * 40)
    assert made.job.status.step_gaps is None
    assert limit(made) == MOST


def test_a_clock_that_is_set_back_makes_no_gap_shorter_than_none() -> None:
    made = started()
    steps(made, [1.0] * ENOUGH)
    sentence(made, "the clock is set back by 500 s")
    sentence(made, "worker-0 reports step 60")
    assert max(heard.gaps.longest for heard in made.heard.values()) == pytest.approx(1.0)
    assert Gaps().longest == 0.0


def test_what_the_status_shows_is_what_is_in_force() -> None:
    made = started()
    steps(made, [4.0] * ENOUGH)
    sentence(made, "31 s pass")
    decided(made)
    job: GangJob = made.job
    assert hangs.stored_deadline(job) == hangs.adaptive_deadline(look(made))
