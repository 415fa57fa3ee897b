"""The gangs of a group, against the truth: planned restarts in turn, a common budget, a start that waits for others.

No model knows of endpoints or of several gangs, so gangs with kubelets live beside it.

Each gang serves some time after its processes have started; a kubelet shows that only when it probes next. Statuses are
stored a while after they were decided, or not at all, and other gangs are decided about meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.cluster.port import Cluster
from gangctl.controller.fleet import Groups
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.plan import Plan
from tests.core import groups
from tests.core.given import each, ready, run, start
from tests.core.scenario import sentence
from tests.core.world import MANIFEST, START, World
from tests.effort import NIGHTLY

PROBE_SECONDS, LONGEST_LOAD, READY_SECONDS = 5, 30, 8
MEMBERS = ("worker-0", "worker-1")


@dataclass
class Gang:
    """A replica of the service, and what is true of it."""

    world: World
    load: int
    """Seconds that its server needs until it listens."""
    listens_at: float = 0.0
    probed_at: float = 0.0
    is_ill: bool = False
    """Whether it answers no probe, though nothing ends."""
    due: float = START
    decided: Plan | None = None
    """What isn't stored yet."""
    has_place: bool = True
    """Whether its pods can start."""

    @property
    def job(self) -> GangJob:
        """As it is stored."""
        return self.world.job

    def serves(self, now: float) -> bool:
        """Whether a request would be answered."""
        runs = self.job.status.phase is GangPhase.RUNNING
        return runs and not self.is_ill and now >= self.listens_at

    def is_leaving(self) -> bool:
        """Whether it stops as soon as its status is stored."""
        return self.decided is not None and _phase(self.decided) is not GangPhase.RUNNING

    def shown_ready(self) -> bool:
        """What its kubelet has shown."""
        return all(("Ready", "True", "") in pod.conditions for pod in self.world.pods.values())


