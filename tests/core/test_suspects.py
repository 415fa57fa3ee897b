"""Whom a gang suspects where others than the first to end may be at fault, or none is."""

from __future__ import annotations

from gangctl.api.status import GangPhase
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
