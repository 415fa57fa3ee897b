"""Pods that vanish while their gang looks elsewhere, and leaders whose clocks are a day apart. As stories."""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.gangjob import Windowed
from gangctl.api.status import GangPhase
from tests.simulation import controller, sidecars
from tests.simulation.engine import plain
from tests.simulation.faults import FAULTS
from tests.simulation.lives import Injection
from tests.simulation.moves import Kind, Move, advance, next_time
from tests.simulation.seeds import Life
from tests.simulation.setups import setups
from tests.simulation.test_fencing import GRACE, ISOLATION, MARGIN, X, change_recovery, time_passes
from tests.simulation.test_regressions import cut_off, go_on, is_in, is_sigterm, kill, run_again, running
from tests.simulation.universe import Universe, new_universe

HOUR, DAY = 3_600_000, 86_400_000


def test_a_pod_that_thaws_beside_its_successor_is_not_told_to_run() -> None:
    u = new_universe(setups()["duo"], plain())

    def other(_u: Universe, move: Move) -> bool:
        return move.kind is Kind.CONNECT and move.who == "worker-0.0"

    go_on(u, but=other)
    FAULTS["a kubelet is away"](u, sorted(u.boxes).index(X))
    u.boxes[X] = u.boxes[X]._replace(mute=True)
    until = u.now + sidecars.SILENT_MS
    while u.now < until:
        advance(u, min(until, next_time(u) or until))
        go_on(u, but=other)
    assert u.boxes[X].silent
    u.remove_pod(X)
    go_on(u)
    assert is_in(u, GangPhase.RUNNING, 1)
    u.boxes[X] = u.boxes[X]._replace(mute=False)
    time_passes(u, u.now + 60_000)
    assert u.boxes[X].is_heard
    assert is_in(u, GangPhase.RUNNING, 1)
    assert {box.pod: box.incarnation for box in u.boxes.values() if box.procs} == {"worker-0.0": 0, f"{X}'": 0}


def test_a_leader_whose_status_is_old_deletes_no_pod_of_a_newer_status() -> None:
    """Two lead for a while: one resumes the gang, the other believes it suspended and sees its new pods."""
    found = (
        Injection(0, "a worker is killed", 53),
        Injection(0, "a member is cut off", 50),
        Injection(40, "a member is reached again", 50),
        Injection(40, "a supervisor crashes", 31),
        Injection(40, "a framework asks for a restart", 53),
        Injection(13, "a framework asks for a restart", 53),
        Injection(20, "the roles change", 53),
        Injection(2, "another controller leads", 53),
        Injection(0, "a worker exits with 1", 50, rested=True),
    )
    Life("fenced", 5_300_043, found, 3, warm=True).run()


def held(u: Universe) -> Universe:
    """A gang that is held while a member is cut off, whose worker runs on."""
    change_recovery(u, on_exhausted="Hold", budget=Windowed(type="Windowed", max_restarts=0, window_seconds=3600))
    go_on(u)
    cut_off(u, X)
    kill(u, "worker-0.0")
    go_on(u)
    until = u.now + 60_000
    time_passes(u, until)
    assert is_in(u, GangPhase.HELD, 2)
    assert u.boxes[X].procs
    return u


def test_a_pod_that_vanishes_while_its_gang_is_held_is_waited_for() -> None:
    u = held(running("duo"))
    u.remove_pod(X)
    go_on(u, but=is_sigterm)
    u.change_spec(restart_token="go on")
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 3)
    assert [(entry.member, entry.incarnation) for entry in u.status.awaited] == [("worker-1", 0)]
    assert {pod.incarnation for pod in u.pods.values() if pod.member == "worker-1"} == {1}


def test_a_pod_that_vanishes_as_a_restart_is_requested_is_waited_for() -> None:
    u = running("duo")
    cut_off(u, X)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.GATHERING, 2)
    u.remove_pod(X)
    u.change_spec(restart_token="now")
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert [(entry.member, entry.incarnation) for entry in u.status.awaited] == [("worker-1", 0)]
    assert {pod.incarnation for pod in u.pods.values() if pod.member == "worker-1"} == {1}