@dataclass
class Town:
    """Some gangs of one group under one controller, whose rounds take turns."""

    dice: random.Random
    most: int
    group: dict[str, object] = field(default_factory=dict)
    """What spec.replicaGroup has beside the name."""
    now: float = START
    gangs: dict[str, Gang] = field(default_factory=dict)
    woken: set[str] = field(default_factory=set)
    restarts: int = 0
    """Planned ones of gangs that served."""

    def __post_init__(self) -> None:
        """Make its gangs, and its controller."""
        self.groups = Groups(cast("Cluster", self), self.woken.add)  # It makes these few reads only.
        for at in range(4):
            name = f"model-{at}"
            spec = {
                **MANIFEST["spec"],
                "successPolicy": {"type": "Never"},
                "recovery": {"budget": {"type": "Unlimited"}, "replaceAfter": 99},
                "replicaGroup": {"name": "model", **self.group},
                "rolling": {"maxUnavailable": self.most, "minReadySeconds": READY_SECONDS},
            }
            job = GangJob.model_validate({**MANIFEST, "metadata": {"name": name, "uid": name}, "spec": spec})
            self.gangs[name] = Gang(World(job), self.dice.randrange(LONGEST_LOAD))

    # What the controller reads

    def uids(self) -> tuple[str, ...]:
        return tuple(self.gangs)

    def gang(self, uid: str) -> GangJob:
        return self.gangs[uid].job

    def pods(self, uid: str) -> tuple[Pod, ...]:
        return self.gangs[uid].world.really_observed().pods

    def listening_since(self, uid: str) -> float:
        return self.gangs[uid].world.listening_since

    # What happens

    def second(self) -> None:
        """A second passes: kubelets probe, statuses are stored, members obey, and those that are woken are decided."""
        self.now += 1
        for uid in self.dice.sample(list(self.gangs), len(self.gangs)):
            gang = self.gangs[uid]
            gang.world.now = self.now
            self.probe(gang)
            if gang.decided is not None and self.dice.random() < 0.5:
                plan, gang.decided = gang.decided, None
                if self.dice.random() < 0.8:  # Else the write has failed: the round is repeated.
                    gang.world.apply(plan)
                self.woken.add(uid)
            if gang.decided is None:
                self.obey(gang)
                if uid in self.woken or self.now >= gang.due:
                    self.decide(uid, gang)

    def probe(self, gang: Gang) -> None:
        if self.now >= gang.probed_at + PROBE_SECONDS or self.dice.random() < 0.2:
            gang.probed_at = self.now
            before, answer = gang.shown_ready(), str(gang.serves(self.now))
            for pod in list(gang.world.pods.values()):
                if not pod.terminated:
                    groups.shown(gang.world, pod.uid, answer)
            if gang.shown_ready() is not before:
                self.woken.add(gang.job.metadata.uid)

    def obey(self, gang: Gang) -> None:
        """Members do what they are told, and kubelets what the cluster says."""
        world, uid = gang.world, gang.job.metadata.uid
        for pod in list(world.pods.values()):
            if pod.deleting:
                sentence(world, f"the pod of {pod.uid} has ended")
                world.pods.pop(pod.uid)
            elif pod.started_at is None and gang.has_place:
                start(world, pod.uid)
                groups.shown(world, pod.uid, "False")
            else:
                continue
            self.woken.add(uid)
        if gang.job.status.phase in {GangPhase.PENDING, GangPhase.GATHERING} and gang.has_place:
            each(ready)(world)
            gang.listens_at = self.now + 1000
            self.woken.add(uid)
        elif gang.job.status.phase is GangPhase.RUNNING and gang.listens_at > self.now + LONGEST_LOAD:
            each(run)(world)
            gang.listens_at = self.now + gang.load

    def decide(self, uid: str, gang: Gang) -> None:
        world, job = gang.world, gang.job
        self.woken.discard(uid)
        world.group = {one.name: one for one in self.groups.others(self.now, job)}
        plan = world.plan()
        self.groups.note_decision(self.now, job, plan)
        if job.status.phase is GangPhase.RUNNING and _opens_planned_restart(plan) and self.gets_requests(gang):
            self.restarts += 1
            away = [one.job.metadata.name for name, one in self.gangs.items() if name != uid and not self.is_there(one)]
            assert len(away) < self.most, f"{uid} begins a planned restart while {away} are away"
        gang.due = self.now + (plan.requeue_after or 1000)
        if plan.status is None:
            world.apply(plan)
        else:
            gang.decided = plan

    def gets_requests(self, gang: Gang) -> bool:
        return gang.serves(self.now) and gang.shown_ready()

    def is_there(self, gang: Gang) -> bool:
        """Whether it serves; one that a kubelet still shows as ready after it fell ill can't be known to be away."""
        unseen = gang.is_ill and gang.shown_ready()
        return (gang.serves(self.now) or unseen) and not gang.is_leaving()

    def charged(self, seconds: float) -> int:
        """Charged restarts of all gangs within so many seconds, as they are stored."""
        ledgers = [gang.job.status.ledger for gang in self.gangs.values()]
        return sum(one.charged and one.time > self.now - seconds for ledger in ledgers for one in ledger)

    def lives_until(self, is_so: Callable[[], bool], seconds: int) -> None:
        """Let time pass until something is so, and assert that it comes to be."""
        for _ in range(seconds):
            if is_so():
                return
            self.second()
        raise AssertionError(
            f"it takes more than {seconds} s: {[one.job.status.message for one in self.gangs.values()]}"
        )

    def all_serve(self) -> bool:
        return all(gang.serves(self.now) for gang in self.gangs.values())

    def all_have_restarted(self) -> bool:
        return all(one.job.spec.restart_token == one.job.status.observed_restart_token for one in self.gangs.values())

    def is_done(self) -> bool:
        return self.all_have_restarted() and self.all_serve()

    def ask(self, uid: str, token: str) -> None:
        self.strike(self.gangs[uid], f"restartToken becomes {token}")

    def strike(self, gang: Gang, what: str) -> None:
        sentence(gang.world, what)
        self.woken.add(gang.job.metadata.uid)


def _phase(plan: Plan) -> GangPhase | None:
    return GangPhase.RUNNING if plan.status is None else plan.status.phase


def _opens_planned_restart(plan: Plan) -> bool:
    if plan.status is None or plan.status.phase is GangPhase.RUNNING:
        return False
    return plan.status.incidents[0].cause.reason == Reason.RESTART_REQUESTED


