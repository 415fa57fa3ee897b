"""What the queue that a gang names says: whether the gang may have its pods now. Frozen values.

The rule: only the queue admits. Where it isn't known what the queue says, nothing starts and nothing stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Workload:
    """What the gang asks the queue for, as it is stored, and what the queue has answered."""

    queue: str
    """The queue that it waits in, or waited in."""
    roles_hash: str
    """Of the roles whose pods it asks for."""
    priority_class: str = ""
    admitted: bool = False
    """Whether the pods may be there: quota is reserved, every check has passed, and it isn't evicted."""
    reserved: bool = False
    """Whether quota is reserved for it."""
    evicted: bool = False
    """Whether the queue wants the quota back, or has it back."""
    ready: bool = False
    """Whether the queue was told that all pods run."""
    ended: bool = False
    """Whether the queue was told that the gang has ended."""
    said: str = ""
    """Why it isn't admitted, in the queue's words."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of a gang."""

    name: str = ""
    """Empty = the gang names none, and its pods are created at once."""
    priority_class: str = ""
    """The priority class of the queue that the gang names."""
    known: bool = True
    """Whether ``workload`` is known: not while it can't be read."""
    known_since: float = 0.0
    """Since when, in seconds since the epoch."""
    workload: Workload | None = None
    """None = the queue wasn't asked."""


NO_QUEUE: Final = Queue()
