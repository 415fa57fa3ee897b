"""What simulation and search have found, told as short stories. Each of these was a mistake once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gangctl.api.status import GangPhase
from gangctl.core.facts.world import Device
from gangsidecar.wire import Directive, Verb
from tests.simulation import controller, kubelets, sidecars
from tests.simulation.engine import plain
from tests.simulation.faults import FAULTS
from tests.simulation.lives import Run, settle
from tests.simulation.moves import Kind, Move, advance, moves, next_time, perform
from tests.simulation.setups import FATAL_CODE, setups
from tests.simulation.training import can_train, train
from tests.simulation.universe import SIGKILL, Universe, new_universe

Filter = Callable[[Universe, Move], bool]


def running(setup: str) -> Universe:
    """A gang that runs its first attempt."""
    run = Run(new_universe(setups()[setup], plain()))
    settle(run)
    return run.universe


def go_on(u: Universe, *, but: Filter = lambda _u, _move: False) -> int:
    """Everything happens that can without time passing, except what ``but`` forbids; how often a controller thought."""
    thoughts = 0
    while True:
        move = next((move for move in moves(u) if not but(u, move)), None)
        if move is None:
            return thoughts
        thoughts += move.kind is Kind.THINK
        perform(u, move)


def run_again(u: Universe) -> None:
    """Everything happens, with the time that it takes, until the gang runs."""
    go_on(u)
    while u.status.phase is not GangPhase.RUNNING:
        due = next_time(u)
        assert due is not None
        advance(u, due)
        go_on(u)


def is_in(u: Universe, phase: GangPhase, attempt: int) -> bool:
    """What is stored."""
    return (u.status.phase, u.status.attempt) == (phase, attempt)


def kill(u: Universe, uid: str) -> None:
    """The pod's worker is killed."""
    u.end_process(uid, u.boxes[uid].procs[0], None, SIGKILL)


def cut_off(u: Universe, uid: str) -> None:
    """Nothing reaches the pod any more."""
    sidecars.cut(u, uid)
    u.boxes[uid] = u.boxes[uid]._replace(cut_off=True)


def is_run_for(uid: str) -> Filter:
    """Run directives to this pod stay on their way."""

    def is_it(u: Universe, move: Move) -> bool:
        if move.kind is not Kind.DOWN or move.who != uid:
            return False
        message = u.boxes[uid].down[move.which]
        return isinstance(message, Directive) and message.verb is Verb.RUN

    return is_it


def is_sigterm(_u: Universe, move: Move) -> bool:
    """Kubelets stay away: what runs in a pod that was removed runs on."""
    return move.kind is Kind.SIGTERM


def test_a_pod_does_not_look_new_after_the_clock_is_set_back() -> None:
    u = running("duo")
    u.delete_pod("worker-0.0")
    go_on(u, but=lambda u, move: u.status.attempt == 2 and move.kind is Kind.THINK)
    assert is_in(u, GangPhase.GATHERING, u.status.attempt)
    u.skew -= 100_000
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    cut_off(u, "worker-0.1")
    u.remove_pod("worker-0.1")
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 3)
    assert [entry.pod for entry in u.status.awaited] == ["worker-0.1"]


def test_only_one_of_two_pods_of_an_incarnation_gets_a_run_directive() -> None:
    u = new_universe(setups()["duo"], plain())
    go_on(
        u,
        but=lambda u, move: move.kind is Kind.THINK and all(box.link for box in u.boxes.values()) and len(u.boxes) == 2,
    )
    u.remove_pod("worker-1.0")
    go_on(u, but=is_sigterm)
    settle(Run(u))
    assert is_in(u, GangPhase.RUNNING, 1)
    assert {uid for uid, box in u.boxes.items() if box.procs} == {"worker-0.0", "worker-1.1"}


def test_ready_for_a_running_attempt_does_not_prove_that_no_worker_runs() -> None:
    u = new_universe(setups()["duo"], plain())
    late = is_run_for("worker-1.0")
    go_on(u, but=late)
    assert is_in(u, GangPhase.RUNNING, u.status.attempt)
    u.change_spec(suspend=True)
    go_on(u, but=lambda _u, move: move.who in {"worker-0.0", "worker-1.0"})
    assert is_in(u, GangPhase.SUSPENDED, u.status.attempt)
    u.remove_pod("worker-1.0")
    perform(u, next(move for move in moves(u) if late(u, move)))
    cut_off(u, "worker-1.0")
    u.change_spec(suspend=False)
    go_on(u, but=is_sigterm)
    assert u.boxes["worker-1.0"].procs
    assert is_in(u, GangPhase.SUSPENDED, u.status.attempt)


def test_a_spare_that_does_not_answer_does_not_stop_the_gang() -> None:
    u = running("spare")
    cut_off(u, "worker-2.0")
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_the_controller_notices_a_container_that_starts_late_and_never_connects() -> None:
    u = running("duo")
    cut_off(u, "worker-1.0")
    controller.end(u, 1)
    go_on(u)
    began = u.now
    advance(u, began + 30_000)
    kubelets.crash_supervisor(u, "worker-1.0")
    go_on(u)
    while u.now < began + 700_000 and u.status.attempt == 1:
        due = next_time(u)
        assert due is not None
        advance(u, due)
        go_on(u)
    assert u.status.attempt == 2


