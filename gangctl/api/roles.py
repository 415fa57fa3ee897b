"""Roles: named groups of equal members."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from gangctl.api.model import Constraint, Model, Reserved, RoleName
from gangctl.api.templates import Container, Template


class Launch(StrEnum):
    """How the worker container's command becomes processes."""

    COMMAND = "Command"
    """Once a pod."""
    PER_PROCESS = "PerProcess"
    """`processesPerPod` times, each with its own rank."""
    TORCHRUN = "Torchrun"
    """Once a pod, with torchrun's own variables."""


_IS_WORKER = "c.name == (has(self.workerContainer) ? self.workerContainer : self.template.spec.containers[0].name)"
_PROBE = (
    "the worker container may not have a {0}: while the gang gathers, its worker is stopped on purpose, "
    "and the {0} would kill the member that waits"
)


class Role(Model):
    """A named group of equal members: the same template, the same way to start."""

    constraints = (
        Constraint(
            "workerContainer must name one of the template's containers",
            lambda role: (
                role.worker_container is None
                or any(one.name == role.worker_container for one in role.template.spec.containers)
            ),
            "!has(self.workerContainer) || self.template.spec.containers.exists(c, c.name == self.workerContainer)",
            ("workerContainer", "template.spec.containers"),
        ),
        Constraint(
            "the worker container must have a command: gangctl starts it itself, "
            "and the entry point of the image is not known here",
            lambda role: bool(role.worker.command),
            f"self.template.spec.containers.all(c, !({_IS_WORKER}) || (has(c.command) && size(c.command) > 0))",
            ("template.spec.containers", "workerContainer"),
        ),
        Constraint(
            _PROBE.format("livenessProbe"),
            lambda role: role.worker.liveness_probe is None,
            f"self.template.spec.containers.all(c, !({_IS_WORKER}) || !has(c.livenessProbe))",
            ("template.spec.containers", "workerContainer"),
        ),
        Constraint(
            _PROBE.format("startupProbe"),
            lambda role: role.worker.startup_probe is None,
            f"self.template.spec.containers.all(c, !({_IS_WORKER}) || !has(c.startupProbe))",
            ("template.spec.containers", "workerContainer"),
        ),
        Constraint(
            "launch Torchrun needs a process group, because torchrun counts its nodes",
            lambda role: role.launch is not Launch.TORCHRUN or role.group != "",
            "self.launch != 'Torchrun' || !has(self.processGroup) || self.processGroup != ''",
            ("processGroup", "launch"),
        ),
    )
    reserved: ClassVar[Mapping[str, Reserved]] = {
        "minReplicas": Reserved({"type": "integer", "format": "int32"}, "elastic gangs: a gang runs with all members"),
        "dependsOn": Reserved(
            {
                "type": "array",
                "maxItems": 8,
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "x-kubernetes-list-type": "atomic",
            },
            "roles that start one after another: all members of a gang start together",
        ),
    }

    name: RoleName
    """Name of the role, unique in the gang: 1 to 15 lower-case letters and digits, a letter first. It is part of the
    names of members (worker-0) and pods."""
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How many members the role needs. All of them run together or none does. The members of all roles with their
    spares are at most 10000."""
    spares: Annotated[int, Field(ge=0, le=1_000)] = 0
    """How many warm standbys the role has beyond its replicas. A spare's pod is up and its worker is not started until
    it takes the rank of a member whose pod is lost. Worth its devices where a new pod takes minutes to come up."""
    process_group: Annotated[str, Field(pattern=r"^([a-z][a-z0-9]{0,14})?$", max_length=15)] | None = None
    """The group that the role's ranks, master and world size are counted in. Absent (the default) = a group of the
    role's own name. Two roles that name the same group share one world. Empty = no ranks (an evaluator, an MPI
    launcher)."""
    processes_per_pod: Annotated[int, Field(ge=1, le=64)] = 1
    """How many ranks a pod holds; usually its number of devices."""
    launch: Launch = Launch.COMMAND
    """How the command becomes processes. Command: it is started once a pod, and starts what it needs itself.
    PerProcess: it is started processesPerPod times, each with its own RANK and LOCAL_RANK. Torchrun: once a pod, with
    torchrun's PET_ variables set and its child's error file read."""
    worker_container: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Name of the container whose command is the worker. Absent (the default) = the first container."""
    template: Template
    """What the role's pods are made of: a PodTemplateSpec."""

    @property
    def group(self) -> str:
        """The process group that this role's ranks are counted in; empty = no ranks."""
        return self.name if self.process_group is None else self.process_group

    @property
    def worker(self) -> Container:
        """The container whose command is the worker."""
        wanted = self.worker_container
        return next((c for c in self.template.spec.containers if c.name == wanted), self.template.spec.containers[0])
