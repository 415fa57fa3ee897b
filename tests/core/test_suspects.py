"""Whom a gang suspects where others than the first to end may be at fault, or none is."""

from __future__ import annotations

from typing import Any

from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang
from tests.core.scenario import sentence
from tests.core.world import World

SAVES = """
roles: [{name: worker, replicas: 2}]
checkpoint:
  fallbackAfter: 2
  tiers: [{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}]
recovery: {budget: {type: Windowed, maxRestarts: 6, windowSeconds: 86400}, replaceAfter: 3, evidenceWindowSeconds: 0}
"""


def says(made: World, *sentences: str) -> None:
    for one in sentences:
        sentence(made, one)
    while made.decide().status is not None:
        pass


def started(made: World) -> int | None:
    """The next attempt starts after its wait; returns what it restores."""
    for _ in range(100):
        says(made, "everyone is Ready", "a scan finds shared 10 20 30", "1 s pass")
        if made.job.status.phase is not GangPhase.GATHERING:
            break
    says(made, "everyone runs")
    point = made.job.status.restore_point
    return None if point is None else point.step


def test_a_rank_that_fails_when_others_have_finished_costs_neither_a_step_nor_its_pod() -> None:
    for reports in (True, False):
        made = World()
        made.submit(SAVES)
        says(made, "the gang runs", "everyone runs")
        if reports:
            says(made, "worker-0 reports step 30, its first was 1", "worker-1 reports step 30, its first was 1")
        for _ in range(6):
            says(made, "10 s pass", "worker-0 ends with 0", "worker-1 ends with 1, 20 ms ago")
            assert started(made) == 30
        assert made.pods[made.newest("worker-1")].incarnation == 0
        assert [one.progressed for one in made.job.status.ledger][1:] == [None] * 5


def test_a_rank_that_fails_while_none_has_finished_is_suspected() -> None:
    made = World()
    made.submit(SAVES)
    says(made, "the gang runs", "everyone runs", "worker-0 reports step 30")
    points = []
    for _ in range(2):
        says(made, "10 s pass", "worker-1 ends with 1")
        points.append(started(made))
    assert points == [30, 20]


def hung(made: World, *, steps: bool, killed: bool, ways: tuple[str, ...] = ("SIGABRT",) * 3) -> None:
    """All but worker-3 end within a second, in these ways; worker-3 is stopped, and the next attempt begins."""
    says(made, "10 s pass")
    if steps:
        step = 10 * made.job.status.attempt
        says(made, *(f"worker-{at} reports step {step + (at < 3)}" for at in range(4)))
    says(made, "60 s pass")
    says(made, *(f"worker-{at} ends with {how}, {900 - at} ms ago" for at, how in enumerate(ways)))
    says(made, "everyone is Ready", *(["worker-3 is Ready after SIGKILL at 3000 ms"] if killed else []), "6 s pass")


def replaced(*, times: int = 3, roles: str = "{name: worker, replicas: 4}", **how: Any) -> list[str]:
    """The members that have got new pods after some failures that look like this."""
    made = World()
    made.submit(f"roles: [{roles}]\nrecovery: {{replaceAfter: 3, budget: {{type: Unlimited}}}}")
    says(made, "the gang runs")
    for _ in range(times):
        hung(made, **how)
        for _ in range(10):
            says(made, "1 s pass")
        if made.job.status.phase is GangPhase.RUNNING:
            says(made, "everyone runs")
    return sorted(pod.member for pod in made.pods.values() if pod.incarnation > 0)


def test_the_member_that_stays_behind_is_suspected_and_not_those_that_waited_for_it() -> None:
    assert replaced(steps=True, killed=False) == ["worker-3"]


def test_the_member_that_must_be_killed_is_suspected_where_no_steps_are_known() -> None:
    assert replaced(steps=False, killed=True) == ["worker-3"]
    assert replaced(steps=False, killed=True, times=2) == []


def test_a_member_of_another_process_group_has_not_stayed_behind() -> None:
    """Of four trainers one stays, whatever the evaluator does; where all end, the evaluator is not to blame."""
    assert replaced(steps=False, killed=True, roles="{name: worker, replicas: 4}, {name: evaluator, replicas: 1}") == [
        "worker-3"
    ]
    made = World()
    made.submit(
        """
roles: [{name: worker, replicas: 3}, {name: evaluator, replicas: 1}]
recovery: {replaceAfter: 3, budget: {type: Unlimited}}
"""
    )
    says(made, "the gang runs")
    for _ in range(4):
        says(made, "70 s pass", *(f"worker-{at} ends with SIGABRT, {900 - at} ms ago" for at in range(3)))
        says(made, "everyone is Ready", "evaluator-0 is Ready after SIGKILL at 3000 ms", *["1 s pass"] * 16)
        says(made, "everyone runs")
    assert made.job.status.attempt == 5
    assert not [pod.member for pod in made.pods.values() if pod.incarnation > 0]


def test_a_spare_that_has_lost_its_place_is_of_the_process_group_of_its_role() -> None:
    made = World()
    made.submit("roles: [{name: worker, replicas: 2, spares: 1}, {name: evaluator, replicas: 1}]")
    says(made, "the gang runs")
    gang = Gang(made.now, made.job, made.observed())
    assert gang.world_of("worker-2") == gang.world_of("worker-0") == {"worker-0", "worker-1"}
    assert gang.world_of("evaluator-0") == {"evaluator-0"}
    assert gang.world_of("") == frozenset()


def test_a_member_that_was_merely_not_done_yet_is_not_suspected() -> None:
    assert replaced(steps=False, killed=False) == ["worker-0"]
    assert replaced(steps=True, killed=True, ways=("1", "SIGABRT", "SIGABRT")) == ["worker-0"]
    assert replaced(steps=True, killed=True, ways=("SIGABRT", "SIGABRT")) == ["worker-0"]


def test_a_spare_on_a_node_where_gangs_have_met_faults_is_the_last_choice() -> None:
    for bad, chosen in (((), "worker-2"), (("worker-2",), "worker-3"), (("worker-2", "worker-3"), "worker-2")):
        made = World()
        made.submit("roles: [{name: worker, replicas: 2, spares: 2}]")
        says(made, "the gang runs", *[f"gangs have met faults on the node of {one}" for one in bad])
        says(made, "the pod of worker-1 has ended")
        says(made, "2 s pass", "worker-0 is Ready", "worker-2 is Ready", "worker-3 is Ready")
        assert [(one.place, one.member) for one in made.job.status.ranks] == [("worker-1", chosen)]
