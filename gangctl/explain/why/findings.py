"""Findings: what was seen, what happens next, what to do. Also the words for amounts in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from typing import Final

from gangctl.explain.why.walk import Moves, Room
from gangctl.words.text import listed

_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})


class FindingKind(StrEnum):
    """The subject of a finding. Programs read it."""

    NOT_SEEN = "NotSeen"
    """No controller has seen the gang."""
    NOT_LED = "NotLed"
    """No controller answers for the gang."""
    NOT_STORED = "NotStored"
    """Its controller can't store its status."""
    DELETING = "Deleting"
    """The gang is being deleted."""
    SUSPENDED = "Suspended"
    """Its user has suspended it, its roles have changed, or a replacement took too long."""
    QUEUED = "Queued"
    """Its queue has not admitted it, or has called it back."""
    HELD = "Held"
    """It is kept for a look until a person goes on."""
    ENDED = "Ended"
    """It has succeeded or failed, or Ctrl-C has ended it."""
    REFUSED = "Refused"
    """The cluster takes no pods of it."""
    ROLES_WAIT = "RolesWait"
    """Roles wait for others to be ready."""
    POD_MISSING = "PodMissing"
    """Pods are not created yet."""
    SCHEDULING_GATED = "SchedulingGated"
    """Pods have a scheduling gate."""
    NO_SCHEDULER = "NoScheduler"
    """No scheduler has looked at pods."""
    FITS = "Fits"
    """Each pod that waits would fit now."""
    TOO_LARGE = "TooLarge"
    """A pod needs more than any node has."""
    NOT_ENOUGH = "NotEnough"
    """Less is free in total than the pods need."""
    FRAGMENTED = "Fragmented"
    """Enough is free in total, and not on any one node."""
    NO_NODE = "NoNode"
    """No node would do, whatever is free: labels, taints, volumes."""
    UNSCHEDULABLE = "Unschedulable"
    """Pods have no node, and the nodes can't be looked at."""
    IMAGE = "Image"
    """The image of a container can't be pulled."""
    NOT_STARTING = "NotStarting"
    """A pod has a node, and its containers do not start."""
    NOT_CONNECTED = "NotConnected"
    """A pod runs, and its sidecar is not connected to the controller."""
    STOPPING = "Stopping"
    """Workers of an earlier attempt may still run."""
    BARRIER = "Barrier"
    """The attempt waits for members."""
    BACK_OFF = "BackOff"
    """The attempt waits because the ones before made no step."""
    RESTORE_POINT = "RestorePoint"
    """A restore point is missing."""
    FINISHED = "Finished"
    """Some ranks have left, since all their work is done, and others go on: they may wait for them."""
    DEGRADED = "Degraded"
    """The gang goes on, and something should be looked at."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node, for the table of a finding."""

    node: str
    needs: str = ""
    free: str = ""
    of: str = ""
    why: str = ""
    """The scheduler's words, or what exactly doesn't fit."""
    taken: str = ""
    """Who has what is not free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason why the gang does not run, or should be looked at."""

    kind: FindingKind
    seen: str
    next: str = ""
    """The next event, if nothing is done."""
    do: str = ""
    members: tuple[str, ...] = ()
    since: float | None = None
    told: str = ""
    """The walk in the scheduler's own words."""
    rooms: tuple[Room, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    moves: Moves | None = None
    tainted: tuple[str, ...] = ()
    """Devices of resource claims on the nodes that would do, which a pod without a toleration doesn't get."""
    unread: tuple[str, ...] = ()
    """Fields of pods that the scheduler decides by, and that were not looked at."""


def amount(resource: str, value: Decimal) -> str:
    """An amount as people write it: ``4``, ``500m``, ``1.5``, ``12.5Gi``."""
    if resource in _BYTES or resource.startswith("hugepages-"):
        return _bytes(value)
    if value == value.to_integral_value():
        return str(int(value))
    if value < 1:
        return f"{int((value * 1000).to_integral_value(ROUND_HALF_UP))}m"
    return f"{value.quantize(Decimal('0.01'), ROUND_HALF_UP).normalize():f}"


def many(members: Sequence[str]) -> str:
    """The members in words: ``worker-1``, ``worker-1 and worker-2``, ``worker-1, worker-2 and 6 more``."""
    return listed(members, 2)


def _bytes(value: Decimal) -> str:
    left, unit = value, ""
    for name in _BINARY:
        if abs(left) < 1024:  # noqa: PLR2004
            break
        left, unit = left / 1024, name
    shown = left.quantize(Decimal("0.1"), ROUND_HALF_UP)
    return f"{int(shown) if shown == shown.to_integral_value() else shown}{unit}"
