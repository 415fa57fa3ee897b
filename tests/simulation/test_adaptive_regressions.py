"""A deadline that follows the steps: stories of gangs that hang, and of some that are only slow for once."""

from __future__ import annotations

from gangctl.api.recovery import Adaptive
from gangctl.api.status import GangPhase
from tests.simulation.test_regressions import is_in, run_again, running
from tests.simulation.test_silence_regressions import another_leads, passes, trains
from tests.simulation.training import make_step
from tests.simulation.universe import Universe

SECOND_MS = 1000


def fast() -> Universe:
    """A gang of two whose deadline follows its steps."""
    u = running("spare")
    u.change_spec(progress=u.spec.progress.model_copy(update={"adaptive": Adaptive()}))
    return u


def train(u: Universe, steps: int, ms: int = SECOND_MS) -> None:
    """Both make so many steps, each of which takes so long."""
    for _ in range(steps):
        passes(u, ms)
        for uid in ("worker-0.0", "worker-1.0"):
            make_step(u, uid, u.boxes[uid].procs[0])


def hangs_within(u: Universe, ms: int) -> None:
    attempt = u.status.attempt
    passes(u, ms)
    assert u.status.attempt == attempt + 1
    assert u.status.incidents[0].cause.reason == "Hang"


def test_a_fast_gang_that_stops_hangs_long_before_the_timeout() -> None:
    u = fast()
    train(u, 12)
    passes(u, 8 * SECOND_MS)
    assert trains(u)
    hangs_within(u, 12 * SECOND_MS)


def test_a_few_steps_are_not_enough_to_know() -> None:
    u = fast()
    train(u, 5)
    passes(u, 290 * SECOND_MS)
    assert trains(u)
    hangs_within(u, 15 * SECOND_MS)


def test_a_slow_step_is_not_forgotten_however_long_ago_it_was() -> None:
    u = fast()
    train(u, 10)
    train(u, 1, 9 * SECOND_MS)
    train(u, 40)
    passes(u, 80 * SECOND_MS)
    assert trains(u)
    hangs_within(u, 20 * SECOND_MS)


def test_another_controller_goes_on_with_the_deadline_and_the_slow_step() -> None:
    u = fast()
    train(u, 10)
    train(u, 1, 9 * SECOND_MS)
    train(u, 3)
    another_leads(u)
    train(u, 20)
    passes(u, 75 * SECOND_MS)
    assert trains(u)
    hangs_within(u, 30 * SECOND_MS)


def test_an_attempt_that_repeats_steps_has_the_whole_timeout() -> None:
    u = fast()
    train(u, 40)
    hangs_within(u, 20 * SECOND_MS)
    run_again(u)
    for uid in ("worker-0.0", "worker-1.0"):
        u.boxes[uid] = u.boxes[uid]._replace(step=20)
    train(u, 12)
    passes(u, 200 * SECOND_MS)
    assert is_in(u, GangPhase.RUNNING, 2)
    train(u, 10)
    passes(u, 200 * SECOND_MS)
    assert is_in(u, GangPhase.RUNNING, 2)
