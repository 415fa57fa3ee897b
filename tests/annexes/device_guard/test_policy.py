"""The device guard: flaps, rates, refusals, gone pods and new leaders, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from gangctl.annexes.device_guard import policy
from gangctl.annexes.device_guard.policy import (
    CLUSTER_EVICTIONS,
    LONGEST_WAIT_SECONDS,
    NODE_EVICTIONS,
    SETTLE_SECONDS,
    WINDOW_SECONDS,
    GuardedPod,
    GuardState,
)
from gangctl.core.facts.world import Device

START = 1_000_000.0


def pod(uid: str, node: str = "n1", health: str = "Healthy", name: str = "") -> GuardedPod:
    return GuardedPod(uid, "default", name or uid, node, (Device("gpu", f"gpu-of-{uid}", health),))


@dataclass
class World:
    """The pods of a cluster, and the guard of one leader after another."""

    pods: dict[str, GuardedPod] = field(default_factory=dict)
    now: float = START
    fresh: float = START
    memory: GuardState = field(default_factory=lambda: GuardState(START - WINDOW_SECONDS))
    refusing: set[str] = field(default_factory=set)
    evictions: list[tuple[float, str, str]] = field(default_factory=list)
    """When, the pod's UID, its node."""
    requests: list[tuple[float, str]] = field(default_factory=list)
    look_again_at: float | None = None
    waiting: dict[str, str] = field(default_factory=dict)

    def put(self, *pods: GuardedPod) -> None:
        self.pods |= {one.uid: one for one in pods}

    def health(self, uid: str, health: str) -> None:
        found = self.pods[uid]
        self.put(replace(found, devices=tuple(replace(one, health=health) for one in found.devices)))
        self.look()

    def look(self) -> None:
        """Rounds, as the controller makes them, until one evicts nothing."""
        while True:
            pods = tuple(self.pods.values())
            self.memory = policy.note_health(self.memory, pods, self.now)
            verdict = policy.decide_evictions(self.memory, pods, self.now, self.fresh)
            for one, device in verdict.evict:
                assert device in one.devices
                self.requests.append((self.now, one.uid))
                if one.uid in self.refusing:
                    self.memory = policy.note_refusal(self.memory, one, self.now)
                else:
                    self.memory = policy.note_eviction(self.memory, one, self.now)
                    self.evictions.append((self.now, one.uid, one.node))
            if not verdict.evict:
                self.look_again_at, self.waiting = verdict.look_again_at, dict(verdict.waiting)
                return

    def wait(self, seconds: float) -> None:
        """Look only when the guard asks for it."""
        end = self.now + seconds
        while self.look_again_at is not None and self.look_again_at <= end:
            assert self.look_again_at >= self.now
            self.now = self.look_again_at
            self.look()
        self.now = end

    def change_leader(self) -> None:
        """The next leader remembers nothing, and its watches are fresh from now on."""
        self.memory, self.fresh = GuardState(self.now), self.now
        self.look()

    @property
    def gone(self) -> list[str]:
        return [uid for _, uid, _ in self.evictions]


@pytest.mark.parametrize(("words", "told"), [("", ""), ("too many ECC errors", " (too many ECC errors)")])
def test_an_event_says_what_the_driver_says_of_the_device(words: str, told: str) -> None:
    device = Device("claim:gpu", "gpu-7", "Unhealthy", words)
    note = policy.eviction_event(pod("a"), device).message
    assert note.startswith(f"Device gpu-7 (claim:gpu) on node n1 is unhealthy{told}. The pod was evicted")


def test_a_pod_is_evicted_once_its_device_has_been_unhealthy_for_ten_seconds() -> None:
    world = World()
    world.put(pod("a"), pod("b"))
    world.health("a", "Unhealthy")
    assert world.look_again_at == START + SETTLE_SECONDS
    assert "gpu-of-a" in world.waiting["a"]
    world.wait(SETTLE_SECONDS - 0.001)
    assert world.gone == []
    world.wait(0.001)
    assert world.gone == ["a"]
    world.wait(10 * WINDOW_SECONDS)
    assert world.gone == ["a"], "though the pod is still seen with its unhealthy device"


def test_a_device_that_flaps_evicts_nothing_however_often() -> None:
    world = World()
    world.put(pod("a"))
    for _ in range(50):
        world.health("a", "Unhealthy")
        world.wait(SETTLE_SECONDS - 1)
        world.health("a", "Healthy")
        world.wait(1)
    assert world.gone == []
    assert world.look_again_at is None


def test_an_unknown_device_evicts_nothing() -> None:
    world = World()
    world.put(pod("a"))
    world.health("a", "Unknown")
    world.wait(WINDOW_SECONDS)
    assert world.gone == []


def test_what_a_broken_watch_did_not_show_does_not_count_as_unhealthy_time() -> None:
    world = World()
    world.put(pod("a"))
    world.health("a", "Unhealthy")
    world.now += 60
    world.fresh = world.now
    world.look()
    assert world.gone == []
    world.wait(SETTLE_SECONDS)
    assert world.gone == ["a"]


def test_a_pod_that_ends_is_not_evicted() -> None:
    world = World()
    world.put(replace(pod("a", health="Unhealthy"), ending=True))
    world.look()
    world.wait(WINDOW_SECONDS)
    assert world.requests == []


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    world = World()
    world.put(pod("a", name="server-0"))
    world.health("a", "Unhealthy")
    world.wait(SETTLE_SECONDS)
    del world.pods["a"]
    world.put(pod("b", name="server-0"))
    world.look()
    assert world.memory.done == frozenset()
    world.wait(WINDOW_SECONDS)
    assert world.gone == ["a"]
    world.health("b", "Unhealthy")
    world.wait(SETTLE_SECONDS - 1)
    assert world.gone == ["a"], "the time of its predecessor does not count"
    world.wait(1)
    assert world.gone == ["a", "b"]


