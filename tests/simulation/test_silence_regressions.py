"""Silence is no evidence: stories of gangs that train on while nothing of them is heard, under any leader."""

from __future__ import annotations

from gangctl.api.status import GangPhase
from tests.simulation import controller, kubelets, sidecars
from tests.simulation.engine import plain
from tests.simulation.faults import FAULTS
from tests.simulation.moves import Kind, Move, advance, next_time
from tests.simulation.setups import setups
from tests.simulation.test_finished_regressions import finish
from tests.simulation.test_regressions import Filter, cut_off, go_on, is_in, is_run_for, kill, running
from tests.simulation.universe import Universe, new_universe

HOUR_MS = 3_600_000
BEFORE_ORPHANED_MS = 590_000
"""Then a supervisor without a worker exits: it has had no controller for orphanTimeoutSeconds."""


def passes(u: Universe, ms: int, *, but: Filter = lambda _u, _move: False) -> None:
    """Time passes, and everything happens in it that can, except what ``but`` forbids."""
    until = u.now + ms
    while u.now < until:
        go_on(u, but=but)
        due = next_time(u)
        advance(u, until if due is None else min(due, until))
    go_on(u, but=but)


def another_leads(u: Universe, *, after_ms: int = 0) -> None:
    """The controller is gone; another one leads a while later."""
    for number in list(u.leaders):
        controller.end(u, number)
    passes(u, after_ms, but=_is_lead)
    go_on(u)


def _is_lead(_u: Universe, move: Move) -> bool:
    return move.kind is Kind.LEAD


def trains(u: Universe) -> bool:
    """Whether every place's worker runs the first attempt, in its first pod."""
    return is_in(u, GangPhase.RUNNING, 1) and all(
        box.procs and box.procs[0].attempt == 1 for box in u.boxes.values() if box.member in u.places
    )


def test_a_new_leader_restarts_no_gang_whose_members_it_cannot_hear() -> None:
    for silent in (["worker-1.0"], ["worker-0.0", "worker-1.0"]):
        u = running("duo")
        for uid in silent:
            cut_off(u, uid)
        passes(u, HOUR_MS)
        another_leads(u)
        passes(u, HOUR_MS)
        assert trains(u)
        for uid in silent:
            u.boxes[uid] = u.boxes[uid]._replace(cut_off=False)
        passes(u, HOUR_MS)
        assert trains(u)


def test_a_sidecar_that_comes_back_late_costs_nothing() -> None:
    u = running("trio")
    cut_off(u, "worker-1.0")
    another_leads(u)
    passes(u, 90_000)
    u.boxes["worker-1.0"] = u.boxes["worker-1.0"]._replace(cut_off=False)
    passes(u, HOUR_MS)
    assert trains(u)


def test_a_session_that_is_ready_and_heard_late_has_its_time_to_start() -> None:
    u = new_universe(setups()["duo"], plain())
    go_on(u, but=lambda _u, move: move.kind is Kind.DOWN and u.status.phase is GangPhase.RUNNING)
    assert is_in(u, GangPhase.RUNNING, 1)
    cut_off(u, "worker-1.0")
    another_leads(u)
    passes(u, BEFORE_ORPHANED_MS // 2)
    u.boxes["worker-1.0"] = u.boxes["worker-1.0"]._replace(cut_off=False)
    passes(u, 10_000, but=is_run_for("worker-1.0"))
    passes(u, 600_000)
    assert trains(u)


def test_an_end_before_the_attempt_is_no_end_in_it_whatever_the_clocks_of_leaders_and_nodes() -> None:
    u = running("duo")
    FAULTS["the clocks are set forward"](u, 0)
    kubelets.crash_supervisor(u, "worker-1.0")
    passes(u, 60_000)
    assert is_in(u, GangPhase.RUNNING, 2)
    cut_off(u, "worker-1.0")
    another_leads(u)
    passes(u, BEFORE_ORPHANED_MS)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_kubelet_that_is_away_costs_nothing_when_the_leader_changes() -> None:
    u = running("duo")
    FAULTS["a kubelet is away"](u, 1)
    assert u.lost
    passes(u, 600_000)
    another_leads(u)
    sidecars.cut(u, "worker-1.0")
    sidecars.cut(u, "worker-0.0")
    passes(u, 20_000, but=lambda _u, move: move.kind is Kind.CONNECT)
    passes(u, 600_000)
    assert trains(u)


def test_no_pod_is_replaced_while_no_pod_of_the_gang_can_be_heard() -> None:
    u = new_universe(setups()["duo"], plain())
    u.unreachable = True
    passes(u, BEFORE_ORPHANED_MS)
    assert sorted(u.pods) == ["worker-0.0", "worker-1.0"]
    assert is_in(u, GangPhase.PENDING, 1)
    u.unreachable = False
    passes(u, 60_000)
    assert trains(u)


def test_a_gang_that_gathers_keeps_its_pods_while_a_new_leader_hears_none_of_them() -> None:
    u = running("duo")
    kill(u, "worker-0.0")
    go_on(u, but=lambda _u, move: move.kind is Kind.DOWN)
    assert is_in(u, GangPhase.GATHERING, 2)
    for uid in list(u.boxes):
        cut_off(u, uid)
    another_leads(u)
    passes(u, 24 * HOUR_MS, but=lambda _u, move: move.kind is Kind.DOWN)
    assert sorted(u.pods) == ["worker-0.0", "worker-1.0"]
    assert is_in(u, GangPhase.GATHERING, 2)


def test_silent_members_are_no_hang() -> None:
    u = running("spare")
    FAULTS["train"](u, 3)
    go_on(u)
    for uid in list(u.boxes):
        cut_off(u, uid)
    passes(u, HOUR_MS)
    another_leads(u)
    passes(u, HOUR_MS)
    assert trains(u)


def test_a_member_that_has_finished_does_not_know_whether_the_others_hang() -> None:
    u = running("spare")
    FAULTS["train"](u, 3)
    finish(u, "worker-0")
    cut_off(u, "worker-1.0")
    passes(u, HOUR_MS)
    assert is_in(u, GangPhase.RUNNING, 1)
    assert u.boxes["worker-1.0"].procs


def test_the_replacement_timeout_does_not_run_without_a_leader() -> None:
    u = running("spare")
    u.starts_fail = True
    for uid in ("worker-1.0", "worker-2.0"):
        kubelets.crash_supervisor(u, uid)
    passes(u, 60_000)
    assert is_in(u, GangPhase.GATHERING, 2)
    another_leads(u, after_ms=HOUR_MS)
    assert is_in(u, GangPhase.GATHERING, 2), "300 s of replacementTimeoutSeconds begin with the new leader"
    passes(u, 290_000)
    assert is_in(u, GangPhase.GATHERING, 2)
    passes(u, 20_000)
    assert is_in(u, GangPhase.SUSPENDED, 2)


def test_an_end_of_a_container_is_evidence_once() -> None:
    u = running("duo")
    kubelets.crash_supervisor(u, "worker-1.0")
    passes(u, 60_000)
    assert is_in(u, GangPhase.RUNNING, 2)
    kill(u, "worker-1.0")
    passes(u, 60_000)
    assert [one.cause.reason for one in u.status.incidents] == ["Signal", "ContainerRestarted"]
