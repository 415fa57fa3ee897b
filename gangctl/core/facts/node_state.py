"""What a node shows, as decide() sees it: signals, a cordon, devices that are missing. Frozen values."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class NodeAnswer(StrEnum):
    """What is done about a signal that a node shows, the strongest first."""

    LEAVE = "Leave"
    """The node is at fault: the gang's pods leave it at once, as after any fault."""
    DRAIN = "Drain"
    """The node is about to go: the gang's pods leave it at once, after all ranks have had time to save."""
    LEAVE_AT_RESTART = "LeaveAtRestart"
    """The gang's pods leave it when the gang restarts for another reason."""
    NOTE = "Note"
    """The status tells of it."""


class Shortage(NamedTuple):
    """A node has fewer healthy devices of a resource than it has devices."""

    resource: str
    allocatable: int
    """How many of them pods may have, as its kubelet says; 0 also while there is no device plugin."""


class NodeSignal(NamedTuple):
    """A condition, taint, label or amount which says that something is wrong with a node."""

    answer: NodeAnswer
    what: str
    """As it is written at the node: ``condition XIDErrors=True``."""
    since: float
    """When it came, as far as this controller knows; 0 if it may be of any age."""
    shortage: Shortage | None = None
    """It counts only against pods that have more of these devices than are allocatable."""


class NodeState(NamedTuple):
    """What a node shows beside that it answers."""

    signals: tuple[NodeSignal, ...] = ()
    """The strongest answer first."""
    cordoned: bool = False
    """It takes no new pods (``spec.unschedulable``)."""
