"""What each node shows, and since when this controller knows it.

The rule: only nodes that show anything have a state. The same signal keeps its time, whatever reason is written beside
it; one that goes and comes again is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangctl.cluster.kube.nodes.table import Shown
from gangctl.cluster.sightings import shown_since
from gangctl.core.facts.world import NodeSignal, NodeState


class NodeStates:
    """The states by name of the node."""

    def __init__(self) -> None:
        """No node is known."""
        self.states: Mapping[str, NodeState] = {}
        """Another object after each change."""
        self._since: dict[str, dict[str, float]] = {}
        """Node -> name of a signal -> since when. A node that was seen is in it."""

    def seen(self, name: str, shown: Sequence[Shown], now: float, *, cordoned: bool) -> bool:
        """A node is seen; returns whether its state is another one than before. ``now``: seconds since the epoch."""
        before = self._since.get(name)
        old = {} if before is None else before
        since = {
            one.name: old[one.name] if one.name in old else shown_since(one.time, now, came=before is not None)
            for one in shown
        }
        self._since[name] = since
        signals = tuple(NodeSignal(one.answer, one.what, since[one.name], one.shortage) for one in shown)
        return self._put(name, NodeState(signals, cordoned))

    def gone(self, name: str) -> bool:
        """A node is gone; returns whether it had a state."""
        self._since.pop(name, None)
        return self._put(name, NodeState())

    def clear(self) -> None:
        """Another clock counts: what is seen next is seen for the first time."""
        self._since.clear()
        self.states = {}

    def _put(self, name: str, state: NodeState) -> bool:
        if state == self.states.get(name, NodeState()):
            return False
        others = {known: one for known, one in self.states.items() if known != name}
        self.states = others if state == NodeState() else {**others, name: state}
        return True
