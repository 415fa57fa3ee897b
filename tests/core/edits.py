"""What a user changes in the spec of a scenario's job: one function a sentence."""

from __future__ import annotations

from gangctl.api.gangjob import Spec
from gangctl.api.model import changed
from gangctl.api.recovery import RestartFrom
from tests.core.world import World


def change(world: World, key: str, value: str) -> None:
    """The user changes a field of the spec."""
    if key == "replicas of worker":
        role = world.job.spec.roles[0].model_copy(update={"replicas": int(value)})
        update: dict[str, object] = {"roles": (role, *world.job.spec.roles[1:])}
    else:
        update = {"suspend": value == "true"} if key == "suspend" else {"restart_token": value}
    _edited(world, world.job.spec.model_copy(update=update))


def _edited(world: World, spec: Spec) -> None:
    """The API server counts the change."""
    metadata = changed(world.job.metadata, generation=world.job.metadata.generation + 1)
    world.job = changed(world.job, metadata=metadata, spec=spec)


def policy(world: World, seconds: str) -> None:
    """The user changes the isolation time, which is live."""
    spec = world.job.spec
    recovery = spec.recovery.model_copy(update={"isolation_timeout_seconds": int(seconds)})
    _edited(world, spec.model_copy(update={"recovery": recovery}))


def ask(world: World, token: str, where: str) -> None:
    """The user asks for a restart from the beginning, or from a step."""
    asked = RestartFrom(type="Beginning", restart_token=token)
    if where.startswith("step "):
        asked = RestartFrom(type="Step", step=int(where.removeprefix("step ")), restart_token=token)
    world.job = world.job.model_copy(update={"spec": changed(world.job.spec, restart_from=asked)})
    change(world, "restartToken", token)


def remove_tiers(world: World) -> None:
    """The user removes spec.checkpoint, and spec.restartFrom with it."""
    _edited(world, changed(world.job.spec, checkpoint=None, restart_from=RestartFrom()))
