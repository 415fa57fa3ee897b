"""FailJob and ties, against a plain second statement of the rule: how many members are tied doesn't matter."""

from __future__ import annotations

import itertools
import random

from gangctl.api.status import GangPhase
from gangctl.core.facts.world import LastWords
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


def after_last_words(*, exactly: bool) -> World:
    """Worker-1 failed before worker-0, of which last words told first; then its pod is replaced, or it reports."""
    world = World()
    world.submit(JOB.format(replicas=3).replace("evidenceWindowSeconds: 0", "evidenceWindowSeconds: 5"))
    for line in ("the gang runs", "everyone runs", "10.4 s pass", "worker-1 ends with 1", "0.3 s pass"):
        sentence(world, line)
    sentence(world, "worker-0 ends with 2")
    known, at = world.heard["worker-0.0"], float(int(world.now)) - 600 * exactly  # The clock of the node is behind.
    words = LastWords(at, known.report.ends)
    sentence(world, "a new controller starts")
    if exactly:
        world.pod("worker-0", restarts=1, started_at=at, ended_at=at, ended_reason="Error", last_words=words)
    else:
        world.pod("worker-0", terminated=True, ended_at=at, ended_reason="Error", last_words=words)
    world.decide()
    for line in (*(("worker-0 connects again",) if exactly else ()), "worker-1 connects again"):
        sentence(world, line)
        world.decide()
    sentence(world, "worker-2 connects again")
    return world


def test_a_time_that_last_words_told_ends_no_job_when_they_are_gone() -> None:
    for exactly, found in ((True, ("worker-1", True)), (False, ("worker-0", False))):
        world = after_last_words(exactly=exactly)
        sentence(world, "everyone is Ready")
        world.now += 6
        world.decide()
        cause = world.job.status.incidents[0].cause
        assert world.job.status.phase is not GangPhase.FAILED
        assert (cause.member, cause.exact) == found


def test_an_end_that_was_reported_is_tied_with_one_that_only_last_words_tell() -> None:
    world = World()
    world.submit(JOB.format(replicas=2))
    for line in ("the gang runs", "everyone runs", "10.4 s pass", "worker-1 ends with 2", "2 s pass"):
        sentence(world, line)
    sentence(world, "worker-0 ends with 1")
    sentence(world, "the supervisor of worker-0 goes, and its pod has ended")
    del world.heard["worker-0.0"]
    world.decide()
    cause = world.job.status.incidents[0].cause
    assert (cause.member, cause.exact, cause.tied) == ("worker-1", True, ("worker-0", "worker-1"))
