"""Faults that are told to those who repair nodes: what gangctl has learnt there and has left the pod for.

    at_fault(incident) = its cause is a device, or its pod was replaced since the fault itself, the framework or a rule
                         asks for another pod

Not told is what the cluster has said itself (a lost node, a signal, a disruption), what all members did alike, and what
only the ladder has moved: a script that fails again and again is no fault of its node. A fault is told once, when its
incident is settled. Nothing is cordoned: that is for those who repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gangctl.api.incident import Incident, IncidentLevel
from gangctl.api.status import Status
from gangctl.core.facts.defaults import Strength, default

_SAID_BY_OTHERS: Final = frozenset({Strength.DISRUPTION, Strength.NODE})
_ENDS: Final = frozenset({"Restarted", "Failed", "Held"})


class NodeFault(NamedTuple):
    """A fault that was seen on a node."""

    node: str
    incident: Incident


def node_faults(before: Status, after: Status) -> Iterator[NodeFault]:
    """The faults on nodes that the second of two statuses of a gang tells first."""
    if before.incidents is after.incidents:
        return
    told = {one.attempt for one in before.incidents if one.settled}
    newest = max((one.attempt for one in before.incidents), default=0)
    for incident in after.incidents:
        node = _node(incident)
        if node and incident.attempt not in told and incident.attempt >= newest and _at_fault(incident):
            yield NodeFault(node, incident)


def _at_fault(incident: Incident) -> bool:
    cause = incident.cause
    row = default(cause.reason)
    if not incident.settled or incident.outcome not in _ENDS or cause.alike or cause.suspect:
        return False
    if row.strength in _SAID_BY_OTHERS or row.vague:
        return False
    asked = IncidentLevel.POD in {cause.level, row.level}
    return row.strength is Strength.DEVICE or (asked and incident.level is IncidentLevel.POD)


def _node(incident: Incident) -> str:
    cause = incident.cause
    members = ((one.member, one.incarnation, one.node) for one in incident.members)
    own = (node for member, number, node in members if (member, number) == (cause.member, cause.incarnation))
    return cause.node or next(own, "")
