"""When a signal of a node counts: after the pod came there, and after the attempt began."""

from __future__ import annotations

from tests.core.scenario import sentence
from tests.core.world import World


def restarted() -> World:
    """A gang that was restarted in place 10 s ago, 20 s after its pods came."""
    world = World()
    for one in (
        "the gang runs",
        "20 s pass",
        "worker-0 ends with 1",
        "decide",
        "everyone is Ready",
        "decide",
        "everyone runs",
        "10 s pass",
    ):
        sentence(world, one) if one != "decide" else world.decide()
    assert world.job.status.attempt == 2
    return world


def attempt_after(answer: str, ago: int) -> int:
    """The attempt after worker-1's node has shown this for so many seconds."""
    world = restarted()
    sentence(world, f"the node of worker-1 shows {answer}, since {ago} s")
    world.decide()
    return world.job.status.attempt


def test_what_came_while_the_attempt_ran_counts() -> None:
    assert attempt_after("Leave", 5) == attempt_after("Drain", 5) == 3


def test_what_came_before_the_attempt_or_before_the_pod_does_not() -> None:
    assert attempt_after("Leave", 15) == attempt_after("Drain", 15) == 2
    assert attempt_after("Leave", 600) == attempt_after("Drain", 600) == 2


def test_what_asks_for_less_restarts_nothing() -> None:
    assert attempt_after("LeaveAtRestart", 5) == attempt_after("Note", 5) == 2


def test_what_came_within_the_second_of_the_pod_may_have_been_there_before() -> None:
    for passed, attempt in (("0.5", 1), ("3", 2)):
        world = World()
        sentence(world, "the gang runs")
        sentence(world, f"{passed} s pass")
        sentence(world, "the node of worker-1 shows Leave")
        world.decide()
        assert world.job.status.attempt == attempt


def test_what_a_device_shows_counts_against_its_pod_alone() -> None:
    world = World()
    on_one_node = (
        "decide",
        "worker-0.0 starts on node-a",
        "worker-1.0 starts on node-a",
        "everyone is Ready",
        "decide",
    )
    fails = ("everyone runs", "10 s pass", "a device of worker-1 is tainted", "worker-0 ends with 1", "decide")
    for one in (*on_one_node, *fails):
        sentence(world, one)
    assert [one.member for one in world.job.status.replaced] == ["worker-1"]
