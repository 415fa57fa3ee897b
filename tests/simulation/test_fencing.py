"""Fencing: a member that is cut off counts as stopped only when its supervisor has stopped its worker. As stories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gangctl.api.status import Awaited, GangPhase, Status
from gangctl.core.facts.barrier import GivenUp, await_pods
from gangctl.core.facts.world import Device
from gangsidecar.wire import Directive, Verb
from tests.simulation import controller, kubelets, sidecars
from tests.simulation.faults import FAULTS
from tests.simulation.moves import Kind, Move, advance, moves, next_time, perform
from tests.simulation.test_regressions import Filter, cut_off, go_on, is_in, is_run_for, is_sigterm, kill, running
from tests.simulation.universe import Universe

ISOLATION, GRACE, MARGIN = 20_000, 3_000, 10_000
X = "worker-1.0"


def stubborn(u: Universe, uid: str) -> None:
    """Its worker ignores SIGTERM: it uses the whole grace."""
    box = u.boxes[uid]
    u.boxes[uid] = box._replace(procs=tuple(replace(proc, stubborn=True) for proc in box.procs))


def fenced() -> Universe:
    """A gang that isolates its members, and would wait for a lost pod for an hour."""
    u = running("fenced")
    change_recovery(u, lost_pod_grace_seconds=3600)
    go_on(u)
    return u


def lose(u: Universe, uid: str) -> None:
    """Its node is cut off: its member gets a new pod or gives its rank to a spare, and its worker runs on."""
    u.lost |= {u.boxes[uid].node}
    cut_off(u, uid)


def change_recovery(u: Universe, **update: Any) -> None:
    """The user changes live policy."""
    u.change_spec(recovery=u.spec.recovery.model_copy(update=update))


def time_passes(u: Universe, until: int) -> None:
    """Until then, or until the gang runs its second attempt; the invariants are checked all the time."""
    while u.now < until and not is_in(u, GangPhase.RUNNING, 2):
        due = next_time(u)
        advance(u, until if due is None else min(due, until))
        go_on(u)


def test_a_silent_member_counts_as_stopped_when_its_worker_was_killed() -> None:
    u = fenced()
    stubborn(u, X)
    lose(u, X)
    go_on(u)
    cut = u.now
    time_passes(u, cut + ISOLATION + GRACE + MARGIN - 1)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert not u.boxes[X].procs
    time_passes(u, cut + ISOLATION + GRACE + MARGIN)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_member_whose_process_has_outlived_sigkill_is_not_taken_for_stopped() -> None:
    u = running("duo")
    change_recovery(u, isolation_timeout_seconds=ISOLATION // 1000, lost_pod_grace_seconds=3600)
    go_on(u)
    box = u.boxes[X]
    u.boxes[X] = box._replace(procs=tuple(replace(proc, stubborn=True, stuck=True) for proc in box.procs))
    kill(u, "worker-0.0")
    time_passes(u, u.now + 60_000)
    lose(u, X)
    time_passes(u, u.now + 600_000)
    assert not is_in(u, GangPhase.RUNNING, 2)
    assert u.boxes[X].procs


def test_a_member_that_was_told_a_longer_grace_has_it_though_others_are_told_less() -> None:
    u = fenced()
    FAULTS["train"](u, 4)
    go_on(u)
    stubborn(u, X)

    def is_late(_u: Universe, move: Move) -> bool:
        return move.kind is Kind.DOWN and move.who == "worker-2.0"

    u.delete_pod(X)
    go_on(u, but=is_late)
    assert u.boxes[X].machine is not None
    assert u.status.incidents[0].planned
    lose(u, X)
    kill(u, "worker-2.0")
    go_on(u)
    assert not u.status.incidents[0].planned
    cut = u.now
    grace = u.spec.recovery.planned_stop_grace_period_seconds * 1000
    time_passes(u, cut + grace)
    assert is_in(u, GangPhase.GATHERING, 2)
    time_passes(u, cut + ISOLATION + grace + MARGIN)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_member_that_is_cut_off_does_not_hear_of_a_new_isolation_time() -> None:
    u = running("spare")
    change_recovery(u, lost_pod_grace_seconds=3600)
    lose(u, X)
    go_on(u)
    change_recovery(u, isolation_timeout_seconds=20)
    go_on(u)
    time_passes(u, 200_000)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert u.boxes[X].procs


def test_a_shorter_isolation_time_counts_once_every_member_goes_by_it() -> None:
    u = running("spare")
    change_recovery(u, isolation_timeout_seconds=20, lost_pod_grace_seconds=3600)
    go_on(u)
    lose(u, X)
    go_on(u)
    time_passes(u, u.now + ISOLATION + GRACE + MARGIN)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_longer_isolation_time_is_told_when_it_is_stored() -> None:
    _isolates_for_longer(lambda _u, _move: False)


def test_a_longer_isolation_time_is_not_told_before_it_is_stored() -> None:
    _isolates_for_longer(lambda _u, move: move.kind is Kind.WRITE)


def _isolates_for_longer(but: Filter) -> None:
    u = fenced()
    stubborn(u, X)
    change_recovery(u, isolation_timeout_seconds=300)
    go_on(u, but=but)
    lose(u, X)
    go_on(u)
    time_passes(u, 900_000)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_ping_that_comes_late_does_not_prolong_a_lease() -> None:
    u = fenced()
    stubborn(u, X)
    go_on(u)

    def is_lost(_u: Universe, move: Move) -> bool:
        return move.kind is Kind.UP and move.who == X

    sidecars.report(u, X)  # From here on nothing that it sends arrives. What it is sent does.
    leader = u.leaders[u.newest_leader]
    heard = tuple(replace(one, connected=one.report.pod != X) for one in leader.heard)
    u.leaders[leader.number] = leader._replace(heard=heard, dirty=True)
    u.lost |= {u.boxes[X].node}
    until = u.now + ISOLATION + GRACE + MARGIN
    while u.now <= until + 10_000 and not is_in(u, GangPhase.RUNNING, 2):
        go_on(u, but=is_lost)
        advance(u, u.now + 1_000)
    go_on(u, but=is_lost)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_run_that_arrives_after_the_isolation_time_starts_nothing() -> None:
    u = fenced()
    late = is_run_for(X)
    kill(u, "worker-0.0")
    go_on(u, but=late)
    assert is_in(u, GangPhase.RUNNING, 2)
    run = next(message for message in u.boxes[X].down if isinstance(message, Directive) and message.verb is Verb.RUN)
    cut_off(u, X)
    kill(u, "worker-2.0")
    advance(u, u.now + ISOLATION)
    u.boxes[X] = u.boxes[X]._replace(down=(run,))
    perform(u, next(move for move in moves(u) if late(u, move)))
    assert not u.boxes[X].procs


def test_a_restore_point_that_is_seen_after_the_isolation_time_starts_nothing() -> None:
    u = running("pair")
    change_recovery(u, isolation_timeout_seconds=20)
    FAULTS["train"](u, 4)
    go_on(u)
    kill(u, "worker-0.0")
    go_on(u, but=lambda _u, move: move == Move(Kind.INNER, X))
    assert is_in(u, GangPhase.RUNNING, 2)
    assert u.boxes[X].inbox
    cut_off(u, X)
    advance(u, u.now + ISOLATION)
    perform(u, Move(Kind.INNER, X))
    assert not u.boxes[X].procs


def test_a_pod_that_is_not_shown_and_still_stops_its_worker_blocks() -> None:
    u = running("duo")
    stubborn(u, X)
    u.remove_pod(X)
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert u.boxes[X].procs


def test_a_spare_that_has_a_rank_is_waited_for() -> None:
    u = running("spare")
    change_recovery(u, lost_pod_grace_seconds=3600)
    u.pods["worker-0.0"] = replace(u.pods["worker-0.0"], devices=(Device("gpu", "gpu-0", "Unhealthy"),))
    u.starts_fail = True
    go_on(u)
    assert [one.member for one in u.status.ranks] == ["worker-2"]
    u.starts_fail = False
    go_on(u)
    cut_off(u, "worker-2.0")
    u.remove_pod("worker-2.0")
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 3)
    assert u.boxes["worker-2.0"].procs


def test_a_new_leader_waits_the_whole_time_again() -> None:
    u = fenced()
    stubborn(u, X)
    advance(u, u.now + 60_000)
    controller.end(u, u.newest_leader)
    lose(u, X)
    go_on(u)
    lead = u.now
    time_passes(u, lead + ISOLATION + GRACE + MARGIN - 1)
    assert is_in(u, GangPhase.GATHERING, 2)
    time_passes(u, lead + ISOLATION + GRACE + MARGIN)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_a_pod_that_was_marked_as_ended_blocks_while_its_supervisor_reports() -> None:
    u = running("duo")
    stubborn(u, X)
    u.pods[X] = replace(u.pods[X], terminated=True)
    go_on(u, but=lambda u, move: is_sigterm(u, move) or move == Move(Kind.REMOVE, X))
    assert is_in(u, GangPhase.GATHERING, 2)
    assert u.boxes[X].procs


def test_two_pods_of_unknown_uid_are_waited_for() -> None:
    first, second = (Awaited(member=name, incarnation=0, pod="") for name in ("worker-0", "worker-1"))
    status = await_pods(Status(awaited=(first,)), [GivenUp("worker-1", 0, ""), None])
    assert status.awaited == (first, second)


def test_a_clock_that_is_set_forward_does_not_make_a_vanished_pod_lost() -> None:
    for step in (31_000, 3_600_000):
        u = vanished()
        u.skew += step
        for number in list(u.leaders):
            u.leaders[number] = u.leaders[number]._replace(dirty=True)
        go_on(u, but=is_sigterm)
        assert is_in(u, GangPhase.GATHERING, 2)


def test_a_new_leader_with_another_clock_waits_for_a_vanished_pod() -> None:
    for hour in (3_600_000, -3_600_000):
        u = vanished()
        change_recovery(u, lost_pod_grace_seconds=40)
        u.skew += hour
        controller.end(u, u.newest_leader)
        go_on(u, but=is_sigterm)
        advance(u, u.now + 39_000)
        go_on(u, but=is_sigterm)
        assert is_in(u, GangPhase.GATHERING, 2)
        advance(u, u.now + 1_000)
        kubelets.end_containers(u, X)
        go_on(u, but=is_sigterm)
        assert is_in(u, GangPhase.RUNNING, 2)


def vanished() -> Universe:
    """A gang that waits for a pod that was deleted by force on a node that is cut off."""
    u = running("duo")
    cut_off(u, X)
    u.remove_pod(X)
    go_on(u, but=is_sigterm)
    return u
