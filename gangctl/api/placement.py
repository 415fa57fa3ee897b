"""Where pods are placed, and which ports ranks use for their rendezvous."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import Model, kind


class NoPlacement(Model):
    """The pod template alone decides."""

    strategy: Literal["None"] = "None"


class Placement(Model):
    """Pods share one topology domain (Pack) or use several (Spread)."""

    strategy: Literal["Pack", "Spread"]
    mode: Literal["Preferred", "Required"] = "Preferred"
    """Preferred: the scheduler tries to satisfy the strategy. Required: a pod stays pending until it can be
    satisfied."""
    topology_key: Annotated[str, Field(min_length=1, max_length=316)] = "kubernetes.io/hostname"
    """Node label that identifies the topology domain, such as a rack or a zone."""


PlacementPolicy = Annotated[
    Annotated[NoPlacement, Tag("None")] | Annotated[Placement, Tag("Pack")] | Annotated[Placement, Tag("Spread")],
    kind("strategy", "None"),
]


class Network(Model):
    """Port range in which the supervisor of rank 0 picks a free MASTER_PORT for each attempt."""

    base_port: Annotated[int, Field(ge=1024, le=64_000)] = 29_400
    """First port of the range."""
    port_count: Annotated[int, Field(ge=1, le=1024)] = 64
    """Number of ports in the range. Each attempt uses another free port."""
