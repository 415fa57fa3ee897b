"""One rank behind the others: stories of one that hangs, and of some that only seem to."""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.status import GangPhase
from gangctl.core.facts.progress import rank_behind
from gangctl.core.facts.world import Heard
from gangsidecar.wire import End, Phase, Progress, RankBehind, Report
from tests.simulation.test_finished_regressions import finish
from tests.simulation.test_regressions import cut_off, is_in, running
from tests.simulation.test_silence_regressions import passes, trains
from tests.simulation.universe import Universe

ONE, OTHER = "worker-0.0", "worker-1.0"
SECOND_MS = 1000


def step(u: Universe, uid: str, *steps: int, every: int | None = 1) -> None:
    """The member reports these steps, a second apart; its sidecar knows how far two reports are apart."""
    for one in steps:
        u.feed(uid, Progress(1, one, 0, every=every))
        passes(u, SECOND_MS)


def both() -> Universe:
    """Two members that have reported each of two steps."""
    u = running("spare")
    for one in (1, 2):
        step(u, ONE, one)
        step(u, OTHER, one)
    return u


def test_a_rank_that_the_others_leave_behind_hangs() -> None:
    u = both()
    for one in range(3, 30):
        step(u, ONE, one)
        passes(u, 10 * SECOND_MS)
    assert trains(u)
    step(u, ONE, 30, 31)
    passes(u, 20 * SECOND_MS)
    assert u.status.incidents[0].cause.reason == "Hang"
    assert u.status.incidents[0].cause.member == "worker-1"


def test_a_rank_that_reports_each_tenth_step_is_not_behind() -> None:
    u = running("spare")
    step(u, OTHER, 1, 11, every=10)
    for one in range(1, 20):
        step(u, ONE, one)
        passes(u, 100 * SECOND_MS)
    assert trains(u)


def test_a_rank_that_has_reported_one_step_is_not_behind() -> None:
    u = running("spare")
    step(u, OTHER, 1, every=None)
    for one in range(1, 13):
        step(u, ONE, one)
        passes(u, 100 * SECOND_MS)
    assert trains(u)


def beside(u: Universe, steps: int, last: int, every: int = 1) -> None:
    """A rank of the first member goes on, and its other one has made its last step; the other member goes on, too."""
    begun = u.now
    for one in range(last + 1, last + steps):
        behind = RankBehind(1, last, u.now - begun)
        u.feed(ONE, Progress(1, one, 0, every=every, behind=behind))
        step(u, OTHER, one)
        passes(u, 20 * SECOND_MS)


def test_a_rank_that_the_others_of_its_pod_leave_behind_hangs() -> None:
    u = both()
    beside(u, 20, 2)
    cause = u.status.incidents[0].cause
    assert (cause.reason, cause.member, cause.rank) == ("Hang", "worker-0", 1)


def test_a_rank_that_reports_each_hundredth_step_is_not_behind_in_its_pod() -> None:
    u = both()
    beside(u, 20, 2, every=100)
    assert trains(u)


def test_a_rank_that_has_ended_is_not_behind_in_its_pod() -> None:
    heard = Heard(Report("u", "worker-0", 0, "p", "s", 1, 1, Phase.RUNNING), 0.0)
    behind = Progress(1, 90, 0, every=1, behind=RankBehind(1, 3, 0))
    going = replace(heard, report=replace(heard.report, progress=behind))
    assert rank_behind(going) is not None
    ended = replace(going.report, ends=(End(1, 1, 0, rank=1, exit_code=0),))
    assert rank_behind(replace(going, report=ended)) is None


def test_a_rank_that_has_finished_is_not_behind() -> None:
    u = both()
    finish(u, "worker-1")
    for one in range(3, 15):
        step(u, ONE, one)
        passes(u, 100 * SECOND_MS)
    assert is_in(u, GangPhase.RUNNING, 1)


def test_a_rank_whose_report_comes_a_moment_later_is_not_behind() -> None:
    u = both()
    passes(u, 295 * SECOND_MS)
    step(u, ONE, 10)
    passes(u, 7 * SECOND_MS)
    step(u, OTHER, 10)
    passes(u, 200 * SECOND_MS)
    assert trains(u)


def test_a_silence_that_is_not_noticed_yet_is_no_hang() -> None:
    for silent in ((OTHER,), (ONE, OTHER)):
        u = both()
        passes(u, 285 * SECOND_MS)
        if OTHER in silent and ONE not in silent:
            step(u, ONE, 10)
            passes(u, 5 * SECOND_MS)
        for uid in silent:
            u.boxes[uid] = u.boxes[uid]._replace(mute=True)
        passes(u, 19 * SECOND_MS)
        assert trains(u)


def test_a_member_that_reports_no_steps_does_not_know_whether_a_silent_one_hangs() -> None:
    u = running("spare")
    step(u, ONE, 1, 2)
    cut_off(u, ONE)
    passes(u, 7200 * SECOND_MS)
    assert trains(u)