def test_planned_restarts_never_take_more_replicas_than_may_be_unavailable() -> None:
    restarts = 0
    for seed in range(7 if NIGHTLY else 3):
        dice = random.Random(seed)
        town = Town(dice, most=1 + seed % 2)
        town.lives_until(town.all_serve, 120)
        for at in range(300):
            name = dice.choice(list(town.gangs))
            gang = town.gangs[name]
            match dice.randrange(40):
                case 0 | 1:
                    for one in town.gangs:
                        town.ask(one, f"all{at}")
                case 2 | 3:
                    town.ask(name, f"t{at}")
                case 4 if gang.serves(town.now) and gang.decided is None:
                    town.strike(gang, f"{dice.choice(MEMBERS)} ends with 1")
                case 5 if gang.serves(town.now) and gang.decided is None:
                    town.strike(gang, f"the pod of {dice.choice(MEMBERS)} is disrupted: EvictionByEvictionAPI")
                case 6 | 7:
                    gang.is_ill = not gang.is_ill
            town.second()
        for gang in town.gangs.values():
            gang.is_ill = False
        town.lives_until(town.is_done, 1200)
        restarts += town.restarts
    assert restarts > (20 if NIGHTLY else 4)


def test_gangs_that_do_not_serve_never_wait_for_each_other() -> None:
    town = Town(random.Random(1), most=1)
    town.lives_until(town.all_serve, 120)
    for gang in town.gangs.values():
        gang.is_ill = True
    town.lives_until(lambda: not any(gang.shown_ready() for gang in town.gangs.values()), 20)
    for name in town.gangs:
        town.ask(name, "mended")
    town.lives_until(town.all_have_restarted, 30)


def test_the_gangs_of_a_group_never_have_more_restarts_than_their_common_budget() -> None:
    ended = 0
    for seed in range(12 if NIGHTLY else 4):
        dice = random.Random(seed)
        town = Town(dice, most=4, group={"budget": {"maxRestarts": 5, "windowSeconds": 200}})
        town.lives_until(town.all_serve, 120)
        for _ in range(400):
            for gang in dice.sample(list(town.gangs.values()), dice.choice((1, 1, 4))):
                if gang.serves(town.now) and gang.decided is None and dice.random() < 0.03:
                    town.strike(gang, f"{dice.choice(MEMBERS)} ends with 1")
            town.second()
            assert town.charged(200) <= 5
            for gang in town.gangs.values():
                if gang.job.status.phase is GangPhase.FAILED:
                    ended += 1
                    assert "the budget of group model is used up: 5 restarts" in gang.job.status.message
                    assert town.charged(500) >= 5, "it ended though the group had a restart left"
    assert ended > 0


@pytest.mark.parametrize("seed", range(20 if NIGHTLY else 6))
def test_no_gang_starts_before_enough_of_its_group_have_their_pods(seed: int) -> None:
    dice, least = random.Random(seed), 2 + seed % 3
    town = Town(dice, most=4, group={"minCount": least})
    for gang in town.gangs.values():
        gang.has_place = False
    for name in dice.sample(list(town.gangs), least):
        assert not any(gang.job.status.started_attempt for gang in town.gangs.values())
        town.gangs[name].has_place = True
        town.woken.add(name)
        for _ in range(dice.randrange(20)):
            town.second()
    town.lives_until(lambda: sum(gang.serves(town.now) for gang in town.gangs.values()) == least, 120)
    one, other, *_ = (gang for gang in town.gangs.values() if gang.has_place)
    other.has_place = False
    town.strike(other, "the pod of worker-1 has ended")
    town.lives_until(lambda: other.job.status.phase is GangPhase.GATHERING, 60)
    town.strike(one, "worker-0 ends with 1")
    town.lives_until(lambda: one.job.status.started_attempt == 2, 60)  # It waits for no other again,
    assert other.job.status.phase is GangPhase.GATHERING
    del town.gangs[other.job.metadata.uid]
    town.groups.forget(other.job.metadata.uid)
    town.strike(one, "worker-0 ends with 1")
    town.lives_until(lambda: one.job.status.started_attempt == 3, 120)  # not for one that is gone either.
