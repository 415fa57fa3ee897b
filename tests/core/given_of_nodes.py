"""What can happen to nodes in the world of a scenario file: one function a sentence."""

from __future__ import annotations

from gangctl.core.facts.world import NodeAnswer, NodeSignal, NodeState, Shortage
from tests.core.world import World


def lose_node(world: World, member: str) -> None:
    """Its node doesn't answer, as the controller's own watch shows."""
    world.lost[node_of(world, member)] = world.now


def node_shows(world: World, member: str, answer: str, ago: str | None = None) -> None:
    """Its node shows something that the table of signals knows."""
    node = node_of(world, member)
    state = world.nodes.get(node, NodeState())
    signal = NodeSignal(NodeAnswer(answer), f"condition Is{answer}=True", world.now - float(ago or 0))
    world.nodes[node] = state._replace(signals=(*state.signals, signal))


def node_lacks(world: World, left: str, total: str, resource: str, member: str) -> None:
    """Its node has fewer healthy devices than devices."""
    node = node_of(world, member)
    state = world.nodes.get(node, NodeState())
    what, short = f"allocatable {resource}={left} of {total}", Shortage(resource, int(left))
    signal = NodeSignal(NodeAnswer.LEAVE_AT_RESTART, what, world.now, short)
    world.nodes[node] = state._replace(signals=(*state.signals, signal))


def device_tainted(world: World, member: str) -> None:
    """A device of its pod was tainted just now."""
    pod = world.pods[world.newest(member)]
    state = world.nodes.get(pod.node, NodeState())
    what = "the taint example.com/sick:NoSchedule of device d/p/0"
    signal = NodeSignal(NodeAnswer.LEAVE_AT_RESTART, what, world.now, pod=pod.uid)
    world.nodes[pod.node] = state._replace(signals=(*state.signals, signal))


def cordon(world: World, member: str) -> None:
    """Its node takes no new pods."""
    node = node_of(world, member)
    world.nodes[node] = world.nodes.get(node, NodeState())._replace(cordoned=True)


def avoid_node(world: World, member: str) -> None:
    """Gangs have met faults on its node."""
    world.unfavoured |= {node_of(world, member)}


def node_of(world: World, member: str) -> str:
    return world.pods[world.newest(member)].node
