"""Where pods go, and which ports their ranks meet at."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import Model, kind


class NoPlacement(Model):
    """Pods are placed as their template says."""

    strategy: Literal["None"] = "None"


class Placement(Model):
    """Pods are packed into one topology domain (Pack) or spread over several (Spread)."""

    strategy: Literal["Pack", "Spread"]
    mode: Literal["Preferred", "Required"] = "Preferred"
    """Preferred: the scheduler does what it can. Required: a pod that has no such place waits."""
    topology_key: Annotated[str, Field(min_length=1, max_length=316)] = "kubernetes.io/hostname"
    """Label of nodes that names their domain: a rack, a zone, an NVLink domain."""


PlacementPolicy = Annotated[
    Annotated[NoPlacement, Tag("None")] | Annotated[Placement, Tag("Pack")] | Annotated[Placement, Tag("Spread")],
    kind("strategy", "None"),
]


class Network(Model):
    """Where rank 0's supervisor looks for a free MASTER_PORT at each attempt."""

    base_port: Annotated[int, Field(ge=1024, le=64_000)] = 29_400
    """First port that is tried. Change it when something else on the pods' network uses these ports."""
    port_count: Annotated[int, Field(ge=1, le=1024)] = 64
    """How many ports from basePort on are tried. Each attempt takes another free one, so a late socket of the last
    attempt hurts nobody."""
