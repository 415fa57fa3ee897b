"""A gang that reports no steps goes one checkpoint back in a row of failures, whatever lies between them."""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.status import GangPhase
from tests.core.scenario import sentence
from tests.core.world import World

JOB = """
roles: [{name: worker, replicas: 2}]
checkpoint:
  fallbackAfter: 2
  tiers: [{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}]
recovery: {budget: {type: Windowed, maxRestarts: 50, windowSeconds: WINDOW}, replaceAfter: 100}
"""


def life(text: str, window: int = 86_400, seconds: int = 30) -> list[int]:
    """The restore points of a gang that fails (F), or of which a pod is drained (D), so many seconds after a start."""
    made = World()
    made.submit(JOB.replace("WINDOW", str(window)))
    decided(made)
    sentence(made, "every pod starts")
    points = [started(made)]
    for one in text:
        sentence(made, f"{seconds} s pass")
        if one == "F":
            sentence(made, "worker-0 ends with 1")
        else:
            drained(made)
        decided(made)
        points.append(started(made))
    return points


def drained(made: World) -> None:
    sentence(made, "the pod of worker-1 is disrupted: EvictionByEvictionAPI")
    decided(made)
    for uid, pod in list(made.pods.items()):
        if pod.deleting:
            made.pods[uid] = replace(pod, terminated=True)
            made.heard[uid] = replace(made.heard[uid], connected=False)
    while all(pod.terminated for pod in made.pods.values() if pod.member == "worker-1"):
        made.now += 10  # Drains in a row wait.
        decided(made)
    sentence(made, "worker-1 starts")


def decided(made: World) -> None:
    while made.decide().status is not None:
        pass


def started(made: World) -> int:
    """The next attempt starts, after its wait; returns what it restores."""
    for _ in range(100):
        sentence(made, "everyone is Ready")
        decided(made)
        sentence(made, "a scan finds shared 100 90 80 70 60")
        decided(made)
        if made.job.status.phase is GangPhase.RUNNING:
            break
        made.now += 1
    sentence(made, "everyone runs")
    decided(made)
    point = made.job.status.restore_point
    assert point is not None
    return point.step


def test_a_row_of_failures_costs_one_step_back() -> None:
    assert life("FFFFFF") == [100, 100, 90, 90, 90, 90, 90]


def test_drains_between_them_lead_no_further_back() -> None:
    assert life("FFDDDFFDDDDDFF") == [100, 100, *[90] * 13]


def test_drains_alone_lead_nowhere() -> None:
    assert life("DDDDFDDD") == [100] * 9


def test_drains_before_and_between_keep_no_corrupt_step() -> None:
    assert life("DDFDDFD") == [100] * 6 + [90, 90]


def test_a_row_of_which_the_begin_is_forgotten_leads_no_further_back() -> None:
    assert life("FFFFFFFF", window=320, seconds=300)[-1] == 90
