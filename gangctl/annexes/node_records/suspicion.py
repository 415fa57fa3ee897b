"""Decide which nodes are suspected, and what those who repair nodes are announced. Pure.

The rule, with score(node) as in ``records.py``, but each namespace counting at most AVOIDED / NAMESPACES:

    suspected begins <=> score(node) >= AVOIDED
    suspected ends   <=> score(node) <  AVOIDED / 2: the record was cleared, or a week has passed without a fault
    neither          if  the node is gone, or was made anew after its last fault
    at once          <=  max(1, nodes // SHARE): those that are suspected already stay, then come the worst

What is announced follows from the stored records and from what is found in the cluster, so a new leader, or the same
after a crash between the two, goes on where the last one stopped. Fewer than NAMESPACES tenants together must not have
a node taken from others, and a wrong record must not take a cluster out of service.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import Any, Final

from gangctl.annexes.node_records.records import AVOIDED, NodeRecord, Records
from gangctl.api.model import rfc3339
from gangctl.kubernetes.objects import SUSPECTED, Node
from gangctl.words.text import listed

SHARE: Final = 10
"""One node of so many may be suspected at a time."""
GROUP: Final = "nvsentinel.dgxc.nvidia.com"
API: Final = f"/apis/{GROUP}/v1"
PLURAL: Final = "maintenancerequests"
CONTROLLER: Final = "gangctl.io/controller"
"""Annotation: NAMESPACE/NAME of the controller that made an object."""
_LONGEST_NAME: Final = 253
_MOST_WORDS: Final = 4


def suspected(
    records: Records, nodes: Iterable[Node], announced: Collection[str], now: float, namespaces: int
) -> tuple[str, ...]:
    """The nodes that are suspected: first those of which that was announced, then the worst.

    Args:
        records: as they are stored.
        nodes: all nodes of the cluster.
        announced: those that are announced to be suspected.
        now: in seconds since the epoch.
        namespaces: in how many namespaces a node must have failed.
    """
    there = {one.name: one for one in nodes}
    scores = {
        name: record.score(now, most=AVOIDED / namespaces)
        for name, record in records.items()
        if name in there and there[name].created_at <= record.last_fault
    }
    stay = [name for name in sorted(announced) if scores.get(name, 0.0) >= AVOIDED / 2]
    more = sorted((-score, name) for name, score in scores.items() if score >= AVOIDED and name not in stay)
    room = max(0, max(1, len(there) // SHARE) - len(stay))
    return (*stay, *(name for _, name in more[:room]))


def why(node: str, record: NodeRecord, now: float) -> str:
    """Say why a node is suspected, and what to do. No gang is named: others may read it."""
    kinds = [f"{name} {weight:.1f}" for name, weight in record.at(now).kinds.items()][:_MOST_WORDS]
    return (
        f"gangs met faults on this node, with their weight by age: {listed(kinds)}; the last at "
        f"{rfc3339(record.last_fault)[:19]}Z. After the repair: gangctl nodes {node} --clear"
    )


def described(node: Node | None, record: NodeRecord, now: float) -> str:
    """Say whether a node is suspected, and why. ``node``: None = it isn't there."""
    most = max((one for one in (1, 2, 3) if record.score(now, most=AVOIDED / one) >= AVOIDED), default=0)
    if node is not None and node.suspected:
        return f"yes: its condition {SUSPECTED} is True, until its score is below {AVOIDED / 2:g} or it is cleared"
    if node is None:
        return "no: the node isn't there"
    if record.last_fault < node.created_at:
        return "no: the node was made anew after its last fault"
    if not most:
        return f"no: it would be from a score of {AVOIDED:g} on"
    return (
        f"not by its condition {SUSPECTED}: nodeRecords.condition is false, suspectNamespaces is above {most}, or a "
        f"tenth of the nodes is suspected already; kubectl get {PLURAL} {request_name(node.name)} shows a request"
    )


def condition(node: str, record: NodeRecord | None, now: float) -> dict[str, Any]:
    """A patch of a node's status. ``record``: None = the node is suspected no more."""
    time = f"{rfc3339(now)[:19]}Z"
    reason, message = "RepeatedFaults", ""
    if record is not None:
        message = why(node, record, now)
    else:
        reason, message = "NoRecentFaults", "its record was cleared, or its faults are old"
    made = {"type": SUSPECTED, "status": str(record is not None), "reason": reason, "message": message}
    return {"status": {"conditions": [{**made, "lastTransitionTime": time, "lastHeartbeatTime": time}]}}


def request(node: str, record: NodeRecord, now: float, controller: str) -> dict[str, Any]:
    """A MaintenanceRequest of NVSentinel, by which it cordons and drains a node until the request is deleted.

    Source: NVSentinel, docs/designs/051-maintenance-request.md and data-models/protobufs/health_event.proto.
    """
    event = {
        "version": 1,
        "agent": "gangctl",
        "componentClass": "Node",
        "checkName": SUSPECTED,
        "nodeName": node,
        "isHealthy": False,
        "isFatal": False,
        "recommendedAction": "NONE",
        "errorCode": list(record.at(now).kinds),
        "message": why(node, record, now),
    }
    metadata = {"name": request_name(node), "annotations": {CONTROLLER: controller}}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "MaintenanceRequest",
        "metadata": metadata,
        "spec": {"healthEvent": event},
    }


def request_name(node: str) -> str:
    """The same for the same node, so that a node has one request however often it is made."""
    name = f"gangctl-{node}"
    return name if len(name) <= _LONGEST_NAME else f"gangctl-{hashlib.sha256(node.encode()).hexdigest()[:32]}"
