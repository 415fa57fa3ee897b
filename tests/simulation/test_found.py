"""What simulation and search have found, told as short stories. Each of these was a mistake once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gangctl.api.status import GangPhase
from gangsidecar.wire import Directive, Verb
from tests.simulation import leading
from tests.simulation.driving import Fault, Run, settle, simulate
from tests.simulation.engine import plain
from tests.simulation.moves import Kind, Move, advance, moves, next_time, perform
from tests.simulation.setups import setups
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


def kill(u: Universe, uid: str) -> None:
    """The pod's worker is killed."""
    u.end_process(uid, u.boxes[uid].procs[0], None, SIGKILL)


def cut_off(u: Universe, uid: str) -> None:
    """Nothing reaches the pod any more."""
    u.cut(uid)
    u.boxes[uid] = replace(u.boxes[uid], cut_off=True)


def is_run_for(uid: str) -> Filter:
    """Run directives to this pod stay on their way."""

    def is_it(u: Universe, move: Move) -> bool:
        if move.kind is not Kind.DOWN or move.who != uid:
            return False
        message = u.boxes[uid].down[move.which]
        return isinstance(message, Directive) and message.verb is Verb.RUN

    return is_it


def test_a_clock_that_is_set_back_makes_no_pod_look_new() -> None:
    u = running("duo")
    u.delete_pod("worker-0.0")
    go_on(u, but=lambda u, move: u.status.attempt == 2 and move.kind is Kind.THINK)
    assert u.status.phase is GangPhase.GATHERING
    u.skew -= 100_000
    go_on(u)
    assert (u.status.phase, u.status.attempt) == (GangPhase.RUNNING, 2)
    cut_off(u, "worker-0.1")
    u.remove_pod("worker-0.1")
    go_on(u, but=lambda _u, move: move.kind is Kind.SIGTERM)
    assert (u.status.phase, u.status.attempt) == (GangPhase.GATHERING, 3)
    assert [entry.pod for entry in u.status.awaited] == ["worker-0.1"]


def test_two_pods_of_one_incarnation_are_never_both_told_to_run() -> None:
    u = new_universe(setups()["duo"], plain())
    go_on(u, but=lambda u, move: move.kind is Kind.THINK and all(box.link for box in u.boxes.values()) and len(u.boxes) == 2)
    u.remove_pod("worker-1.0")
    go_on(u, but=lambda _u, move: move.kind is Kind.SIGTERM)
    settle(Run(u))
    assert (u.status.phase, u.status.attempt) == (GangPhase.RUNNING, 1)
    assert {uid for uid, box in u.boxes.items() if box.procs} == {"worker-0.0", "worker-1.1"}


def test_ready_for_an_attempt_that_runs_is_no_proof_that_nothing_runs() -> None:
    u = new_universe(setups()["duo"], plain())
    late = is_run_for("worker-1.0")
    go_on(u, but=late)
    assert u.status.phase is GangPhase.RUNNING
    u.change_spec(suspend=True)
    go_on(u, but=lambda _u, move: move.who in {"worker-0.0", "worker-1.0"})
    assert u.status.phase is GangPhase.SUSPENDED
    u.remove_pod("worker-1.0")
    perform(u, next(move for move in moves(u) if late(u, move)))
    cut_off(u, "worker-1.0")
    u.change_spec(suspend=False)
    go_on(u, but=lambda _u, move: move.kind is Kind.SIGTERM)
    assert u.boxes["worker-1.0"].procs
    assert u.status.phase is GangPhase.SUSPENDED


def test_a_spare_that_does_not_answer_stops_nobody() -> None:
    u = running("spare")
    cut_off(u, "worker-2.0")
    kill(u, "worker-0.0")
    go_on(u)
    assert (u.status.phase, u.status.attempt) == (GangPhase.RUNNING, 2)


@pytest.mark.parametrize("offset", range(1, 60_000, 1_537))
def test_a_worker_that_does_not_start_is_noticed_to_the_last_bit_of_its_deadline(offset: int) -> None:
    u = new_universe(setups()["duo"], plain())
    u.now = offset
    late = is_run_for("worker-1.0")
    go_on(u, but=late)
    assert u.status.phase is GangPhase.RUNNING
    while u.now < offset + 120_000 and u.status.attempt == 1:
        due = next_time(u)
        assert due is not None
        advance(u, due)
        go_on(u, but=late)
    assert u.status.attempt == 2


@pytest.mark.parametrize("offset", range(1, 60_000, 1_537))
def test_a_pod_that_does_not_end_when_suspended_is_deleted_to_the_last_bit_of_its_deadline(offset: int) -> None:
    u = new_universe(setups()["duo"], plain())
    u.now = offset
    go_on(u)
    u.change_spec(suspend=True)
    deaf = is_for("worker-1.0")
    go_on(u, but=deaf)
    for _ in range(10):
        due = next_time(u)
        if due is not None:
            advance(u, due)
        go_on(u, but=deaf)
    assert u.pods["worker-1.0"].deleting


def is_for(uid: str) -> Filter:
    """Nothing at all reaches this pod, nor comes from it."""
    return lambda _u, move: move.who == uid


def test_a_container_that_starts_late_and_never_speaks_is_noticed() -> None:
    u = running("duo")
    cut_off(u, "worker-1.0")
    leading.end(u, 1)
    go_on(u)
    began = u.now
    advance(u, began + 30_000)
    u.crash_supervisor("worker-1.0")
    go_on(u)
    while u.now < began + 300_000 and u.status.attempt == 1:
        due = next_time(u)
        assert due is not None
        advance(u, due)
        go_on(u)
    assert u.status.attempt == 2
    assert u.now == began + 90_000


def test_a_step_that_cannot_be_loaded_gives_way_to_an_older_one() -> None:
    faults = [Fault(0, "train", 9), Fault(0, "the newest step is poisoned", 0), Fault(0, "a worker is killed", 1)]
    run = simulate("fenced", 0, faults, disorder=0, warm=True)
    poisoned = next(saved.step for saved in run.universe.disk if saved.marker == "poisoned")
    point = run.universe.status.restore_point
    assert point is not None
    assert point.step < poisoned
    assert run.universe.status.attempt < 10


def test_waiting_for_a_pod_that_vanished_and_still_speaks_is_no_busy_loop() -> None:
    u = running("duo")
    stuck = tuple(replace(proc, stuck=True) for proc in u.boxes["worker-1.0"].procs)
    u.boxes["worker-1.0"] = replace(u.boxes["worker-1.0"], procs=stuck)
    u.remove_pod("worker-1.0")
    thoughts = go_on(u, but=lambda _u, move: move.kind is Kind.SIGTERM)
    while u.now < 100_000:
        due = next_time(u)
        advance(u, 100_000 if due is None else min(due, 100_000))
        thoughts += go_on(u, but=lambda _u, move: move.kind is Kind.SIGTERM)
    assert u.status.phase is GangPhase.GATHERING
    assert thoughts < 40