def test_a_node_loses_two_pods_a_minute_those_first_that_have_been_unhealthy_the_longest() -> None:
    world = World()
    world.put(*(pod(name) for name in "dcba"), pod("other", "n2"))
    for name in "cabd":
        world.health(name, "Unhealthy")
        world.wait(1)
    world.health("other", "Unhealthy")
    world.wait(30)
    assert world.gone == ["c", "a", "other"]
    assert f"{NODE_EVICTIONS} pods of node n1" in world.waiting["b"]
    world.wait(WINDOW_SECONDS)
    assert world.gone == ["c", "a", "other", "b", "d"]


def test_pods_that_wait_for_the_same_moment_are_evicted_in_the_order_of_their_faults() -> None:
    world = World(memory=GuardState(START))
    world.put(*(pod(name) for name in "abc"))
    for name in "cba":
        world.health(name, "Unhealthy")
        world.wait(1)
    world.wait(WINDOW_SECONDS)
    assert world.gone == ["c", "b"]
    assert {at for at, *_ in world.evictions} == {START + WINDOW_SECONDS}


def test_pods_whose_evictions_get_no_answer_do_not_keep_others_waiting_without_end() -> None:
    memory = GuardState(START - WINDOW_SECONDS)
    pods = tuple(pod(name, health="Unhealthy") for name in "abc")
    memory = policy.note_health(memory, pods, START)
    asked: list[str] = []
    now = START + SETTLE_SECONDS
    for _ in range(2):
        verdict = policy.decide_evictions(memory, pods, now, START)
        for one, _ in verdict.evict:
            asked.append(one.uid)
            memory = policy.note_refusal(memory, one, now, counts=True)
        now += WINDOW_SECONDS
        memory = policy.note_health(memory, pods, now)
    assert asked == ["a", "b", "c", "a"]


def test_a_cluster_whose_devices_are_all_unhealthy_loses_ten_pods_a_minute() -> None:
    world = World()
    world.put(*(pod(f"p{number:03}", f"n{number}", "Unhealthy") for number in range(35)))
    world.look()
    world.wait(SETTLE_SECONDS)
    assert len(world.gone) == CLUSTER_EVICTIONS
    assert f"{CLUSTER_EVICTIONS} pods were evicted" in world.waiting["p034"]
    world.wait(3 * WINDOW_SECONDS)
    assert len(world.gone) == 35
    assert len(set(world.gone)) == 35


def test_a_refused_eviction_is_tried_again_ever_more_rarely_and_stops_nothing_else() -> None:
    world = World(refusing={"a"})
    world.put(*(pod(name, "n1", "Unhealthy") for name in ("a", "b", "c")))
    world.look()
    world.wait(SETTLE_SECONDS)
    assert world.gone == ["b", "c"], "the refusal takes nothing from the rate of the node"
    world.wait(600)
    tries = [at for at, uid in world.requests if uid == "a"]
    tries = tries[1:]  # The rate of the node delays the second one.
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_WAIT_SECONDS
    world.refusing.clear()
    world.wait(LONGEST_WAIT_SECONDS)
    assert world.gone == ["b", "c", "a"]


def test_a_refusal_is_forgotten_when_the_device_is_healthy_again() -> None:
    world = World(refusing={"a"})
    world.put(pod("a", health="Unhealthy"))
    world.look()
    world.wait(600)
    world.health("a", "Healthy")
    assert not world.memory.refusals
    assert world.look_again_at is None


def test_the_api_server_may_ask_for_a_longer_pause() -> None:
    made = policy.note_refusal(GuardState(START), pod("a"), START, at_least=30)
    assert made.refusals["a"].again_at == START + 30


def test_an_eviction_without_an_answer_counts_for_the_rates() -> None:
    memory = GuardState(START - WINDOW_SECONDS)
    pods = tuple(pod(f"p{number}", health="Unhealthy") for number in range(NODE_EVICTIONS + 1))
    memory = policy.note_health(memory, pods, START)
    for one in pods[:NODE_EVICTIONS]:
        memory = policy.note_refusal(memory, one, START + 1, counts=True)
    now = START + SETTLE_SECONDS
    assert policy.decide_evictions(memory, pods, now, START).evict == ()


@pytest.mark.parametrize("seed", range(20))
def test_leaders_that_crash_again_and_again_keep_the_rates_and_evict_no_pod_twice(seed: int) -> None:
    chance, world = random.Random(seed), World()
    world.put(*(pod(f"p{number:03}", f"n{number % 6}") for number in range(60)))
    for _ in range(400):
        match chance.randrange(8):
            case 0 if chance.random() < 0.3:
                for uid in world.gone:
                    if uid in world.pods:  # what a new leader sees of an evicted pod: it ends
                        world.put(replace(world.pods[uid], ending=True))
                world.change_leader()
            case 1:
                world.pods.pop(chance.choice(world.gone), None) if world.gone else None
                world.look()
            case 2:
                uid = chance.choice(list(world.pods))
                world.refusing ^= {uid}
            case 3:
                world.health(chance.choice(list(world.pods)), "Healthy")
            case _:
                world.health(chance.choice(list(world.pods)), "Unhealthy")
        world.wait(chance.choice((0.0, 1.0, SETTLE_SECONDS, 45.0)))
    assert len(world.gone) == len(set(world.gone)) > 0
    for at, _, _ in world.evictions:
        within = Counter(node for then, _, node in world.evictions if at <= then < at + WINDOW_SECONDS)
        assert within.total() <= CLUSTER_EVICTIONS
        assert max(within.values()) <= NODE_EVICTIONS
