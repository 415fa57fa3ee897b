"""What was read for one question, and what is made of it: the chain of a node or of a pod, or the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from gangctl.explain.doctor.facts import Inside, Node, Pod, Surroundings, Unread
from gangctl.explain.doctor.links import Link, LinkName, unread
from gangctl.explain.doctor.node_chain import has_devices, node_chain
from gangctl.explain.doctor.pod_chain import pod_chain
from gangctl.explain.doctor.pools import Member, Pool, pools

_OF_NODE: Final = (LinkName.NODE, LinkName.SIGNALS, LinkName.CAPACITY, LinkName.ALLOCATABLE)
"""Links that nothing but the node tells."""


@dataclass(frozen=True)
class NodeSurvey:
    """One node."""

    name: str
    node: Node | Unread
    around: Surroundings

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The chain."""
        if isinstance(self.node, Unread):
            return tuple(unread(name, self.node) for name in _OF_NODE)
        return node_chain(self.node, self.around)


@dataclass(frozen=True)
class PodSurvey:
    """One pod, and its node if it has one."""

    pod: Pod
    node: NodeSurvey | None
    inside: Inside | None
    """None if no program was to look into its container."""

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The chain of the pod, without that of its node."""
        around = Surroundings() if self.node is None else self.node.around
        node = None if self.node is None or isinstance(self.node.node, Unread) else self.node.node
        return pod_chain(self.pod, node, around, self.inside)


@dataclass(frozen=True)
class FleetSurvey:
    """All nodes."""

    members: tuple[Member, ...]
    unread: tuple[Unread, ...]
    """What this user may not read."""

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The nodes with devices, in pools."""
        return pools(self.members)

    @cached_property
    def without_devices(self) -> int:
        """Number of the other nodes."""
        return sum(not has_devices(*one) for one in self.members)


Survey = NodeSurvey | PodSurvey | FleetSurvey
