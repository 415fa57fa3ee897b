"""How the processes of a worker are started: executed, or forked from a template that has imported what they import."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from gangctl.api.model import Model, kind

ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$", max_length=255)]


class AutoPreload(Model):
    """What the worker imports from installed packages by its first step."""

    type: Literal["Auto"] = "Auto"


class ModulesPreload(Model):
    """The named modules."""

    type: Literal["Modules"]
    modules: Annotated[tuple[ModuleName, ...], Field(min_length=1, max_length=64)]
    """Names of installed Python modules, such as torch or torch.optim."""


Preload = Annotated[
    Annotated[AutoPreload, Tag("Auto")] | Annotated[ModulesPreload, Tag("Modules")],
    kind("type", "Auto"),
]


class ExecStart(Model):
    """The command is executed."""

    type: Literal["Exec"] = "Exec"


class ForkStart(Model):
    """The worker is forked from a process that has imported its modules."""

    type: Literal["Fork"]
    preload: Preload = Field(default_factory=AutoPreload)
    """What the template imports. With Auto, the first start of a pod is not forked."""


Start = Annotated[
    Annotated[ExecStart, Tag("Exec")] | Annotated[ForkStart, Tag("Fork")],
    kind("type", "Exec"),
]


def preloaded(start: ExecStart | ForkStart) -> str:
    """What a supervisor is told: ``Auto``, or modules with commas between them; empty if the command is executed."""
    match start:
        case ForkStart(preload=ModulesPreload(modules=modules)):
            return ",".join(modules)
        case ForkStart():
            return "Auto"
        case _:
            return ""
