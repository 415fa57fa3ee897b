"""The part of a pod template that gangctl reads. Everything else is kept as written."""

from __future__ import annotations

import json
import zlib
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr

from gangctl.api.model import Constraint, Model, Refused


class Container(Model):
    """A container, with the fields that gangctl reads."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
    """Name of the container, unique in the pod."""
    command: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Field(max_length=256)] = ()
    """Command to start, required for the worker container. $(VAR) is expanded for each attempt."""
    liveness_probe: dict[str, Any] | None = None
    """Kubernetes livenessProbe. Not allowed on the worker container."""
    startup_probe: dict[str, Any] | None = None
    """Kubernetes startupProbe. Not allowed on the worker container."""


class PodSpec(Model):
    """A pod spec. gangctl declares only the fields that it reads; all other Kubernetes fields are allowed."""

    model_config = ConfigDict(extra="allow")

    constraints = (
        Constraint(
            "two containers have the same name",
            lambda spec: len({one.name for one in spec.containers}) == len(spec.containers),
            "self.containers.all(c, self.containers.exists_one(o, o.name == c.name))",
            ("containers",),
        ),
    )

    containers: Annotated[tuple[Container, ...], Field(min_length=1, max_length=16)]
    """Containers of the pod. The first is the worker container, unless workerContainer names another."""
    restart_policy: Annotated[
        Literal["Never", "OnFailure"],
        Refused(
            {
                "Always": "the pods of a gang must be able to end; gangctl restarts their workers itself, "
                "and a pod that always restarts could never succeed"
            }
        ),
    ] = "Never"
    """Applies to init containers and to containers beside the worker's, as in a Job. With Never, an init container that
    fails ends the pod. On nodes without RestartAllContainers, failed containers are always retried. gangctl itself sets
    what the kubelet does when the worker's container ends."""


class Template(Model):
    """A PodTemplateSpec."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    """Labels and annotations of the pods. gangctl adds its own, which start with gangctl.io/."""
    spec: PodSpec
    """Spec of the pods. gangctl adds its sidecar, and its supervisor before the worker's command."""
    _kept: bytes = PrivateAttr(b"")
    """Compressed JSON of the whole template, where this value has only a part of it; see ``stored.py``."""

    def keep(self, text: bytes) -> None:
        """Keep this compressed JSON: this value is only a part of it. To be called before anything else has it."""
        self._kept = text

    @property
    def kept(self) -> bytes:
        """What :meth:`keep` was given; empty if this value is the whole template."""
        return self._kept

    @property
    def written(self) -> dict[str, Any]:
        """The whole template as the user wrote it, as JSON values of the caller's own."""
        if not self._kept:
            return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        written: dict[str, Any] = json.loads(zlib.decompress(self._kept))
        return written
