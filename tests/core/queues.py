"""A queue in the world of a scenario file: what it does with the gang's Workload, and what the Workload becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gangctl.api.roles import roles_hash
from gangctl.core.facts.world import Queue, Workload
from gangctl.core.policy.admission import QueueVerb, TellQueue
from gangctl.core.policy.quota import asked_at_first

if TYPE_CHECKING:
    from tests.core.world import World

FIRST = "w"
"""The Workload that asks for the gang."""


def named(world: World, name: str) -> None:
    """The gang names a queue."""
    world.queue = replace(world.queue, name=name)


def unnamed(world: World) -> None:
    """Its label was removed."""
    world.queue = replace(world.queue, name="")


def admits(world: World) -> None:
    """Quota is reserved, and all checks have passed."""
    _changes(world, admitted=True, reserved=True, evicted=False, said="")


def places_pods(world: World) -> None:
    """It says for each pod in which domain of its topology it is placed."""
    _changes(world, places_pods=True)


def reserves(world: World) -> None:
    """Quota is reserved; the gang may not start yet."""
    _changes(world, admitted=False, reserved=True, evicted=False, said="a check is pending")


def says(world: World, words: str) -> None:
    """Why the gang waits."""
    _changes(world, said=words)


def grants(world: World, pods: str, role: str) -> None:
    """It admits the gang with so many pods of the role."""
    admits(world)
    assert world.queue.workload is not None
    _changes(world, pods={**world.queue.workload.pods, role: int(pods)})


def gives_more(world: World, pods: str, role: str) -> None:
    """It admits the newest Workload by which the gang grows, with so many pods of the role."""
    newest = replace(world.queue.more[-1], admitted=True, reserved=True, said="", pods={role: int(pods)})
    world.queue = replace(world.queue, more=(*world.queue.more[:-1], newest))


def refuses_more(world: World, words: str) -> None:
    """Why the newest Workload by which the gang grows waits."""
    newest = replace(world.queue.more[-1], said=words)
    world.queue = replace(world.queue, more=(*world.queue.more[:-1], newest))


def takes_back(world: World, words: str) -> None:
    """It evicts the newest Workload by which the gang has grown."""
    newest = replace(world.queue.more[-1], admitted=False, evicted=True, said=words)
    world.queue = replace(world.queue, more=(*world.queue.more[:-1], newest))


def evicts(world: World, words: str) -> None:
    """It wants the quota back."""
    _changes(world, admitted=False, evicted=True, said=words)


def deleted(world: World) -> None:
    """By hand."""
    world.queue = replace(world.queue, workload=None)


def readable(world: World, *, known: bool) -> None:
    """Whether the controller can read it."""
    world.queue = replace(world.queue, known=known, known_since=world.now if known else 0.0)


def told(world: World, tell: TellQueue) -> None:
    """What the Workload becomes when the controller has its way."""
    queue, spec = world.queue, world.job.spec
    match tell.verb:
        case QueueVerb.JOIN:
            pods = {one.role: one.pods for one in asked_at_first(spec)}
            asked = Workload(queue.name, roles_hash(spec.roles), queue.priority_class, name=FIRST, pods=pods)
            world.queue = Queue(queue.name, queue.priority_class, workload=asked)
        case QueueVerb.GROW:
            asked = Workload(queue.name, roles_hash(spec.roles), name=f"{FIRST}-{world.job.status.attempt}")
            world.queue = replace(queue, more=(*queue.more, asked))
        case QueueVerb.GIVE:
            kept = {one.role: one.pods for one in tell.pods}
            more = tuple([replace(one, pods=kept) if one.name == tell.workload else one for one in queue.more])
            world.queue = replace(queue, more=more)
            if tell.workload == FIRST:
                _changes(world, pods=kept)
        case QueueVerb.LEAVE if tell.workload:
            world.queue = replace(queue, more=tuple([one for one in queue.more if one.name != tell.workload]))
        case QueueVerb.LEAVE:
            deleted(world)
        case QueueVerb.RELEASE:
            all_pods = {one.role: one.pods for one in asked_at_first(spec)}
            _changes(world, reserved=False, ready=False, pods=all_pods)
        case QueueVerb.READY if tell.workload:
            started = [replace(one, ready=True) if one.name == tell.workload else one for one in queue.more]
            world.queue = replace(queue, more=tuple(started))
        case QueueVerb.READY:
            _changes(world, ready=True)
        case QueueVerb.SUCCEED | QueueVerb.FAIL:
            _changes(world, ended=True, admitted=False, reserved=False)


def _changes(world: World, **change: Any) -> None:
    assert world.queue.workload is not None, "nothing was asked of the queue"
    world.queue = replace(world.queue, workload=replace(world.queue.workload, **change))
