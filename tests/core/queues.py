"""A queue in the world of a scenario file: what it does with the gang's Workload, and what the Workload becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gangctl.api.stored import roles_hash
from gangctl.core.facts.world import Queue, Workload
from gangctl.core.policy.admission import QueueVerb

if TYPE_CHECKING:
    from tests.core.world import World


def named(world: World, name: str) -> None:
    """The gang names a queue."""
    world.queue = replace(world.queue, name=name)


def unnamed(world: World) -> None:
    """Its label was removed."""
    world.queue = replace(world.queue, name="")


def admits(world: World) -> None:
    """Quota is reserved, and all checks have passed."""
    _changes(world, admitted=True, reserved=True, evicted=False, said="")


def reserves(world: World) -> None:
    """Quota is reserved; the gang may not start yet."""
    _changes(world, admitted=False, reserved=True, evicted=False, said="a check is pending")


def says(world: World, words: str) -> None:
    """Why the gang waits."""
    _changes(world, said=words)


def evicts(world: World, words: str) -> None:
    """It wants the quota back."""
    _changes(world, admitted=False, evicted=True, said=words)


def deleted(world: World) -> None:
    """By hand."""
    world.queue = replace(world.queue, workload=None)


def readable(world: World, *, known: bool) -> None:
    """Whether the controller can read it."""
    world.queue = replace(world.queue, known=known, known_since=world.now if known else 0.0)


def told(world: World, verb: QueueVerb) -> None:
    """What the Workload becomes when the controller has its way."""
    match verb:
        case QueueVerb.JOIN:
            queue = world.queue
            asked = Workload(queue.name, roles_hash(world.job.spec.roles), queue.priority_class)
            world.queue = Queue(queue.name, queue.priority_class, workload=asked)
        case QueueVerb.LEAVE:
            deleted(world)
        case QueueVerb.RELEASE:
            _changes(world, reserved=False, ready=False)
        case QueueVerb.READY:
            _changes(world, ready=True)
        case QueueVerb.SUCCEED | QueueVerb.FAIL:
            _changes(world, ended=True, admitted=False, reserved=False)


def _changes(world: World, **change: Any) -> None:
    assert world.queue.workload is not None, "nothing was asked of the queue"
    world.queue = replace(world.queue, workload=replace(world.queue.workload, **change))
