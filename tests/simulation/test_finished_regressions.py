"""Success is never lost, and never found where there is none: short stories of gangs whose workers finish."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from gangctl.api.model import changed
from gangctl.api.status import Finished, FinishedRole, GangPhase
from tests.core.scenario import sentence
from tests.core.world import World
from tests.simulation import controller, kubelets
from tests.simulation.lives import Run, settle
from tests.simulation.moves import Kind, advance, next_time
from tests.simulation.test_regressions import cut_off, go_on, is_in, kill, running
from tests.simulation.universe import Universe
from tests.simulation.values import seconds

ORPHANED_MS = 700_000


def finish(u: Universe, member: str) -> None:
    """Every process of the member's worker ends with 0."""
    uid = next(uid for uid, box in u.boxes.items() if box.member == member and box.procs)
    while u.boxes[uid].procs:
        u.end_process(uid, u.boxes[uid].procs[0], 0, None)


def without_a_controller(u: Universe, ms: int) -> None:
    """Time passes, and no controller is there."""
    for number in list(u.leaders):
        controller.end(u, number)
    until = u.now + ms
    while u.now < until:
        go_on(u, but=lambda _u, move: move.kind is Kind.LEAD)
        due = next_time(u)
        advance(u, until if due is None else min(due, until))
    go_on(u, but=lambda _u, move: move.kind is Kind.LEAD)


def test_a_gang_that_finished_without_a_controller_has_succeeded() -> None:
    for setup in ("duo", "duo on one machine", "roles", "spare"):
        u = running(setup)
        for member in u.places:
            finish(u, member)
        without_a_controller(u, ORPHANED_MS)
        assert not any(box.machine for box in u.boxes.values() if box.member in u.places)
        settle(Run(u))
        assert is_in(u, GangPhase.SUCCEEDED, 1)


def drain(u: Universe, uid: str) -> None:
    """The pod is deleted gracefully."""
    u.delete_pod(uid)


def vanish(u: Universe, uid: str) -> None:
    """The pod's object is gone, and nothing of it is heard again."""
    cut_off(u, uid)
    u.remove_pod(uid)


def lose(u: Universe, uid: str) -> None:
    """The pod's node is gone."""
    cut_off(u, uid)
    u.lost |= {u.boxes[uid].node}


def crash(u: Universe, uid: str) -> None:
    """The supervisor is killed."""
    kubelets.crash_supervisor(u, uid)


def test_the_others_go_on_when_the_pod_of_a_finished_member_goes() -> None:
    for setup, goes in product(("duo", "spare", "roles"), (drain, vanish, lose, crash)):
        the_others_go_on(setup, goes)


def the_others_go_on(setup: str, goes: Callable[[Universe, str], None]) -> None:
    """From the end of one member's worker to that of the last."""
    u = running(setup)
    finish(u, "worker-0")
    go_on(u)
    goes(u, "worker-0.0")
    advance(u, u.now + 60_000)
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 1)
    assert not [pod for pod in u.pods.values() if pod.member == "worker-0" and pod.uid != "worker-0.0"]
    controller.end(u, u.newest_leader)
    advance(u, u.now + 60_000)
    go_on(u)
    for member in u.places:
        if member != "worker-0":
            finish(u, member)
    settle(Run(u))
    assert is_in(u, GangPhase.SUCCEEDED, 1)


def test_a_member_that_finished_unheard_and_was_evicted_has_finished() -> None:
    u = running("duo")
    controller.end(u, u.newest_leader)
    finish(u, "worker-0")
    kubelets.ask_to_end(u, "worker-0.0")
    without_a_controller(u, 10_000)
    finish(u, "worker-1")
    settle(Run(u))
    assert is_in(u, GangPhase.SUCCEEDED, 1)


def test_a_worker_that_exits_with_0_because_its_pod_is_to_end_has_not_finished() -> None:
    u = running("duo")
    kubelets.ask_to_end(u, "worker-0.0")
    finish(u, "worker-0")
    finish(u, "worker-1")
    go_on(u)
    assert u.status.phase is not GangPhase.SUCCEEDED
    assert u.status.attempt == 2


def test_who_finished_an_earlier_attempt_has_not_finished_the_next() -> None:
    u = running("duo")
    finish(u, "worker-0")
    go_on(u)
    kill(u, "worker-1.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    finish(u, "worker-1")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    finish(u, "worker-0")
    go_on(u)
    assert is_in(u, GangPhase.SUCCEEDED, 2)


def test_a_record_that_another_release_has_left_of_an_older_attempt_does_not_count() -> None:
    u = running("duo")
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    both = FinishedRole(name="worker", indexes="0-1")
    u.status = changed(u.status, finished=Finished(attempt=1, time=seconds(u.now), roles=(both,)))
    u.version += 1
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_member_whose_pod_went_after_it_had_finished_gets_a_new_one_with_the_next_attempt() -> None:
    u = running("duo")
    finish(u, "worker-0")
    go_on(u)
    drain(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 1)
    kill(u, "worker-1.0")
    settle(Run(u))
    assert is_in(u, GangPhase.RUNNING, 2)
    assert {uid for uid, box in u.boxes.items() if box.procs} == {"worker-0.1", "worker-1.0"}


def test_a_member_of_which_only_one_process_has_finished_has_not() -> None:
    u = running("roles")
    u.end_process("worker-0.0", u.boxes["worker-0.0"].procs[0], 0, None)
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 1)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_role_that_the_policy_does_not_count_need_not_finish() -> None:
    u = running("roles")
    finish(u, "launcher-0")
    settle(Run(u))
    assert is_in(u, GangPhase.SUCCEEDED, 1)


def test_what_was_finished_before_the_roles_changed_does_not_count_for_those_that_are_left() -> None:
    world = World()
    told = (
        "the gang runs",
        "worker-0 ends with 0",
        "replicas of worker becomes 1",
        "decide",
        "the pod of worker-0 has ended",
        "the pod of worker-1 has ended",
        "the pod of worker-1 is removed",
        "decide",
        "decide",
    )
    for line in told:
        sentence(world, line)
    assert (world.job.status.phase, world.job.status.attempt) == (GangPhase.PENDING, 2)
    for line in ("worker-0 starts", "worker-0 is Ready", "decide"):
        sentence(world, line)
    assert (world.job.status.phase, world.job.status.attempt) == (GangPhase.RUNNING, 2)


def test_the_order_of_last_words_does_not_end_a_job() -> None:
    world = World()
    world.submit(
        "roles: [{name: worker, replicas: 2}]\n"
        "podFailurePolicy: {rules: [{name: bad, action: FailJob, onExitCodes: {operator: In, values: [2]}}]}"
    )
    told = (
        "the gang runs",
        "10.9 s pass",
        "worker-0 ends with 1",
        "0.2 s pass",
        "worker-1 ends with 2, 300 ms ago",
        "600 s pass",
        "the supervisor of worker-1 goes, and its pod has ended",
        "a new controller starts",
        "worker-0 connects again",
        "decide",
        "worker-0 is Ready",
        "worker-1.1 starts",
        "worker-1.1 is Ready",
        "6 s pass",
        "decide",
    )
    for line in told:
        sentence(world, line)
    assert (world.job.status.phase, world.job.status.attempt) == (GangPhase.RUNNING, 2)
