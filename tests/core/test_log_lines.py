"""Which lines of the log judge an end, against a plain second statement of the rule."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.core.facts.faults import faults_of_ends
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import LastWords
from gangctl.core.policy.cause import log_patterns, verdict
from gangsidecar.wire import End, LogMatch
from tests.core.scenario import sentence
from tests.core.world import World

JOB = """
roles: [{name: worker, replicas: 3}, {name: other, replicas: 1}]
podFailurePolicy:
  rules:
  - {name: spared, action: Count, onLog: {pattern: harmless}}
  - {name: bad, action: FailJob, onLog: {pattern: bad}, roles: [worker]}
recovery: {evidenceWindowSeconds: 0, replaceAfter: 100}
"""
MEMBERS = ("worker-0", "worker-1", "worker-2", "other-0")
PATTERNS = ("harmless", "bad", "of no rule")


def running() -> World:
    """A gang of which each member has been told to run."""
    world = World()
    world.submit(JOB)
    sentence(world, "the gang runs")
    return world


def test_an_end_is_judged_by_the_lines_of_its_own_member_in_its_own_attempt() -> None:
    draw = random.Random(3)
    outcomes = set()
    for _ in range(60):
        world = running()
        found = {
            (member, pattern, attempt)
            for member, pattern, attempt in itertools.product(MEMBERS, PATTERNS, (0, 1))
            if draw.random() < 0.3
        }
        for member, pattern, attempt in sorted(found):
            report = world.heard[world.newest(member)].report
            one = LogMatch(attempt, pattern, f"line of {pattern}")
            world.again(member, log_matches=(*report.log_matches, one))
        world.decide()
        assert (world.job.status.phase, world.job.status.attempt) == (GangPhase.RUNNING, 1), "a line restarts nothing"
        member = draw.choice(MEMBERS)
        sentence(world, f"{member} ends with 1")
        sentence(world, "decide")
        sentence(world, "everyone is Ready")
        sentence(world, "decide")
        spared = (member, "harmless", 1) in found
        fails = not spared and (member, "bad", 1) in found and member.startswith("worker")
        cause = world.job.status.incidents[0].cause
        assert cause.rule == ("spared" if spared else "bad" if fails else None), (member, found)
        assert (world.job.status.phase is GangPhase.FAILED) is fails, (member, found)
        outcomes.add(cause.rule)
    assert outcomes == {"spared", "bad", None}


def test_the_reason_names_the_line_and_the_pattern_and_cuts_what_a_pod_may_send() -> None:
    world = running()
    sentence(world, f"worker-1 prints '{'x' * 5000}', which matches 'harmless'")
    sentence(world, "worker-1 ends with SIGKILL")
    gang = Gang(world.now, world.job, world.observed())
    (fault,) = faults_of_ends(gang, world.pods[world.newest("worker-1")], 1)
    assert verdict(world.job.spec, fault).why == f"its log has the line '{'x' * 200}', which matches 'harmless'"


def test_last_words_have_no_lines() -> None:
    world = running()
    uid = world.newest("worker-1")
    words = LastWords(world.now, (End(1, 0, 0, exit_code=1),))
    world.pods[uid] = replace(world.pods[uid], last_words=words)
    sentence(world, "worker-1 prints 'line', which matches 'bad'")
    gang = Gang(world.now, world.job, world.observed())
    (fault,) = faults_of_ends(gang, world.pods[uid], 1)
    assert fault.lines == ()


def test_a_role_is_searched_for_the_patterns_of_its_rules_each_once() -> None:
    world = running()
    assert log_patterns(world.job.spec, "worker") == ("harmless", "bad")
    assert log_patterns(world.job.spec, "other") == ("harmless",)
    rules = [{"action": "Count", "onLog": {"pattern": one}} for one in ("a", "b", "a")]
    document = world.job.model_dump(by_alias=True, mode="json")
    document["spec"]["podFailurePolicy"] = {"rules": rules}
    assert log_patterns(GangJob.model_validate(document).spec, "worker") == ("a", "b")