def test_a_step_that_no_rank_can_load_gives_way_to_an_older_one_without_any_report() -> None:
    u = running("fenced")
    FAULTS["train"](u, 4)
    go_on(u)
    FAULTS["the newest step is poisoned"](u, 0)
    kill(u, "worker-0.0")
    go_on(u)
    point = u.status.restore_point
    assert point is not None
    poisoned = point.step
    for _ in range(6):
        sick = next((uid for uid, box in u.boxes.items() if box.poisoned and box.procs), None)
        if sick is not None:
            kill(u, sick)
            run_again(u)
    kill(u, next(uid for uid, box in u.boxes.items() if box.procs))  # The step that was given up stays given up.
    run_again(u)
    point = u.status.restore_point
    assert point is not None
    assert point.step < poisoned


def test_the_controller_does_not_spin_while_a_vanished_pod_stays_connected() -> None:
    u = running("duo")
    stuck = tuple(replace(proc, stuck=True) for proc in u.boxes["worker-1.0"].procs)
    u.boxes["worker-1.0"] = u.boxes["worker-1.0"]._replace(procs=stuck)
    u.remove_pod("worker-1.0")
    thoughts = go_on(u, but=is_sigterm)
    while u.now < 100_000:
        due = next_time(u)
        advance(u, 100_000 if due is None else min(due, 100_000))
        thoughts += go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, u.status.attempt)
    assert thoughts < 40


def test_replacing_one_pod_does_not_forget_another_that_is_awaited() -> None:
    u = running("trio")
    cut_off(u, "worker-1.0")
    u.remove_pod("worker-1.0")
    left_alone = {Move(Kind.SIGTERM, "worker-1.0")}
    go_on(u, but=lambda _u, move: move in left_alone or move.kind is Kind.OBEY)
    u.pods["worker-2.0"] = replace(u.pods["worker-2.0"], devices=(Device("gpu", "gpu-0", "Unhealthy"),))
    go_on(u, but=lambda _u, move: move in left_alone)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert "worker-1.0" in {entry.pod for entry in u.status.awaited}


def test_a_spare_takes_a_place_only_when_it_is_ready_for_the_attempt() -> None:
    u = running("spare")
    u.remove_pod("worker-0.0")
    go_on(u, but=lambda _u, move: move.kind is Kind.DOWN and move.who == "worker-2.0")
    advance(u, u.now + 31_000)
    go_on(u, but=lambda _u, move: move.kind is Kind.DOWN and move.who == "worker-2.0")
    assert is_in(u, GangPhase.RUNNING, 2)
    assert not u.status.ranks


def test_two_places_are_taken_by_two_spares() -> None:
    u = running("crowd")
    for uid in ("worker-0.0", "worker-1.0"):
        u.remove_pod(uid)
    settle(Run(u))
    assert is_in(u, GangPhase.RUNNING, 2)
    assert len({one.member for one in u.status.ranks}) == len(u.status.ranks)


def test_an_echo_does_not_end_the_job() -> None:
    u = running("pair")
    kill(u, "worker-0.0")
    advance(u, u.now + 1_000)
    u.end_process("worker-1.0", u.boxes["worker-1.0"].procs[0], FATAL_CODE, None)
    settle(Run(u))
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_change_of_the_spec_does_not_restart_a_failed_gang() -> None:
    u = running("pair")
    u.end_process("worker-1.0", u.boxes["worker-1.0"].procs[0], FATAL_CODE, None)
    settle(Run(u))
    assert is_in(u, GangPhase.FAILED, 2)
    for change in ({"suspend": True}, {"suspend": False}, {"restart_token": "again"}):
        u.change_spec(**change)
        go_on(u)
    assert is_in(u, GangPhase.FAILED, 2)


def test_the_scan_sees_steps_that_are_written_and_pruned_while_the_workers_stop() -> None:
    u = running("pair")
    FAULTS["train"](u, 4)
    go_on(u)
    newest = max(marker.step for marker in u.disk.markers)
    u.change_spec(restart_token="again")
    go_on(u, but=lambda _u, move: move.kind is Kind.OBEY)
    assert is_in(u, GangPhase.GATHERING, 2)
    for _ in range(3 * len(u.places)):
        train(u, *can_train(u)[0])
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    assert u.status.restore_point is not None
    assert u.status.restore_point.step == newest + 3


def test_beside_a_process_that_is_stuck_nothing_outlives_a_supervisor_of_local_mode() -> None:
    u = running("duo on one machine")
    uid, box = next(iter(u.boxes.items()))
    first = box.procs[0]
    u.boxes[uid] = box._replace(procs=(replace(first, stuck=True, stubborn=True), *box.procs[1:]))
    kubelets.crash_supervisor(u, uid)
    go_on(u)
    assert [proc.local_rank for proc in u.boxes[uid].procs] == [first.local_rank]
    assert u.boxes[uid].machine is None
