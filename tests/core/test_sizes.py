"""The sizes that an elastic role may have, and how often a gang is stopped to grow."""

from __future__ import annotations

import pytest

from gangctl.api.gangjob import GangJob, Role
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import layout, number_places, with_sizes
from gangctl.api.status import Condition, FirstStep, GangPhase, RoleSize, RoleStatus, Size, Spent, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Observed
from gangctl.core.policy.growth import stopped_to_grow
from gangctl.core.policy.size import HOUR_SECONDS, MAX_STOPS, allowed_sizes, grows_at, shrinks_at
from gangctl.core.record.conditions import goodput, spent_until
from tests.core.scenario import sentence
from tests.core.world import MANIFEST, START, World


def role(**changes: object) -> Role:
    return Role.model_validate({"name": "worker", "template": MANIFEST["spec"]["roles"][0]["template"], **changes})


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"replicas": 3}, (3,)),
        ({"replicas": 4, "minReplicas": 2}, (4, 3, 2)),
        ({"replicas": 16, "minReplicas": 9, "sizes": {"type": "Step", "step": 4}}, (16, 12)),
        ({"replicas": 16, "minReplicas": 8, "sizes": {"type": "List", "counts": [4, 12, 20]}}, (16, 12, 8)),
    ],
)
def test_a_role_has_these_sizes(changes: dict[str, object], sizes: tuple[int, ...]) -> None:
    assert allowed_sizes(role(**changes)) == sizes


def test_a_smaller_role_has_the_same_members_and_dense_ranks() -> None:
    whole = (role(replicas=4, spares=1, processesPerPod=2), role(replicas=2).model_copy(update={"name": "b"}))
    small = with_sizes(whole, {"worker": 3})
    assert list(layout(small).members) == list(layout(whole).members)
    assert [name for name, one in layout(small).members.items() if one.is_spare] == ["worker-3", "worker-4"]
    assert number_places(small).ranks["worker-2"] == (4, 5)
    assert with_sizes(whole, {"worker": 4}) == whole


def gang(size: Size, now: float = START) -> Gang:
    """A gang of one elastic role that is smaller than is wanted."""
    tiers = [{"name": "store", "scope": "Shared", "reshardable": True, "source": {"type": "API"}}]
    spec = {
        "roles": [{"name": "worker", "replicas": 4, "minReplicas": 2, "template": role().template}],
        "checkpoint": {"tiers": tiers},
        "recovery": {"growAfterSeconds": 60},
    }
    job = GangJob.model_validate({**MANIFEST, "spec": spec})
    return Gang(now, changed(job, status=changed(job.status, size=size)), Observed())


def test_a_node_that_comes_and_goes_stops_the_gang_four_times_an_hour_at_most() -> None:
    stops: list[float] = []
    now = START
    while now < START + 4 * HOUR_SECONDS:
        size = Size(attempt=1, time=now, stops=tuple(stops[-MAX_STOPS:]))
        while now < grows_at(gang(size, now)):  # Stops before the last hour count no more.
            now += 10
        stops.append(now)
        assert sum(one > now - HOUR_SECONDS for one in stops) <= MAX_STOPS
    assert stops[0] == START + 60
    assert stops[1] - stops[0] == 120


def test_pods_that_were_refused_are_waited_for_from_when_the_cluster_takes_them() -> None:
    before = gang(Size(), START + 1000)
    taken = Condition(type="Accepted", status="True", reason="TemplateAccepted", last_transition_time=START + 1000)
    seconds = before.spec.recovery.shrink_after_seconds
    assert shrinks_at(before) < START + 1000
    assert shrinks_at(before.with_status(changed(before.status, conditions=(taken,)))) == START + 1000 + seconds


def test_each_stop_to_grow_is_remembered_for_an_hour() -> None:
    before = gang(Size(stops=(START - HOUR_SECONDS - 1, START - 60)))
    after = stopped_to_grow(before, before.status).size
    assert after is not None
    assert (after.stops, after.growing_attempt) == ((START - 60, START), 1)


def test_training_with_three_of_four_members_counts_three_quarters() -> None:
    status = Status(
        phase=GangPhase.RUNNING,
        attempt=2,
        accounted_time=START,
        first_step=FirstStep(attempt=2, step=1, time=START),
        roles=(RoleStatus(name="worker", desired=4),),
        size=Size(attempt=2, roles=(RoleSize(name="worker", members=3),)),
    )
    spent = spent_until(status, START + 100)
    assert spent == Spent(training=100, missing_members=25)
    assert goodput(spent) == 0.75


SMALLER = """
the gang runs
30 s pass
the pod of worker-0 has ended
decide
worker-1 is Ready
worker-2 is Ready
worker-3 is Ready
60 s pass
decide
everyone runs
worker-0 starts
worker-0 is Ready
worker-1 reports step 10
worker-2 reports step 10
worker-3 reports step 10
decide
300 s pass
worker-1 completes checkpoint 10 of tier store
worker-2 completes checkpoint 10 of tier store
worker-3 holds a copy of checkpoint 10 of tier store, of rank 0
"""
"""Three of four members run, their newest step is saved, and the fourth is ready."""


