"""Where the pods of a gang are placed, whether they are scheduled together, and how a group rolls."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import Constraint, Model, PositiveSeconds, Seconds, kind
from gangctl.api.recovery import Windowed

# Placement: where pods run, and which ports ranks use for their rendezvous.


class NoPlacement(Model):
    """The pod template alone decides."""

    strategy: Literal["None"] = "None"


class Placement(Model):
    """Pods share one domain (Pack) or use several (Spread)."""

    strategy: Literal["Pack", "Spread"]
    mode: Literal["Preferred", "Required"] = "Preferred"
    """Preferred: if possible. Required: a pod stays pending until the strategy can be satisfied."""
    topology_key: Annotated[str, Field(min_length=1, max_length=316)] = "kubernetes.io/hostname"
    """Node label of the domain, such as a rack."""


PlacementPolicy = Annotated[
    Annotated[NoPlacement, Tag("None")] | Annotated[Placement, Tag("Pack")] | Annotated[Placement, Tag("Spread")],
    kind("strategy", "None"),
]


class Network(Model):
    """Port range in which the supervisor of rank 0 picks a free MASTER_PORT for each attempt."""

    base_port: Annotated[int, Field(ge=1024, le=64_000)] = 29_400
    """First port of the range."""
    port_count: Annotated[int, Field(ge=1, le=1024)] = 64
    """Number of ports. Each attempt uses another free port."""


# Gang scheduling: the scheduler places the pods of a gang together or not at all.


class NoGangScheduling(Model):
    """Each pod by itself, or as the template asks another scheduler."""

    type: Literal["None"] = "None"


class PodGroupScheduling(Model):
    """gangctl creates a PodGroup: no pod gets a node until all required members fit.

    Needs Kubernetes 1.36 or newer, with feature gates.
    """

    type: Literal["PodGroup"]
    topology_key: Annotated[str, Field(max_length=316)] = ""
    """Node label of a domain, such as a rack, in which all pods run, spares included. Needs the feature gate
    TopologyAwareWorkloadScheduling."""


GangScheduling = Annotated[
    Annotated[NoGangScheduling, Tag("None")] | Annotated[PodGroupScheduling, Tag("PodGroup")],
    kind("type", "None"),
]


# Replica groups: gangs that do the same work beside each other, and how many may be unavailable at once because of
# planned restarts.


class ReplicaGroup(Model):
    """Gangs that are replicas of one model: one that fails restarts alone, and the others go on."""

    constraints = (
        Constraint(
            "replicaGroup.index must be less than replicaGroup.count",
            lambda group: group.count is None or group.index < group.count,
            "!has(self.count) || self.index < self.count",
            ("index", "count"),
        ),
        Constraint(
            "replicaGroup.minCount must be at most replicaGroup.count",
            lambda group: group.count is None or group.min_count is None or group.min_count <= group.count,
            "!has(self.count) || !has(self.minCount) || self.minCount <= self.count",
            ("minCount", "count"),
        ),
    )
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
    """Name of the group: all GangJobs of the namespace with this value."""
    index: Annotated[int, Field(ge=0, le=9_999)] = 0
    """Number of this gang in the group. Workers get it as REPLICA_GROUP_ID."""
    count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of gangs when none is down. Workers get it as NUM_REPLICA_GROUPS. If absent, they get neither."""
    min_count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of the group's gangs, this gang included, whose pods must have started before the first attempt, and the
    first after a suspension. If absent, none is awaited. recovery.schedulingTimeoutSeconds bounds the wait."""
    budget: Windowed | None = None
    """How many charged restarts the group's gangs may have together, beside recovery.budget of each. The gang whose
    fault is one too many ends by its onExhausted; the others go on. If absent, each has its own only."""


class Rolling(Model):
    """Planned restarts of the gangs of a replicaGroup go in turn, as in the rolling update of a Deployment."""

    max_unavailable: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of the group's gangs, this gang included, that may be unavailable, even by a fault, when its planned
    restart begins."""
    min_ready_seconds: Seconds = 40
    """Seconds after an attempt's start after which a gang with ready pods is available. Must exceed the
    readinessProbe's periodSeconds times failureThreshold, plus timeoutSeconds."""
    progress_deadline_seconds: PositiveSeconds = 600
    """Seconds after which the condition Degraded reports a planned restart that still waits."""
