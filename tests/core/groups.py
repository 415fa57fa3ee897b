"""What can happen to the other gangs of a scenario's group: one function a sentence."""

from __future__ import annotations

from dataclasses import replace

from gangctl.core.facts.world import Replica
from tests.core.world import World


def available(world: World, name: str, seconds: str | None = None) -> None:
    """It runs, and is available, or will be."""
    world.group[name] = Replica(name, "Running", world.now + float(seconds or 0))


def unavailable(world: World, name: str, phase: str) -> None:
    """It is in this phase; one that runs isn't ready."""
    world.group[name] = Replica(name, phase, None)


def has_pods(world: World, name: str) -> None:
    """It waits for others itself, with all its pods."""
    world.group[name] = Replica(name, "Pending")


def lacks_pods(world: World, name: str, phase: str) -> None:
    """It is in this phase, and has not all its pods."""
    world.group[name] = Replica(name, phase, has_pods=False)


def charged(world: World, name: str, restarts: str, seconds: str) -> None:
    """It runs, and was restarted so often at this time."""
    world.group[name] = Replica(name, "Running", charged=(world.now - float(seconds),) * int(restarts))


def shown(world: World, member: str, ready: str) -> None:
    """What the kubelet says of the member's pod."""
    uid = world.newest(member)
    others = tuple(one for one in world.pods[uid].conditions if one[0] != "Ready")
    since = world.now if ready == "True" else None
    world.pods[uid] = replace(world.pods[uid], conditions=(*others, ("Ready", ready, "")), ready_at=since)
