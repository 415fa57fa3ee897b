"""No deadline passes before what was granted is over, and a restart by hand ends what is waited for by choice."""

from __future__ import annotations

from collections.abc import Iterable

from gangctl.api.status import GangPhase
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy.pods import CreatePod
from tests.core.scenario import sentence
from tests.core.world import World

TIER = "{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}"
DEADLINE, GRANTED = 60, 290


def _world(recovery: str, spares: int = 0) -> World:
    """Two workers that run from step 100, under a deadline of a minute."""
    world = World()
    world.submit(
        f"roles: [{{name: worker, replicas: 2, spares: {spares}}}]\ncheckpoint: {{tiers: [{TIER}]}}\n"
        f"recovery: {{barrierTimeoutSeconds: {DEADLINE}, evidenceWindowSeconds: 0, {recovery}}}"
    )
    _given(world, "decide", "every pod starts", "everyone is Ready", "a scan finds shared 100", "decide")
    _given(world, "everyone runs", "worker-0 reports step 120", "1000 s pass", "worker-0 reports step 900")
    world.decide()
    return world


def _given(world: World, *sentences: str) -> None:
    for one in sentences:
        sentence(world, one)


def _pass(world: World, seconds: float, often: float = 5.0) -> list[object]:
    """Decide as often as is asked for; returns what is done."""
    until, done = world.now + seconds, list[object]()
    while True:
        plan = world.decide()
        done += plan.actions
        if plan.status is not None:
            continue
        if world.now >= until:
            return done
        world.now = min(until, world.now + min(often, plan.requeue_after or often))


def _asked(done: Iterable[object]) -> bool:
    return any(isinstance(one, AskScan) for one in done)


def _patient(world: World, seconds: float = GRANTED) -> None:
    """What was granted lasts; nothing is replaced, and the gang is not held, for want of who has that time."""
    before = world.job.status
    done = _pass(world, seconds)
    after = world.job.status
    assert (after.phase, after.barrier_timeouts) == (GangPhase.GATHERING, 0), after.message
    assert (after.base_incarnation, after.replaced) == (before.base_incarnation, before.replaced)
    assert not any(isinstance(one, CreatePod) for one in done)


def _goes_on(world: World) -> None:
    """The directory is looked into, and the attempt starts."""
    assert _asked(_pass(world, 3)), world.job.status.message
    _given(world, "a scan finds shared 900", "decide")
    assert world.job.status.phase is GangPhase.RUNNING, world.job.status.message


def _ends(world: World, *how: str) -> None:
    _given(world, *how, "decide")
    assert world.job.status.phase is GangPhase.GATHERING


def _saves(world: World) -> None:
    _given(world, "worker-0 begins to stop", "worker-1 begins to stop")
    _patient(world, GRANTED + DEADLINE - 1)
    _given(world, "everyone is Ready")
    _goes_on(world)


def test_workers_that_stop_have_the_grace_that_they_were_told() -> None:
    world = _world(f"plannedStopGracePeriodSeconds: {GRANTED}")
    _ends(world, "restartToken becomes again")
    _saves(world)
    world = _world(f"stopGracePeriodSeconds: {GRANTED}, plannedStopGracePeriodSeconds: 1")
    _ends(world, "worker-0 ends with 1")
    _saves(world)


def test_an_end_of_the_job_waits_for_workers_that_save() -> None:
    world = _world(f"plannedStopGracePeriodSeconds: {GRANTED}")
    rule = "{action: FailJob, onPodConditions: [{type: DisruptionTarget}]}"
    world.submit(
        f"podFailurePolicy: {{rules: [{rule}]}}\n"
        f"recovery: {{evidenceWindowSeconds: 0, plannedStopGracePeriodSeconds: {GRANTED}}}"
    )
    _ends(world, "the pod of worker-1 is disrupted: EvictionByEvictionAPI")
    _patient(world)
    _pass(world, 16)
    assert world.job.status.phase is GangPhase.FAILED


def test_a_replacement_that_waits_for_the_node_of_a_worker_that_saves_is_not_late() -> None:
    world = _world(f"plannedStopGracePeriodSeconds: {GRANTED}, replacementTimeoutSeconds: 30")
    _ends(world, "the pod of worker-1 is disrupted: EvictionByEvictionAPI")
    _patient(world)
    _pass(world, 31)
    assert world.job.status.phase is GangPhase.HELD


def _drained(recovery: str) -> World:
    world = _world(recovery, spares=1)
    _ends(world, "the pod of worker-1 is disrupted: EvictionByEvictionAPI")
    _given(world, "the pod of worker-1.0 has ended", "worker-0 is Ready", "worker-2 is Ready")
    return world


def test_the_wait_for_other_disruptions_counts_for_no_deadline() -> None:
    world = _drained(f"coalesceSeconds: {GRANTED}, plannedStopGracePeriodSeconds: 1")
    _patient(world, GRANTED - 10)
    _given(world, "worker-0 loses its connection")
    _patient(world, 5)
    _given(world, "worker-0 connects again", "worker-0 is Ready")
    _patient(world, 5)
    _goes_on(world)


