"""Since when a node shows something: only what was seen to come is new."""

from __future__ import annotations

from gangctl.cluster.kube.informers import NodeStates
from gangctl.core.facts.world import NodeAnswer, NodeState
from gangctl.kubernetes.signals import ShownSignal

NOW = 1000.0


def see(states: NodeStates, *shown: ShownSignal, at: float = NOW, cordoned: bool = False) -> bool:
    """The node shows this."""
    return states.update("n", shown, at, cordoned=cordoned)


def xid(time: float | None = None, reason: str = "") -> ShownSignal:
    """A condition, or a taint if it has no time."""
    return ShownSignal("xid", NodeAnswer.LEAVE, f"condition XIDErrors=True{reason}", time)


def since(states: NodeStates) -> list[float]:
    """Since when the node shows its signals."""
    return [one.since for one in states.states["n"].signals]


def test_what_was_seen_to_come_came_now_whatever_is_written() -> None:
    states = NodeStates()
    assert not see(states)
    for written in (None, 3.0, NOW + 3600):
        assert see(states, xid(written))
        assert since(states) == [NOW]
        assert see(states)


def test_what_was_there_before_has_the_time_that_is_written_or_none() -> None:
    for written, seen in ((None, 0.0), (3.0, 3.0), (NOW, NOW), (NOW + 1, 0.0)):
        states = NodeStates()
        see(states, xid(written))
        assert since(states) == [seen]


def test_a_signal_keeps_its_time_whatever_reason_is_written_beside_it() -> None:
    states = NodeStates()
    see(states)
    see(states, xid(NOW))
    assert see(states, xid(NOW + 9, " (Xid 79)"), at=NOW + 9)
    assert since(states) == [NOW]
    assert not see(states, xid(NOW + 9, " (Xid 79)"), at=NOW + 10)
    see(states, at=NOW + 20)
    see(states, xid(), at=NOW + 30)
    assert since(states) == [NOW + 30], "it went and came again"


def test_a_node_that_shows_nothing_has_no_state() -> None:
    states = NodeStates()
    see(states)
    assert states.states == {}
    see(states, cordoned=True)
    assert states.states == {"n": NodeState(cordoned=True)}
    assert states.remove("n")
    assert states.states == {}
    assert not states.remove("n")
    see(states, xid())
    assert since(states) == [0.0], "it is another node of the same name"


def test_a_new_term_knows_nothing_of_taints_that_are_there() -> None:
    states = NodeStates()
    see(states)
    see(states, xid())
    states.clear()
    see(states, xid(), at=NOW + 5)
    assert since(states) == [0.0]
