"""What an elastic gang asks its queue for, and how much of it the gang keeps: a second statement of the scenarios."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.roles import roles_hash
from gangctl.core.facts.world import Workload
from gangctl.core.policy.pods import MAX_REPLACED
from gangctl.core.policy.quota import asked_at_first
from tests.core.scenario import sentence
from tests.core.world import MANIFEST, World

STORE = "checkpoint: {tiers: [{name: store, scope: Shared, reshardable: true, source: {type: API}}]}"
JOB = f"roles: [{{name: worker, replicas: 4, minReplicas: 2}}]\n{STORE}\nrecovery: {{shrinkAfterSeconds: 60}}"
SHRUNK = ("30 s pass", "the pod of worker-1 has ended", "decide", "everyone is Ready", "60 s pass", "decide")
GROWN = ("the gang runs", "600 s pass", "decide", "the queue gives quota for 1 more pod of worker", "decide")


def lived(admission: str, *sentences: str) -> World:
    """A gang of four of which two are enough, in a queue."""
    world = World()
    world.submit(JOB)
    for line in ("the gang names queue team-a", "decide", admission, *sentences):
        sentence(world, line)
    return world


def kept(world: World) -> list[int]:
    """How many pods each of its Workloads has quota for."""
    first = world.queue.workload
    return [one.pods["worker"] for one in (first, *world.queue.more) if one is not None and one.gives]


def members(world: World) -> set[str]:
    """The members with a pod that stays."""
    return {pod.member for pod in world.pods.values() if not pod.deleting and not pod.terminated}


def test_quota_is_given_back_when_the_pod_is_gone() -> None:
    world = lived("the queue admits the gang", "the gang runs", *SHRUNK)
    assert (kept(world), members(world)) == ([4], {"worker-0", "worker-2", "worker-3"})
    for line in ("the pod of worker-1.1 vanishes", "everyone runs", "decide"):
        sentence(world, line)
    assert kept(world) == [3]


@pytest.mark.parametrize(("quota", "size"), [(4, 4), (3, 3), (2, 2)])
def test_a_gang_starts_with_as_many_members_as_its_queue_admits(quota: int, size: int) -> None:
    world = lived(f"the queue admits the gang with {quota} pods of worker", "decide")
    assert (kept(world), len(members(world))) == ([quota], size)


def test_a_gang_asks_once_and_has_the_pod_when_its_queue_gives_quota() -> None:
    world = lived("the queue admits the gang with 3 pods of worker", *GROWN[:-2], "30 s pass", "decide")
    assert (len(world.queue.more), len(members(world))) == (1, 3)
    for line in ("worker-0 ends with 1", "decide", *GROWN[-2:]):
        sentence(world, line)
    assert len(world.queue.more) == 1, "while the attempt gathers, nothing is asked for again"
    world = lived("the queue admits the gang with 3 pods of worker", *GROWN)
    assert (kept(world), len(members(world))) == ([3, 1], 4)


def test_what_the_queue_takes_back_costs_the_pod_that_it_was_for() -> None:
    world = lived("the queue admits the gang with 3 pods of worker", *GROWN)
    sentence(world, "the queue takes back what it gave last: Preempted")
    sentence(world, "decide")
    assert (kept(world), len(members(world))) == ([3], 3)


@pytest.mark.parametrize("ends", [(), tuple([f"worker-{at} ends with 0" for at in range(4)])])
def test_a_workload_of_other_roles_is_given_back_though_pods_are_there(ends: tuple[str, ...]) -> None:
    """A leader that was deposed has asked for it, late."""
    world = lived("the queue admits the gang", "the gang runs", *ends)
    own = world.queue.workload
    left = Workload("team-a", "other", admitted=True, reserved=True, name="left")
    world.queue = replace(world.queue, more=(left,))
    sentence(world, "decide")
    assert world.queue.more == ()
    assert world.queue.workload == own


def test_quota_of_the_roles_that_pods_still_have_is_not_given_back_as_left_over() -> None:
    world = lived("the queue admits the gang", "the gang runs")
    own = world.queue.workload
    assert own is not None
    # As if the new roles had been asked for too soon.
    world.job = changed(world.job, spec=changed(world.job.spec, roles=(changed(world.job.spec.roles[0], replicas=5),)))
    asked = replace(own, roles_hash=roles_hash(world.job.spec.roles), name="new")
    world.queue = replace(world.queue, workload=asked, more=(replace(own, pods={}),))
    sentence(world, "decide")
    assert [one.name for one in world.queue.more] == [own.name], "its pods still stop"


def test_fewer_are_enough_only_as_far_as_the_status_can_name_the_others() -> None:
    def ask(**role: object) -> list[tuple[int, int]]:
        roles = [{**MANIFEST["spec"]["roles"][0], **role}]
        tiers = {"tiers": [{"name": "s", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}]}
        job = GangJob.model_validate({**MANIFEST, "spec": {"roles": roles, "checkpoint": tiers}})
        return [(one.pods, one.least) for one in asked_at_first(job.spec)]

    assert ask(replicas=4, spares=1) == [(5, 5)]
    assert ask(replicas=4, spares=1, minReplicas=2) == [(5, 3)]
    assert ask(replicas=1000, minReplicas=10) == [(1000, 1000 - MAX_REPLACED)]


def test_a_gang_whose_pods_the_queue_places_says_that_it_grows_only_when_it_is_resumed() -> None:
    world = lived("the queue admits the gang with 3 pods of worker", "the gang runs", "600 s pass")
    assert world.queue.workload is not None
    world.queue = replace(world.queue, workload=replace(world.queue.workload, places_pods=True))
    sentence(world, "decide")
    said = next(one.message for one in world.job.status.conditions if one.type == "Degraded")
    assert "it grows only when it was suspended and is resumed" in said
    assert not world.queue.more


def test_where_the_queue_places_pods_a_member_has_one_at_a_time_but_for_one_on_a_lost_node() -> None:
    deleted = ("the pod of worker-0 is being deleted", "decide", "everyone is Ready", "decide")
    world = lived("the queue admits the gang", "the queue places each pod", "the gang runs", "10 s pass", *deleted)
    assert [uid for uid in world.pods if uid.startswith("worker-0")] == ["worker-0.0"]
    for line in ("worker-0.0 loses its connection", "the node of worker-0 is lost", "40 s pass", "decide"):
        sentence(world, line)
    assert [uid for uid in world.pods if uid.startswith("worker-0")] == ["worker-0.0", "worker-0.1"]