def test_a_fault_ends_the_wait_for_other_disruptions_and_leaves_the_whole_deadline() -> None:
    world = _drained(f"coalesceSeconds: {GRANTED}, plannedStopGracePeriodSeconds: 1")
    _patient(world, GRANTED - 10)
    _given(world, "worker-0 loses its connection")
    _patient(world, DEADLINE)


def test_a_lost_node_waits_for_no_disruption() -> None:
    world = _world(f"coalesceSeconds: {GRANTED}", spares=1)
    _given(world, "worker-1 loses its connection", "the node of worker-1 is lost", "30 s pass")
    _ends(world)
    _given(world, "worker-0 is Ready", "worker-2 is Ready")
    _patient(world, 29)
    _pass(world, 1)
    _goes_on(world)


def test_a_lost_pod_has_its_whole_grace_and_nothing_that_is_ready_is_replaced_meanwhile() -> None:
    world = _world(f"lostPodGraceSeconds: {GRANTED}", spares=1)
    _ends(world, "the pod of worker-1 vanishes")
    _given(world, "worker-0 is Ready", "worker-2 is Ready")
    _patient(world, GRANTED - 1)
    _pass(world, 1)
    _goes_on(world)


def test_a_fence_has_its_whole_time() -> None:
    world = _world(f"isolationTimeoutSeconds: {GRANTED}, plannedStopGracePeriodSeconds: 1", spares=1)
    _given(world, "worker-1 loses its connection")
    _ends(world, "the pod of worker-1 is being deleted")
    _given(world, "worker-0 is Ready", "worker-2 is Ready")
    _patient(world, GRANTED + 12)
    _pass(world, 1)
    _goes_on(world)


def test_stronger_evidence_has_its_window() -> None:
    world = _world("stopGracePeriodSeconds: 0")
    world.submit(
        f"checkpoint: {{tiers: [{TIER}]}}\n"
        f"recovery: {{barrierTimeoutSeconds: {DEADLINE}, evidenceWindowSeconds: {GRANTED}, stopGracePeriodSeconds: 0}}"
    )
    _ends(world, "the container of worker-1 starts again, unseen")
    _given(world, "everyone is Ready")
    _patient(world, GRANTED - 1)
    _pass(world, 1)
    _goes_on(world)


def _asks(world: World) -> None:
    _given(world, "restartToken becomes now")
    _goes_on(world)


def test_a_restart_by_hand_ends_the_wait_for_other_disruptions() -> None:
    world = _drained(f"coalesceSeconds: {GRANTED}")
    _patient(world, 10)
    _asks(world)


def test_a_restart_by_hand_ends_the_wait_for_the_reason_of_an_end() -> None:
    world = _world("")
    world.submit(f"checkpoint: {{tiers: [{TIER}]}}\nrecovery: {{evidenceWindowSeconds: {GRANTED}}}")
    _ends(world, "the container of worker-1 starts again, unseen")
    _given(world, "everyone is Ready")
    _patient(world, 10)
    _asks(world)


def test_a_restart_by_hand_ends_the_back_off_of_pods() -> None:
    world = _world("")
    _ends(world, "the pod of worker-1 has ended")
    for seconds in (160, 160, 160, 160, 1):
        _given(world, "the pod of worker-1 has ended")
        done = _pass(world, seconds)
    assert CreatePod not in map(type, done)
    _given(world, "restartToken becomes now")
    assert CreatePod in map(type, _pass(world, 0))


def test_a_restart_by_hand_does_not_end_the_wait_for_a_pod_that_may_run_a_worker() -> None:
    world = _world(f"lostPodGraceSeconds: {GRANTED}", spares=1)
    _ends(world, "the pod of worker-1 vanishes")
    _given(world, "worker-0 is Ready", "worker-2 is Ready", "restartToken becomes now")
    assert not _asked(_pass(world, GRANTED - 1))


def test_a_restart_by_hand_cuts_no_save_short() -> None:
    world = _world(f"plannedStopGracePeriodSeconds: {GRANTED}")
    _ends(world, "restartToken becomes again")
    _given(world, "restartToken becomes now", "decide")
    _saves(world)


def test_who_loses_its_connection_while_the_group_is_awaited_has_the_whole_deadline() -> None:
    world = World()
    world.submit(f"replicaGroup: {{name: model, minCount: 2}}\nrecovery: {{barrierTimeoutSeconds: {DEADLINE}}}")
    _given(world, "model-b of the group is Pending, and lacks pods", "decide", "every pod starts", "everyone is Ready")
    _pass(world, 3000, often=600)
    _given(world, "worker-0 loses its connection")
    _pass(world, DEADLINE - 1)
    assert not world.job.status.replaced
    _pass(world, 1)
    assert [one.member for one in world.job.status.replaced] == ["worker-0"]
