"""The plan that decide() returns: the next status, what to do after it is durable, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gangctl.api.status import Status
from gangctl.core.facts.printed import ReadOutput
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.core.policy.queueing import TellQueue
from gangsidecar.wire import Scan


@dataclass(frozen=True, slots=True)
class DeleteGang:
    """Delete the gang itself, which has ended and was kept for long enough; its pods go with it."""


@dataclass(frozen=True, slots=True)
class AskScan:
    """Ask one member which complete checkpoint steps it sees: a stateless query."""

    pod: str
    scan: Scan


Action = CreatePod | DeletePod | DeleteGang | AskScan | TellQueue | ReadOutput


class EventType(StrEnum):
    """As in Kubernetes."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """Said to people after the status write has succeeded."""

    type: EventType
    reason: str
    message: str
    """A :class:`~gangctl.words.message.Message` of the core."""
    member: str = ""
    pod: str = ""
    """Name of the pod that it is about, which may be gone by now; empty if it is about none."""
    trace_id: str = ""
    """The trace of the incident that it belongs to; empty if it belongs to none."""
    node: str = ""
    """Name of the node that it is about, rather than the gang; empty if it is about none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision. ``status`` is absent if nothing durable changes."""

    because: str
    """A :class:`~gangctl.words.message.Message` of the core."""
    status: Status | None = None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    """Seconds after which to decide again though nothing else happened."""
