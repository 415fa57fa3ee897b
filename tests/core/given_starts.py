"""What happens to starts in a scenario: what the container runtime says, and what a user's containers do."""

from __future__ import annotations

from gangctl.core.facts.world import SidecarEnd, StartFailure
from tests.core.given import ended, silent
from tests.core.world import World


def start_fails(world: World, member: str, reason: str, words: str) -> None:
    """The worker's container can't be started: once more, if that failed before."""
    pod = world.pods[world.newest(member)]
    again = pod.start_failure is not None and reason == "StartError"
    world.pod(
        member,
        node=pod.node or f"node-{pod.member}",
        scheduled_at=pod.scheduled_at or world.now,
        reason=reason,
        detail=words,
        start_failure=StartFailure(reason, words, 128 if reason == "StartError" else None),
        restarts=pod.restarts + again,
    )


def never_again(world: World, member: str, reason: str, words: str) -> None:
    """The worker's container ends, with its supervisor, and the kubelet can't start it again."""
    silent(world, member)
    world.pod(member, started_at=None, ended_at=world.now, ended_reason="Error")
    start_fails(world, member, reason, words)


def init_container_fails(world: World, member: str) -> None:
    """A user's init container ends with 1 and is tried again: no restart of the worker's, nor of gangctl's."""
    world.pod(member, reason="CrashLoopBackOff", detail="container fetch ended with exit code 1")


def init_container_runs(world: World, name: str, member: str) -> None:
    """A user's init container, for which the worker's container waits."""
    world.pod(member, scheduled_at=world.now, node=f"node-{member}", starting=f"init container {name} still runs")


def sidecar_ended(world: World, member: str, words: str) -> None:
    """It has left this; the kubelet has started it again."""
    world.pod(member, sidecar_end=SidecarEnd(world.now, words))


def sidecar_unreached(world: World, member: str, words: str) -> None:
    """It has never reached the controller, and has left the reason; the kubelet has started it again."""
    world.pod(member, sidecar_end=SidecarEnd(world.now, words, unreached=True))


def not_executed(world: World, member: str, code: str, words: str) -> None:
    """The supervisor can't execute the command."""
    ended(world, None, member, code, None, None, None, None)
    *before, last = world.heard[world.newest(member)].report.ends
    world.again(
        member, ends=(*before, type(last)(last.attempt, last.local_rank, 0, exit_code=int(code), message=words))
    )
