"""Restart back-off, against a plain second reckoning of how long each restart of a life waits."""

from __future__ import annotations

import random
from collections.abc import Callable

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.policy.recovery import LONGEST_SECONDS, wait_seconds
from tests.core.scenario import sentence
from tests.core.world import World
from tests.effort import NIGHTLY

JOB = "recovery: {replaceAfter: 100, budget: {type: Unlimited}}\nsuccessPolicy: {type: Never}"


def fails(world: World, step: int) -> None:
    sentence(world, f"worker-{step % 2} ends with 1")


def trains_and_fails(world: World, step: int) -> None:
    sentence(world, f"worker-0 reports step {step}")
    sentence(world, f"worker-{step % 2} ends with 1")


def is_evicted(world: World, step: int) -> None:
    sentence(world, f"the pod of worker-{step % 2} is disrupted: EvictionByEvictionAPI")


def is_restarted_by_hand(world: World, step: int) -> None:
    sentence(world, f"restartToken becomes t{step}")


Event = Callable[[World, int], None]
EVENTS: tuple[Event, ...] = (fails, fails, fails, fails, trains_and_fails, is_evicted, is_restarted_by_hand)


def seconds_until_it_runs(world: World) -> float:
    """Every member does at once what it is told; how long the attempt takes all the same."""
    began = world.now
    while world.now < began + 100:
        world.decide()
        for pod in list(world.pods.values()):
            if pod.deleting and not pod.terminated:
                sentence(world, f"the pod of {pod.uid} has ended")
        world.decide()
        for pod in list(world.pods.values()):
            if pod.started_at is None:
                sentence(world, f"{pod.uid} starts")
        sentence(world, "everyone is Ready")
        plan = world.decide()
        if world.job.status.phase is GangPhase.RUNNING:
            return world.now - began
        assert plan.requeue_after is not None
        world.now = round(world.now + plan.requeue_after, 6)
    raise AssertionError("it does not run again")


def test_each_restart_waits_as_long_as_the_restarts_since_the_last_step_say() -> None:
    for seed in range(12 if NIGHTLY else 4):
        live(random.Random(seed))


def live(draw: random.Random) -> None:
    """One life of a gang: after each event it runs again as soon as it may."""
    world = World()
    world.submit(JOB)
    sentence(world, "the gang runs")
    in_a_row = 0
    for step in range(1, 16):
        sentence(world, "everyone runs")
        event = draw.choice(EVENTS)
        event(world, step)
        world.decide()
        assert world.job.status.phase is GangPhase.GATHERING, "all workers stop at once"
        took = seconds_until_it_runs(world)
        if event in {trains_and_fails, is_restarted_by_hand}:
            in_a_row = 0
        in_a_row += event in {fails, trains_and_fails}
        if event is is_evicted:  # Its new pod may wait, which is another rule.
            assert took in {0, 10, 20, 40, 80, 160, 300}
        elif event is is_restarted_by_hand or in_a_row == 1:
            assert took == 0
        else:
            longest = min(60, 2 ** (in_a_row - 2))
            assert 0.8 * longest <= took <= longest + 0.1
        assert world.job.status.restarts.without_step == in_a_row


def test_the_waits_of_many_gangs_differ_but_one_gang_always_waits_the_same() -> None:
    waits = [wait_seconds(9, f"gang-{number}/9") for number in range(200)]
    assert len(set(waits)) > 190
    assert min(waits) < 50
    assert max(waits) > 58
    assert waits == [wait_seconds(9, f"gang-{number}/9") for number in range(200)]


def test_a_wait_begins_again_with_the_term_of_a_leader_whose_clock_is_behind() -> None:
    world = World()
    world.submit(JOB)
    sentence(world, "the gang runs")
    for _ in range(8):
        sentence(world, "everyone runs")
        fails(world, 0)
        world.decide()
        sentence(world, "everyone is Ready")
        seconds_until_it_runs(world)
    sentence(world, "everyone runs")
    fails(world, 0)
    world.decide()
    world.now -= 3600
    world.listening_since = world.now
    assert 40 < seconds_until_it_runs(world) <= LONGEST_SECONDS


def test_what_fails_while_a_restart_by_hand_gathers_is_not_its_cause() -> None:
    world = World()
    world.submit(JOB)
    sentence(world, "the gang runs")
    is_restarted_by_hand(world, 1)
    world.decide()
    fails(world, 0)
    assert seconds_until_it_runs(world) == 0
    last = world.job.status.incidents[0]
    assert (last.cause.reason, last.charged) == (Reason.RESTART_REQUESTED, False)


def test_a_restart_by_hand_ends_a_wait_and_begins_the_row_anew() -> None:
    world = World()
    world.submit(JOB)
    sentence(world, "the gang runs")
    for _ in range(4):
        sentence(world, "everyone runs")
        fails(world, 0)
        world.decide()
        sentence(world, "everyone is Ready")
        seconds_until_it_runs(world)
    sentence(world, "everyone runs")
    fails(world, 0)
    world.decide()
    sentence(world, "everyone is Ready")
    world.decide()
    assert world.job.status.phase is GangPhase.GATHERING
    is_restarted_by_hand(world, 1)
    assert seconds_until_it_runs(world) <= 0.1  # A write that takes the request in is followed by another look.
    sentence(world, "everyone runs")
    fails(world, 0)
    world.decide()
    assert seconds_until_it_runs(world) <= 1  # The restart that was cut short is the first of the new row.
