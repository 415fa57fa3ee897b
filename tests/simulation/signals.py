"""What others say of nodes, as the simulation has it: a node is faulty, is about to go, or is to be left some day.

A controller sees a signal late. One that starts anew, or comes back to its watch, can't know when a taint came. What a
node showed before both the controller and the attempt began is history: invariant 9 asks for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangctl.cluster.sightings import shown_since
from gangctl.core.facts.world import NodeAnswer, NodeSignal, NodeState
from tests.simulation.values import Box, Fault, Leader, Seen, Signal, seconds

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

ANSWERS: Final = (*NodeAnswer, NodeAnswer.LEAVE, NodeAnswer.DRAIN)
MAX_SHOWN: Final = 2
SLACK_MS: Final = 5_000


def _show(u: Universe, target: int) -> None:
    """A node shows a signal: a condition, whose time is written, or a taint."""
    nodes = sorted({box.node for box in u.boxes.values()} - {one.node for one in u.signals})
    if nodes and len(u.signals) < MAX_SHOWN:
        answer = ANSWERS[target % len(ANSWERS)]
        u.signals |= {Signal(nodes[target % len(nodes)], answer, u.now, u.skew, dated=target % 3 > 0)}


def _hide(u: Universe, target: int) -> None:
    found = sorted(u.signals)
    if found:
        u.signals -= {found[target % len(found)]}


def first_seen(u: Universe) -> frozenset[Seen]:
    """What a controller sees that starts."""
    return frozenset(
        Seen(one, shown_since(seconds(one.at + one.skew) if one.dated else None, u.wall, came=False))
        for one in u.signals
    )


def seen(u: Universe, leader: Leader) -> frozenset[Seen]:
    """What a controller sees whose watch goes on."""
    known = {one.signal: one for one in leader.signals}
    now = seconds(u.clock(leader))
    return frozenset(known.get(one, Seen(one, shown_since(None, now, came=True))) for one in u.signals)


def states(leader: Leader) -> dict[str, NodeState]:
    """The same as the core gets it."""
    return {
        one.node: NodeState((NodeSignal(one.answer, "condition Bad=True", since),)) for one, since in leader.signals
    }


def against(u: Universe, leader: Leader, box: Box, *, at_restart: bool) -> str:
    """What the node of a pod has come to show, that the pod has to leave it; empty: nothing."""
    answers = set(NodeAnswer) - {NodeAnswer.NOTE} - (set() if at_restart else {NodeAnswer.LEAVE_AT_RESTART})
    for one, _ in leader.signals:
        old = not at_restart and one.at < min(u.phase_at, leader.began) - SLACK_MS
        if one.node == box.node and one.answer in answers and not old:
            return f"{box.node} shows {one.answer}"
    return ""


SIGNALS: Final[dict[str, Fault]] = {"a node shows a signal": _show, "a node shows a signal no more": _hide}
