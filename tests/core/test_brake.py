"""The brake: no fault of the controller's own connection, or of what gangs share, costs a gang a pod or an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.api.incident import IncidentLevel
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.policy.brake import CALM_SECONDS, SILENT_SECONDS, BrakeState, Census, large_part, update_brake
from gangctl.core.record.conditions import warned_of
from tests.core.braked_gangs import TICK_SECONDS, Gangs
from tests.core.world import World

IMPATIENT = "recovery: {barrierTimeoutSeconds: 60, podStartTimeoutSeconds: 60, replacementTimeoutSeconds: 60}"


def test_no_gang_is_restarted_and_no_pod_replaced_while_no_sidecar_reaches_the_controller() -> None:
    fleet = Gangs.running(4, IMPATIENT)
    fleet.do("worker-0 ends with 3", worlds=fleet.worlds[:1])
    fleet.decide()
    before = fleet.attempts()
    assert before == [2, 1, 1, 1]
    fleet.do("worker-0 loses its connection", "worker-1 loses its connection")
    fleet.passes(900)
    assert fleet.is_on
    assert fleet.attempts() == before
    assert fleet.incarnations() == {0}
    assert {warned_of(world.job.status) for world in fleet.worlds} == {Reason.BRAKED}
    fleet.do("everyone connects again")
    fleet.passes(CALM_SECONDS + 2 * TICK_SECONDS)
    assert not fleet.is_on
    fleet.do("everyone is Ready", worlds=fleet.worlds[:1])
    fleet.passes(20)
    assert fleet.attempts() == before
    assert {world.job.status.phase for world in fleet.worlds} == {GangPhase.RUNNING}
    assert {warned_of(world.job.status) for world in fleet.worlds} == {""}
    assert fleet.incarnations() == {0}


def test_a_deadline_that_passed_under_the_brake_counts_from_its_end() -> None:
    fleet = Gangs.running(12, IMPATIENT)
    fleet.do("worker-0 ends with 3", worlds=fleet.worlds[:1])
    fleet.decide()
    fleet.do("worker-0 loses its connection", "worker-1 loses its connection")
    fleet.passes(600)
    fleet.do("everyone connects again", worlds=fleet.worlds[1:])
    fleet.passes(CALM_SECONDS + 2 * TICK_SECONDS)
    assert not fleet.is_on
    fleet.passes(100)
    assert fleet.incarnations() == {0}
    fleet.passes(30)
    assert fleet.incarnations() == {0, 1}, "its members are silent alone: they are replaced after the whole deadline"


def test_a_member_that_never_starts_is_a_fault_while_few_are_silent() -> None:
    fleet = Gangs.running(10)
    world = fleet.worlds[0]
    world.pods.clear()
    world.heard.clear()
    world.job = world.job.model_copy(update={"status": type(world.job.status)()})
    fleet.decide()
    fleet.do("every pod starts", "everyone is Ready", worlds=[world])
    fleet.decide()
    fleet.do("worker-0 runs", "worker-1 loses its connection", worlds=[world])
    fleet.passes(70)
    assert not fleet.is_on
    assert world.job.status.attempt == 2
    assert world.job.status.incidents[0].cause.reason == Reason.START_FAILED


def test_a_node_that_the_cluster_shows_as_lost_is_not_doubted_because_others_are_silent() -> None:
    fleet = Gangs.running(4)
    fleet.do("worker-0 loses its connection", "worker-1 loses its connection", worlds=fleet.worlds[1:])
    fleet.passes(60)
    assert fleet.is_on
    fleet.do("worker-1 loses its connection", "the node of worker-1 is lost", worlds=fleet.worlds[:1])
    fleet.passes(40)
    assert fleet.is_on
    assert fleet.attempts() == [2, 1, 1, 1]
    one = fleet.worlds[0]
    fleet.do("the pod of worker-1.0 vanishes", "worker-0 is Ready", worlds=[one])
    one.lost.clear()
    fleet.passes(60)
    assert fleet.is_on
    assert one.job.status.awaited == (), "the deleted pod is waited for as long as it always is"
    assert "attempt 2 waits for worker-1 to be ready" in one.job.status.message


def test_a_gang_that_waits_under_the_brake_is_told_that_no_deadline_runs() -> None:
    fleet = Gangs.running(4)
    fleet.do("worker-0 loses its connection", "worker-1 loses its connection", worlds=fleet.worlds[1:])
    fleet.passes(60)
    fleet.do("worker-0 ends with 3", worlds=fleet.worlds[:1])
    fleet.passes(10)
    status = fleet.worlds[0].job.status
    assert (status.phase, warned_of(status)) == (GangPhase.GATHERING, Reason.BRAKED)
    assert "the gang waits without a deadline: 6 of 8 members" in next(
        one.message for one in status.conditions if one.reason == Reason.BRAKED
    )


@pytest.mark.parametrize("others", [2, 3])
def test_members_of_one_namespace_that_are_silent_put_no_brake_on_the_others(others: int) -> None:
    fleet = Gangs.running(8)
    for at in range(others):
        fleet.move(f"other-{at}", [fleet.worlds[at]])
    fleet.do("worker-0 loses its connection", "worker-1 loses its connection", worlds=fleet.worlds[others:])
    fleet.passes(300)
    assert not fleet.is_on
    fleet.do("worker-0 loses its connection", worlds=fleet.worlds[: others - 1])
    fleet.passes(SILENT_SECONDS + TICK_SECONDS)
    assert fleet.is_on, "it is so in most namespaces"


def test_gangs_of_one_namespace_that_fail_together_keep_no_new_pod_from_another() -> None:
    gangs = Gangs.running(5, "recovery: {replaceAfter: 2}")
    gangs.move("flaky", gangs.worlds[:3])
    gangs.move("quiet", gangs.worlds[4:])
    for _ in range(2):
        fail(gangs, 4)
    assert gangs.brake.brake.waves == frozenset()
    assert gangs.brake.waves.keys() == {"flaky"}
    told = [{one.level for one in world.job.status.incidents} for world in gangs.worlds]
    assert told[:3] == [{IncidentLevel.PROCESS}] * 3
    assert IncidentLevel.POD in told[3], "its pod is replaced although the gangs of another namespace fail with it"


def test_gangs_of_most_namespaces_that_fail_together_are_a_wave_in_all() -> None:
    gangs = Gangs.running(5, "recovery: {replaceAfter: 2}")
    for at, world in enumerate(gangs.worlds):
        gangs.move(f"space-{at}", [world])
    for _ in range(2):
        fail(gangs, 3)
    assert gangs.brake.brake.waves == {Reason.EXIT_CODE}
    assert {one.level for world in gangs.worlds for one in world.job.status.incidents} == {IncidentLevel.PROCESS}


def test_members_of_lost_nodes_are_not_counted_so_that_they_are_replaced() -> None:
    fleet = Gangs.running(4)
    for world in fleet.worlds[:2]:
        world.pods = {uid: replace(pod, node="rack") for uid, pod in world.pods.items()}
    fleet.do("worker-0 loses its connection", "worker-1 loses its connection", worlds=fleet.worlds[:2])
    fleet.passes(SILENT_SECONDS)
    assert fleet.is_on, "until the cluster shows that their node is to blame"
    fleet.do("the node of worker-0 is lost", worlds=fleet.worlds[:2])
    fleet.passes(CALM_SECONDS + 2 * TICK_SECONDS)
    assert not fleet.is_on
    assert fleet.attempts() == [2, 2, 1, 1]
    assert fleet.worlds[0].job.status.incidents[0].cause.reason == Reason.NODE_LOST


def fail(all_gangs: Gangs, gangs: int) -> None:
    """Let the same member of so many gangs fail, and let them restart, however long they wait."""
    some = all_gangs.worlds[:gangs]
    all_gangs.do("worker-1 ends with 3", worlds=some)
    all_gangs.passes(TICK_SECONDS)
    while any(world.job.status.phase is not GangPhase.RUNNING for world in some):
        all_gangs.do("everyone is Ready", worlds=[one for one in some if set(one.pods) <= set(one.heard)])
        all_gangs.do("every pod starts", worlds=[one for one in some if not set(one.pods) <= set(one.heard)])
        all_gangs.passes(TICK_SECONDS)
    all_gangs.do("everyone runs", worlds=some)


def test_gangs_that_fail_together_are_restarted_in_place() -> None:
    gangs = Gangs.running(4, "recovery: {replaceAfter: 2}")
    for _ in range(3):
        fail(gangs, 4)
    assert gangs.attempts() == [4] * 4
    assert {one.level for world in gangs.worlds for one in world.job.status.incidents} == {IncidentLevel.PROCESS}
    assert gangs.incarnations() == {0}


@pytest.mark.parametrize("number", [1, 2])
def test_few_gangs_that_fail_are_no_wave(number: int) -> None:
    gangs = Gangs.running(12, "recovery: {replaceAfter: 2}")
    for _ in range(2):
        fail(gangs, number)
    assert gangs.brake.brake.waves == frozenset()
    assert gangs.incarnations() == {0, 1}, "the same member again costs its pod"


def test_a_new_term_gives_sidecars_time_to_connect() -> None:
    gangs = Gangs.running(4)
    gangs.passes(600)
    gangs.do("a new controller starts")
    gangs.brake = BrakeState()
    gangs.passes(SILENT_SECONDS - TICK_SECONDS)
    assert not gangs.is_on
    gangs.do("everyone connects again")
    gangs.passes(60)
    assert not gangs.is_on


def test_a_gang_that_can_never_connect_puts_no_brake_on_the_others() -> None:
    gangs = Gangs.running(4)
    stranger = World()
    stranger.submit("roles: [{name: worker, replicas: 8}]")
    gangs.worlds.append(stranger)
    gangs.decide()
    for at in range(8):
        gangs.do(f"the pod of worker-{at} has been started", worlds=[stranger])
    gangs.passes(300)
    assert not gangs.is_on
    assert warned_of(stranger.job.status) == Reason.NO_MEMBER_CONNECTS


COUNTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=60)


@given(COUNTS)
def test_the_brake_goes_on_at_the_limit_and_off_after_a_calm_time(counts: list[tuple[int, int]]) -> None:
    """The same as the rule, told from the history alone."""
    state, now, history = BrakeState(), 1000.0, list[tuple[float, int, int]]()
    was_on = False
    for silent, seconds in counts:
        now += seconds
        history.append((now, silent, 100))
        state = update_brake(state, now, [Census(100, (0.0,) * silent)])
        is_on = state.brake.since is not None
        recent = [one for at, one, _ in history if at > now - CALM_SECONDS]
        if silent >= large_part(100):
            assert is_on
        if is_on and not was_on:
            assert silent >= large_part(100)
        if was_on and not is_on:
            assert max(recent) < large_part(100) / 2
            assert state.brake.released == now
        was_on = is_on


def test_silence_counts_after_a_while_only() -> None:
    young = Census(10, tuple(1000.0 + at for at in range(10)))
    assert update_brake(BrakeState(), 1000.0 + SILENT_SECONDS + 1.9, [young]).brake.since is None
    assert update_brake(BrakeState(), 1000.0 + SILENT_SECONDS + 2.0, [young]).brake.since is not None


@pytest.mark.parametrize(("expected", "least"), [(1, 3), (3, 3), (15, 3), (20, 4), (1000, 200)])
def test_a_large_part_is_a_fifth_and_at_least_three(expected: int, least: int) -> None:
    for silent in (least - 1, least):
        state = update_brake(BrakeState(), 1000.0, [Census(expected, (0.0,) * silent)])
        assert (state.brake.since is not None) is (silent == least)
