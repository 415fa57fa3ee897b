"""FailJob and ties, against a plain second statement of the rule: how many members are tied doesn't matter."""

from __future__ import annotations

import itertools
import random

from gangctl.api.status import GangPhase
from tests.core.scenario import sentence
from tests.core.world import World

JOB = """
roles: [{{name: worker, replicas: {replicas}}}]
podFailurePolicy: {{rules: [{{action: FailJob, onExitCodes: {{operator: In, values: [2]}}}}]}}
recovery: {{evidenceWindowSeconds: 0, replaceAfter: 100}}
"""
NAMED = 8
"""More members than a status names can't be recognized as the same tie."""


def test_failjob_needs_all_tied_ends_or_the_same_tie_again() -> None:
    draw = random.Random(1)
    for replicas, _ in itertools.product((2, 3, 5, 8, 9, 12), range(8)):
        world = World()
        world.submit(JOB.format(replicas=replicas))
        sentence(world, "the gang runs")
        sentence(world, "everyone runs")
        before: set[int] = set()
        for _attempt in range(3):
            ends = {at: draw.choice((1, 2, 2, 2, 2)) for at in tied_members(draw, replicas)}
            fails = set(ends.values()) == {2} or (2 in ends.values() and set(ends) == before and len(ends) < NAMED)
            fail_at_once(world, ends)
            assert (world.job.status.phase is GangPhase.FAILED) is fails, (replicas, ends, before)
            if fails:
                break
            before = set(ends)


def tied_members(draw: random.Random, replicas: int) -> set[int]:
    """At least two of them, often the first ones, so that ties overlap and repeat."""
    count = draw.choice((2, 3, replicas, replicas))
    return set(range(min(count, replicas))) if draw.random() < 0.7 else set(draw.sample(range(replicas), 2))


def fail_at_once(world: World, ends: dict[int, int]) -> None:
    """These members end at one moment with these codes, the others are stopped; a minute later all is settled."""
    for at, code in ends.items():
        sentence(world, f"worker-{at} ends with {code}")
    world.decide()
    sentence(world, "everyone is Ready")
    world.decide()
    sentence(world, "everyone runs")
    world.now += 60  # Longer than any wait between restarts.
    world.decide()
    sentence(world, "everyone runs")


def test_no_pod_is_replaced_if_all_members_end_alike_at_one_moment() -> None:
    draw = random.Random(2)
    for replicas in (2, 3, 9):
        world = World()
        world.submit(JOB.format(replicas=replicas).replace("replaceAfter: 100", "replaceAfter: 1"))
        sentence(world, "the gang runs")
        sentence(world, "everyone runs")
        for _ in range(4):
            fail_at_once(world, dict.fromkeys(draw.sample(range(replicas), replicas), 1))
        assert {pod.incarnation for pod in world.pods.values()} == {0}
        fail_at_once(world, dict.fromkeys(range(replicas - 1), 1))
        assert {pod.incarnation for pod in world.pods.values()} == {0, 1}
