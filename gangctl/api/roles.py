"""Roles: named groups of equal members."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from gangctl.api.model import Constraint, Model, Reserved, RoleName
from gangctl.api.start import ExecStart, Start
from gangctl.api.templates import Container, Template


class Launch(StrEnum):
    """How gangctl starts processes from the command of the worker container."""

    COMMAND = "Command"
    """The command is started once in each pod."""
    PER_PROCESS = "PerProcess"
    """The command is started `processesPerPod` times, each time with its own rank."""
    TORCHRUN = "Torchrun"
    """The command is started once in each pod, with torchrun's own variables."""


_IS_WORKER = "c.name == (has(self.workerContainer) ? self.workerContainer : self.template.spec.containers[0].name)"
_PROBE = (
    "the worker container must not have a {0}: while the gang gathers, its worker is stopped on purpose, "
    "and the {0} would kill the waiting member"
)


class Role(Model):
    """Equal members with one pod template and launch mode."""

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
            "the worker container must have a command, because gangctl starts it itself "
            "and does not know the entry point of the image; docker inspect, crane config or "
            "skopeo inspect --config show it: write its Entrypoint, and its Cmd if there are no args",
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
            "launch Torchrun needs a process group, because torchrun numbers its nodes",
            lambda role: role.launch is not Launch.TORCHRUN or role.group != "",
            "self.launch != 'Torchrun' || !has(self.processGroup) || self.processGroup != ''",
            ("processGroup", "launch"),
        ),
        Constraint(
            "start Fork needs launch Command or PerProcess, because torchrun starts its processes itself",
            lambda role: role.start.type != "Fork" or role.launch is not Launch.TORCHRUN,
            "!has(self.start) || self.start.type != 'Fork' || !has(self.launch) || self.launch != 'Torchrun'",
            ("start", "launch"),
        ),
    )
    reserved: ClassVar[Mapping[str, Reserved]] = {
        "minReplicas": Reserved({"type": "integer", "format": "int32"}, "elastic gangs; a gang runs with all members"),
        "dependsOn": Reserved(
            {
                "type": "array",
                "maxItems": 8,
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "x-kubernetes-list-type": "atomic",
            },
            "ordered start of roles; all members of a gang start together",
        ),
    }

    name: RoleName
    """Name of the role, unique in the gang and part of the names of members (worker-0) and pods."""
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of required members. All roles together may have at most 10000 members, including spares."""
    spares: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Number of standby members. The pod of a spare runs; its worker starts only when the spare takes over the rank of
    a lost pod."""
    process_group: Annotated[str, Field(pattern=r"^([a-z][a-z0-9]{0,14})?$", max_length=15)] | None = None
    """Process group of the role, which defines ranks, master and world size. Roles with the same group share one world.
    If absent, the name of the role. If empty, the role has no ranks."""
    processes_per_pod: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of ranks in each pod, usually its number of devices."""
    launch: Launch = Launch.COMMAND
    """How the command is started. Command: once in each pod; it starts further processes itself. PerProcess:
    processesPerPod times, each with its own RANK and LOCAL_RANK. Torchrun: once in each pod, with torchrun's PET_
    variables."""
    start: Start = Field(default_factory=ExecStart)
    """Exec: execute the command. Fork: fork each process from a template that has imported its modules, for commands
    such as python train.py and python -m train. If no template can be forked, the command is executed."""
    worker_container: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Name of the container whose command is the worker. If absent, the first container."""
    template: Template
    """PodTemplateSpec of the role's pods."""

    @property
    def group(self) -> str:
        """Process group of this role; empty if it has no ranks."""
        return self.name if self.process_group is None else self.process_group

    @property
    def worker(self) -> Container:
        """The container whose command is the worker."""
        wanted = self.worker_container
        return next((c for c in self.template.spec.containers if c.name == wanted), self.template.spec.containers[0])
