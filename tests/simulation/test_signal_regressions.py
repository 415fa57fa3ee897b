"""What a node shows: stories of a signal that comes while a controller looks, and of one that it finds."""

from __future__ import annotations

from gangctl.core.facts.world import NodeAnswer
from tests.simulation import controller
from tests.simulation.test_regressions import go_on, running
from tests.simulation.test_silence_regressions import passes, trains
from tests.simulation.universe import Universe
from tests.simulation.values import Signal

MINUTE_MS = 60_000


def show(u: Universe, answer: NodeAnswer, *, dated: bool) -> None:
    """The node of worker-1 shows a signal."""
    u.signals |= {Signal("node-worker-1.0", answer, u.now, u.skew, dated=dated)}


def found(u: Universe, *, dated: bool) -> Universe:
    """The controller ends, a node shows a signal, and another controller leads."""
    passes(u, MINUTE_MS)
    for number in list(u.leaders):
        controller.end(u, number)
    show(u, NodeAnswer.LEAVE, dated=dated)
    passes(u, MINUTE_MS)
    return u


def test_a_signal_that_a_controller_sees_to_come_moves_the_member() -> None:
    for answer in (NodeAnswer.LEAVE, NodeAnswer.DRAIN):
        u = running("duo")
        passes(u, MINUTE_MS)
        show(u, answer, dated=False)
        go_on(u)
        assert [one.member for one in u.status.replaced] == ["worker-1"]


def test_a_controller_that_finds_a_taint_does_not_know_when_it_came() -> None:
    assert trains(found(running("duo"), dated=False))


def test_a_controller_that_finds_a_condition_goes_by_its_time() -> None:
    assert not trains(found(running("duo"), dated=True))
