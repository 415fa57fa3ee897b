"""Whether the scheduler places the pods of a gang together or not at all."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Tag

from gangctl.api.model import Model, kind


class NoGangScheduling(Model):
    """Each pod is scheduled by itself, or as the template asks another scheduler."""

    type: Literal["None"] = "None"


class PodGroupScheduling(Model):
    """gangctl creates a PodGroup, and no pod gets a node until all required members fit.

    Needs Kubernetes 1.36 with the feature gates GenericWorkload and GangScheduling.
    """

    type: Literal["PodGroup"]


GangScheduling = Annotated[
    Annotated[NoGangScheduling, Tag("None")] | Annotated[PodGroupScheduling, Tag("PodGroup")],
    kind("type", "None"),
]
