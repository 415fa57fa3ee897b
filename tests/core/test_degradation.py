"""Slow ranks and the rules for them: nothing moves without a rule, and no rank moves twice."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gangctl.api.model import changed
from gangctl.api.status import GangPhase
from gangctl.core.record.conditions import warned_of
from gangctl.core.record.degraded import hides_failure
from gangsidecar.wire import Progress
from tests.core import given
from tests.core.world import World

RULE = "podFailurePolicy: {rules: [{action: Ignore, onReasons: [DeviceDegraded]}]}"
ROLES = "roles: [{name: worker, replicas: 6}]"


def slow(world: World, *members: int) -> None:
    """Each rank tells its own part of a step, with the ranks of the gang; these are half as fast."""
    for at in range(6):
        uid = world.newest(f"worker-{at}")
        own = 2000 if at in members else 1000
        progress = Progress(world.job.status.attempt, 60, 0, own_ms=own, own_rank=at)
        world.heard[uid] = replace(
            world.heard[uid], report=replace(world.heard[uid].report, progress=progress), at=world.now
        )


def gang(rule: str) -> World:
    """Six members that run."""
    here = World()
    here.submit(f"{ROLES}\n{rule}")
    given.runs(here)
    return here


def restarted(here: World) -> None:
    """The gang stops, the member at fault gets a pod, and all run again."""
    member = here.job.status.incidents[0].cause.member
    given.each(given.ready)(here)
    here.decide()
    old = next(uid for uid, pod in here.pods.items() if pod.member == member and pod.deleting)
    here.pods[old] = replace(here.pods[old], terminated=True)
    here.heard.pop(old)
    given.start(here, member)
    given.ready(here, member)
    here.decide()
    here.decide()
    given.each(given.run)(here)
    assert here.job.status.phase is GangPhase.RUNNING


def test_without_a_rule_for_it_no_slow_rank_moves() -> None:
    for rule in ("", "podFailurePolicy: {rules: [{action: Ignore, onReasons: [DeviceLost]}]}"):
        here = gang(rule)
        slow(here, 3)
        here.decide()
        assert (here.job.status.phase, here.job.status.attempt) == (GangPhase.RUNNING, 1)


def test_a_slow_rank_moves_once_and_another_one_after_it() -> None:
    here = gang(RULE)
    slow(here, 3)
    here.decide()
    first = here.job.status.incidents[0]
    assert (first.cause.reason, first.cause.member, first.planned) == ("DeviceDegraded", "worker-3", True)
    restarted(here)
    assert not here.job.status.incidents[0].charged
    slow(here, 3)
    here.decide()
    assert (here.job.status.phase, here.job.status.attempt) == (GangPhase.RUNNING, 2)
    slow(here, 4)
    here.decide()
    assert here.job.status.incidents[0].cause.member == "worker-4"


def test_a_move_that_the_budget_does_not_allow_is_left() -> None:
    once = "recovery: {budget: {type: Windowed, maxRestarts: 1, windowSeconds: 3600}}"
    here = gang(f"podFailurePolicy: {{rules: [{{action: Count, onReasons: [DeviceDegraded]}}]}}\n{once}")
    slow(here, 3)
    here.decide()
    restarted(here)
    assert here.job.status.incidents[0].charged
    slow(here, 4)
    here.decide()
    assert (here.job.status.phase, here.job.status.attempt) == (GangPhase.RUNNING, 2)
    here.now += 3600
    slow(here, 4)
    here.decide()
    assert here.job.status.incidents[0].cause.member == "worker-4"


def test_where_half_of_the_ranks_are_slow_none_moves() -> None:
    here = gang(RULE)
    slow(here, 0, 1, 2)
    here.decide()
    assert here.job.status.attempt == 1


def test_a_slow_rank_does_not_hide_a_fault() -> None:
    here = gang(RULE)
    slow(here, 3)
    given.ended(here, None, "worker-1", "3", None, None, None, None)
    here.decide()
    assert here.job.status.incidents[0].cause.reason == "ExitCode"


@pytest.mark.parametrize(
    ("words", "hides"),
    [
        (("bash", "-c", "python train.py 2>&1 | tee log"), True),
        (("sh", "-c", "python train.py |& tee log; exit $?"), True),
        (("env", "A=1", "/bin/bash", "-lc", "cd x && python train.py |\n tee log\n"), True),
        (("bash", "-c", "a & b | c & wait"), True),
        (("bash", "-c", "set -o pipefail; a | b"), False),
        (("bash", "-eo", "pipefail", "-c", "a | b"), False),
        (("bash", "-c", "a | b; test ${PIPESTATUS[0]} = 0"), False),
        (("bash", "-c", "a || b"), False),
        (("bash", "-c", "cat x | wc -l; python train.py"), False),
        (("bash", "-c", "python train.py --x $(ls $(pwd) | head -1)"), False),
        (("bash", "-c", "python train.py --a '|' --b \"a | b\" --c \\| # a | b"), False),
        (("bash", "-c", "python train.py > >(tee log) 2>&1"), False),
        (("bash", "-c", "for one in 1 2; do a | b; done"), False),
        (("bash", "-c", 'exec "$0" "$@"', "sh", "-c", "a | b"), False),
        (("bash", "run.sh", "a | b"), False),
        (("python", "-c", "a | b"), False),
        (("bash", "-c"), False),
        ((), False),
    ],
)
def test_a_shell_whose_last_statement_is_a_pipeline_hides_a_failure(words: tuple[str, ...], *, hides: bool) -> None:
    assert hides_failure(words) is hides


def test_a_warning_that_another_release_has_worded_is_not_written_again() -> None:
    here = World()
    here.submit("roles: [{name: worker, template: {spec: {containers: [{name: t, command: [bash, -c, a | b]}]}}}]")
    given.runs(here)
    here.decide()
    status = here.job.status
    assert warned_of(status) == "PipelineHidesFailure"
    reworded = tuple(
        changed(one, message="it said so otherwise") if one.type == "Degraded" else one for one in status.conditions
    )
    here.job = changed(here.job, status=changed(status, conditions=reworded))
    here.now += 3600
    assert here.decide().status is None


def test_a_script_of_a_tenant_costs_little() -> None:
    began = time.process_time()
    for piece in ("(", "'", '"', "\\", "|", "#", "`", "(a)", "\n|", "a;", "| "):
        hides_failure(("bash", "-c", (piece * 16_000)[:16_000]))
    hides_failure(("bash", "-c", "(" * 8_000 + ")" * 8_000))
    assert time.process_time() - began < 2
    assert not hides_failure(("bash", "-c", "#" * 20_000 + "\na | b"))
