"""What decide() sees of the world: pods, nodes, devices, and what the sidecars said. Frozen values, no behaviour.

All times are seconds since the epoch on the controller's clock; ages in reports were turned into times on arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gangsidecar.wire import Report, Scanned


@dataclass(frozen=True, slots=True)
class Device:
    """The health of one device that a pod was given."""

    resource: str
    name: str
    health: str = "Healthy"
    """Healthy, Unhealthy or Unknown."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A projection of one pod of the gang."""

    name: str
    uid: str
    member: str
    incarnation: int
    node: str = ""
    created_at: float = 0.0
    scheduled_at: float | None = None
    started_at: float | None = None
    """When its containers last became started; absent while one isn't."""
    restarts: int = 0
    """How often a container of it was started again."""
    deleting: bool = False
    terminated: bool = False
    """Every container was seen terminated: nothing of it runs."""
    reason: str = ""
    """Why it ended or can't start, in Kubernetes' words: Evicted, OOMKilled, ImagePullBackOff, ..."""
    conditions: tuple[tuple[str, str, str], ...] = ()
    """(type, status, reason) of conditions that rules can match."""
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest report of a pod's supervisor."""

    report: Report
    at: float
    """When it arrived."""
    connected: bool = True


@dataclass(frozen=True, slots=True)
class Observed:
    """One consistent look at the world of one gang."""

    pods: tuple[Pod, ...] = ()
    heard: tuple[Heard, ...] = ()
    """At most one a pod UID."""
    lost_nodes: frozenset[str] = field(default_factory=frozenset)
    scanned: Scanned | None = None
    """The newest answer to a Scan."""
    listening_since: float = 0.0
    """Since when this leader has listened without a break, with fresh watches."""
