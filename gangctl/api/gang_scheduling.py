"""Whether the scheduler places the pods of a gang together or not at all."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Tag

from gangctl.api.model import Model, kind


class NoGangScheduling(Model):
    """Each pod is scheduled by itself, or as labels and annotations of the pod template ask another scheduler."""

    type: Literal["None"] = "None"


class PodGroupScheduling(Model):
    """No pod gets a node until there is room for all required members, by a PodGroup that gangctl creates.

    The cluster needs Kubernetes 1.36 or newer with the feature gates GenericWorkload and GangScheduling.
    """

    type: Literal["PodGroup"]


GangScheduling = Annotated[
    Annotated[NoGangScheduling, Tag("None")] | Annotated[PodGroupScheduling, Tag("PodGroup")],
    kind("type", "None"),
]
