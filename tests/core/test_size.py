"""A gang of 10,000 members goes through all that can happen to it: each status can be stored, and is read back."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gangctl.api.model import changed
from gangctl.api.status import GangPhase
from gangctl.core.facts.world import Device
from gangsidecar.wire import End, Phase
from tests.core.fleet import Fleet

pytestmark = pytest.mark.nightly


def ends(exit_code: int, attempt: int) -> tuple[End, ...]:
    """A worker that has just ended."""
    return (End(attempt, 0, 1, rank=0, exit_code=exit_code, message="e" * 300),)


def names(count: int, first: int = 0) -> list[str]:
    """So many workers."""
    return [f"worker-{at}" for at in range(first, first + count)]


Event = Callable[[Fleet], None]


def faults(count: int, fleet: Fleet) -> None:
    fleet.report(names(count), ends=ends(1, fleet.status.attempt))


def many_pods_vanish(fleet: Fleet) -> None:
    gone = {f"worker-{at}" for at in range(0, 9000, 3)}
    fleet.pods = {uid: pod for uid, pod in fleet.pods.items() if pod.member not in gone}
    fleet.heard = {uid: heard for uid, heard in fleet.heard.items() if uid in fleet.pods}


def nodes_are_lost(fleet: Fleet, count: int = 120) -> None:
    chosen = names(count, first=17)
    fleet.lost_nodes = {pod.node: fleet.now for pod in fleet.pods.values() if pod.member in chosen}
    for uid, heard in fleet.heard.items():
        if fleet.pods[uid].node in fleet.lost_nodes:
            fleet.heard[uid] = replace(heard, connected=False)
    fleet.now += 60
    fleet.settle(turns=6)
    fleet.lost_nodes = {}


def devices_fail(fleet: Fleet) -> None:
    fleet.pod(names(200, first=4000), devices=(Device("gpu", "gpu-0" * 40, "Unhealthy"),))


def all_are_silent(fleet: Fleet) -> None:
    """Nothing is heard any more, past every deadline; a fault made them stop."""
    fleet.report(names(1), ends=ends(1, fleet.status.attempt))
    fleet.turn()
    fleet.speaks = lambda _member: False
    fleet.heard = {uid: replace(heard, connected=False) for uid, heard in fleet.heard.items()}
    for _ in range(12):
        fleet.now += 400
        fleet.turn()
        fleet.turn()
    fleet.speaks = lambda _member: True


def no_image(fleet: Fleet) -> None:
    """Every pod is replaced, and none of the new ones starts."""
    fleet.starts = lambda _member: False
    many_pods_vanish(fleet)
    for _ in range(14):
        fleet.turn()
        fleet.pods = {uid: replace(pod, reason="ImagePullBackOff") for uid, pod in fleet.pods.items()}
        fleet.now += 700
    fleet.starts = lambda _member: True
    fleet.pods = {uid: replace(pod, started_at=fleet.now, reason="") for uid, pod in fleet.pods.items()}


def new_pods_end_at_once(fleet: Fleet) -> None:
    many_pods_vanish(fleet)
    for _ in range(10):
        fleet.turn()
        fleet.pods = {
            uid: pod
            if uid in fleet.heard
            else replace(pod, terminated=True, reason="UnexpectedAdmissionError " + "w" * 200)
            for uid, pod in fleet.pods.items()
        }
        fleet.now += 50
    fleet.pods = {uid: replace(pod, terminated=False, reason="") for uid, pod in fleet.pods.items()}


def suspend_and_resume(fleet: Fleet) -> None:
    fleet.job = changed(fleet.job, spec=changed(fleet.job.spec, suspend=True))
    fleet.turn()
    fleet.pods, fleet.heard = {}, {}
    fleet.turn()
    fleet.now += 3600
    fleet.job = changed(fleet.job, spec=changed(fleet.job.spec, suspend=False))


def restart(fleet: Fleet) -> None:
    fleet.job = changed(fleet.job, spec=changed(fleet.job.spec, restart_token=str(fleet.now)))


def steps_are_rejected(fleet: Fleet) -> None:
    fleet.report(
        names(6000), missing_step=fleet.step, missing_attempt=fleet.status.attempt, phase=Phase.READY, progress=None
    )


EVENTS: list[Event] = [
    partial(faults, 1000),
    partial(faults, 9000),
    many_pods_vanish,
    nodes_are_lost,
    devices_fail,
    all_are_silent,
    no_image,
    new_pods_end_at_once,
    suspend_and_resume,
    steps_are_rejected,
]
SPEC: dict[str, Any] = {
    "roles": [{"replicas": 9000, "spares": 1000}],
    "recovery": {"budget": {"type": "Unlimited"}, "onExhausted": "Hold", "isolationTimeoutSeconds": 60},
    "checkpoint": {
        "fallbackAfter": 1,
        "tiers": [
            {
                "name": "shared",
                "scope": "Shared",
                "source": {"type": "Directory", "directory": "/c", "layout": "TorchDCP"},
            },
            {"name": "api", "scope": "Shared", "source": {"type": "API"}},
        ],
    },
}


ORDINARY = 64 * 1024
"""Bytes of the status of a gang that runs, is restarted with up to 100 new pods, or is suspended."""


@pytest.mark.timeout(600)
def test_the_status_of_ten_thousand_members_is_small_in_the_ordinary() -> None:
    fleet = Fleet(copy.deepcopy(SPEC), ORDINARY)
    fleet.settle()
    for _ in range(3):
        fleet.step += 1
        fleet.obey()
        gone = set(names(100))
        fleet.pods = {uid: pod for uid, pod in fleet.pods.items() if pod.member not in gone}
        fleet.heard = {uid: heard for uid, heard in fleet.heard.items() if uid in fleet.pods}
        fleet.settle()
        faults(1, fleet)
        fleet.settle()
    suspend_and_resume(fleet)
    fleet.settle()
    assert fleet.status.phase is GangPhase.RUNNING, fleet.status.message
    assert fleet.status.attempt > 7


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_members_go_through_everything(seed: int) -> None:
    chance = random.Random(seed)
    fleet = Fleet(copy.deepcopy(SPEC))
    fleet.settle()
    assert fleet.status.phase is GangPhase.RUNNING
    for event in chance.sample(EVENTS, len(EVENTS)):
        fleet.step += 1
        fleet.obey()
        event(fleet)
        fleet.settle()
        for _ in range(3):
            if fleet.status.phase is GangPhase.RUNNING:
                break
            fleet.now += 3600
            restart(fleet)
            fleet.settle()
        assert fleet.status.phase is GangPhase.RUNNING, (event, fleet.status.message)