def smaller(*sentences: str) -> World:
    world = World()
    world.submit(
        "roles: [{name: worker, replicas: 4, minReplicas: 2}]\n"
        "checkpoint: {tiers: [{name: store, scope: Shared, reshardable: true, source: {type: API}}]}\n"
        "recovery: {shrinkAfterSeconds: 60, growAfterSeconds: 300}"
    )
    for one in (*SMALLER.strip().splitlines(), *sentences):
        sentence(world, one)
    return world


def test_a_gang_in_which_a_rank_has_finished_is_not_stopped_to_grow() -> None:
    assert smaller("worker-1 ends with 0", "decide").job.status.phase is GangPhase.RUNNING
    assert smaller("decide").job.status.phase is GangPhase.GATHERING


def all_save(step: int) -> tuple[str, ...]:
    """What happens as the ranks of three members save a step, and train on meanwhile."""
    those = [f"worker-{at} completes checkpoint {step} of tier store" for at in (1, 2)]
    return (
        *those,
        f"worker-3 holds a copy of checkpoint {step} of tier store, of rank 0",
        f"worker-1 reports step {step + 3}",
    )


def test_a_gang_that_trains_on_while_it_saves_is_stopped_after_its_next_checkpoint() -> None:
    world = smaller("worker-1 reports step 13", "decide", "900 s pass", "worker-1 reports step 19", "decide")
    assert world.job.status.phase is GangPhase.RUNNING
    for one in (*all_save(20), "decide"):
        sentence(world, one)
    assert (world.job.status.phase, world.job.status.incidents[0].cause.reason) == (GangPhase.GATHERING, Reason.GROWING)


def test_a_checkpoint_from_before_a_member_came_back_stops_no_gang_to_grow() -> None:
    gone = ("worker-1 reports step 13", "decide", "the pod of worker-0 has ended", "decide")
    back = ("worker-0 starts", "worker-0 is Ready", "worker-1 reports step 29", "decide")
    world = smaller(*gone, *all_save(20), *back)
    assert world.job.status.incidents[0].cause.reason != Reason.GROWING
    for one in (*all_save(30), "decide"):
        sentence(world, one)
    assert world.job.status.incidents[0].cause.reason == Reason.GROWING


def test_an_attempt_that_grows_waits_for_the_member_that_is_ready_last() -> None:
    world = smaller("decide", "worker-1 is Ready", "worker-2 is Ready", "worker-3 is Ready", "decide")
    assert world.job.status.phase is GangPhase.GATHERING
    for one in ("worker-0 is Ready", "decide"):
        sentence(world, one)
    assert (world.job.status.phase, len(world.job.status.ranks)) == (GangPhase.RUNNING, 2)


def test_survivors_of_another_size_go_on_from_what_they_hold_where_it_reshards() -> None:
    world = World()
    world.submit(
        "roles: [{name: worker, replicas: 3, minReplicas: 2}]\n"
        "checkpoint: {tiers: [{name: live, scope: Process, reshardable: true, source: {type: API}}, "
        "{name: store, scope: Shared, reshardable: true, source: {type: API}}]}\n"
        "recovery: {shrinkAfterSeconds: 60}"
    )
    stops = ("worker-1 reports step 105", "the pod of worker-0 has ended", "decide")
    holds = ("worker-1 completes checkpoint 105 of tier live", "worker-1 is Ready", "worker-2 is Ready")
    for one in ("the gang runs", *stops, *holds, "60 s pass", "decide"):
        sentence(world, one)
    point = world.job.status.restore_point
    assert point is not None
    assert (world.job.status.phase, point.step, point.tier) == (GangPhase.RUNNING, 105, "live")


def test_a_gang_that_shrinks_when_the_barriers_deadline_has_passed_is_asked_for_its_checkpoints_first() -> None:
    world = World()
    world.submit(
        "roles: [{name: worker, replicas: 3, minReplicas: 2}]\n"
        "checkpoint: {tiers: [{name: shared, scope: Shared, reshardable: true, "
        "source: {type: Directory, directory: /c, layout: TorchDCP}}]}\n"
        "recovery: {shrinkAfterSeconds: 300, barrierTimeoutSeconds: 60}"
    )
    runs = ("decide", "every pod starts", "everyone is Ready", "a scan finds shared 5", "decide", "everyone runs")
    stops = ("the pod of worker-2 has ended", "decide", "worker-0 is Ready", "worker-1 is Ready")
    for one in (*runs, *stops, "300 s pass", "decide", "59 s pass", "a scan finds shared 5", "decide"):
        sentence(world, one)
    assert (world.job.status.phase, world.job.status.attempt) == (GangPhase.RUNNING, 2)
