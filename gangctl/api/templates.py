"""The part of a pod template that gangctl reads. Everything else of it is kept as written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gangctl.api.model import Constraint, Model, Refused


class Container(Model):
    """A container. gangctl declares only what it reads; every other field of Kubernetes' Container may stand here."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
    """Name of the container, unique in the pod."""
    command: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Field(max_length=256)] = ()
    """What is started. The worker container needs it, because the entry point of its image is not known here.
    $(VAR) is expanded at each attempt, so it may use the variables of the attempt."""
    liveness_probe: dict[str, Any] | None = None
    """Kubernetes' livenessProbe. Not on the worker container: it would kill a member that waits for the others."""
    startup_probe: dict[str, Any] | None = None
    """Kubernetes' startupProbe. Not on the worker container: it would kill a member that waits for the others."""


class PodSpec(Model):
    """A pod's spec. gangctl declares only what it reads; every other field of Kubernetes' PodSpec may stand here."""

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
    """Containers of the pod: from 1 to 16. The first one is the worker container if workerContainer names no other."""
    restart_policy: Annotated[
        Literal["Never", "OnFailure"],
        Refused(
            {
                "Always": "a gang's pods come to an end; gangctl starts their workers again itself, "
                "and a pod that is always restarted could never succeed"
            }
        ),
    ] = "Never"
    """Never (the default) or OnFailure; taken so that a Job's template can be pasted. Workers are restarted inside
    their containers, and what the kubelet does when a whole container has ended is set by gangctl: all containers of
    the pod are restarted without a back-off, or, on nodes that can't do that, the one that failed."""


class Template(Model):
    """A PodTemplateSpec."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    """Labels and annotations of the pods. gangctl adds its own, all of which begin with gangctl.io/."""
    spec: PodSpec
    """Spec of the pods, kept as written. gangctl adds its sidecar and puts its supervisor before the worker's
    command."""