def long_isolated() -> Universe:
    """A gang that isolates its members after ten minutes, and whose leader has listened for an hour."""
    u = running("fenced")
    change_recovery(u, lost_pod_grace_seconds=3600, isolation_timeout_seconds=600)
    go_on(u)
    while u.now < HOUR:
        advance(u, min(HOUR, next_time(u) or HOUR))
        go_on(u)
    return u


def test_a_vanished_pod_whose_report_is_forgotten_has_its_whole_isolation_time() -> None:
    u = held(long_isolated())
    u.remove_pod(X)
    go_on(u, but=is_sigterm)
    u.change_spec(restart_token="go on")
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 3)
    assert u.boxes[X].procs


def test_a_pod_that_vanishes_goes_by_what_it_was_told_before_the_others_were_told_less() -> None:
    u = long_isolated()
    cut_off(u, X)
    go_on(u)
    change_recovery(u, isolation_timeout_seconds=20)
    go_on(u)
    time_passes(u, u.now + ISOLATION + GRACE + MARGIN)
    u.remove_pod(X)
    go_on(u, but=is_sigterm)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert u.boxes[X].procs


def lead_anew(u: Universe, skew: int) -> None:
    """Another controller leads, whose clock is so many milliseconds ahead of the last one's."""
    u.skew += skew
    controller.end(u, u.newest_leader)
    go_on(u)


def test_a_deadline_does_not_wait_until_the_clocks_of_two_leaders_agree() -> None:
    u = running("duo")
    lead_anew(u, DAY)
    cut_off(u, X)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.GATHERING, 2)
    lead_anew(u, -DAY)
    assert is_in(u, GangPhase.GATHERING, 2)
    time_passes(u, u.now + 200_000)
    assert is_in(u, GangPhase.RUNNING, 2)


def test_no_deadline_is_over_because_the_clock_of_the_last_leader_was_behind() -> None:
    u = running("duo")
    lead_anew(u, -DAY)
    cut_off(u, X)
    kill(u, "worker-0.0")
    go_on(u)
    assert is_in(u, GangPhase.GATHERING, 2)
    lead_anew(u, DAY)
    time_passes(u, u.now + 60_000)
    assert is_in(u, GangPhase.GATHERING, 2)
    assert {pod.incarnation for pod in u.pods.values()} == {0}


def test_a_collected_pod_whose_node_is_back_is_lost_once_nothing_but_a_stuck_process_is_left() -> None:
    u = running("duo")
    box = u.boxes[X]
    u.boxes[X] = box._replace(procs=tuple(replace(one, stuck=True, stubborn=True) for one in box.procs))
    for what in ("a kubelet is away", "a pod is garbage collected", "a pod is deleted by force", "a node comes back"):
        FAULTS[what](u, sorted(u.boxes).index(X))
    go_on(u)
    assert X not in u.pods, "its object is gone, and its supervisor still reports"
    assert u.boxes[X].link is not None
    run_again(u)
    assert is_in(u, GangPhase.RUNNING, 2)
    assert u.boxes[X].link is None
    assert u.boxes[X].procs, "SIGKILL does not end them, and no timer can"


def test_a_pod_that_only_a_deposed_leader_hears_is_waited_for_whatever_the_grace() -> None:
    """Of policies that were drawn: a grace of 0. The pod vanishes as the leader changes, and its worker runs on."""
    found = (
        Injection(1, "a pod is deleted by force", 47, rested=True),
        Injection(8, "a pod is garbage collected", 45),
        Injection(0, "a device is unhealthy", 13, rested=True),
        Injection(5, "a supervisor crashes", 45),
        Injection(2, "a pod is evicted", 45),
        Injection(3, "a worker is killed", 49),
        Injection(0, "a worker is killed", 35),
        Injection(1, "a worker exits with 1", 20, rested=True),
        Injection(20, "a framework verifies a checkpoint", 45),
        Injection(5, "a worker is killed", 45, rested=True),
        Injection(3, "a worker ignores SIGTERM", 63),
        Injection(13, "a pod is deleted by force", 45),
        Injection(0, "another controller leads", 63),
        Injection(0, "a pod is evicted", 63),
        Injection(1, "a worker is killed", 63, rested=True),
    )
    Life("roles", 22000247, found, 2, warm=False, policies=22000247).run()
