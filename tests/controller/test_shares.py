"""Shares in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.controller.intake import CONNECTION_SECONDS, LONGEST_PAUSE, SHARES, Owner, Shares

POD, NAMESPACE = SHARES[Owner.POD], SHARES[Owner.NAMESPACE]


def spent_in(seconds: float, shares: Shares, pods: int, cost: float) -> float:
    """What pods of one namespace take that send without end, each as soon as it is read."""
    due, taken = dict.fromkeys(map(str, range(pods)), 0.0), 0.0
    while (now := min(due.values())) < seconds:
        pod = min(due, key=lambda one: due[one])
        shares.spend(pod, "team", cost, now)
        taken += cost
        pause = shares.pause(pod, "team", now)
        due[pod] = now + cost + (0.0 if pause is None else pause.seconds)
    return taken


def test_a_member_that_works_is_never_paused() -> None:
    shares = Shares()
    for second in range(900):
        for pod in range(100):
            shares.spend(f"pod-{pod}", "team", 0.000_2, second)
            assert shares.pause(f"pod-{pod}", "team", second) is None
        for _ in range(8 if second % 300 == 0 else 0):  # Eight ranks register a checkpoint: long lists.
            shares.spend("pod-0", "team", 0.006, second)
            assert shares.pause("pod-0", "team", second) is None


def test_a_restart_of_ten_thousand_members_pauses_no_pod_for_long() -> None:
    shares = Shares()
    for pod in range(10_000):
        shares.spend(f"pod-{pod}", "team", 0.000_15, pod * 0.000_3)
    assert shares.pause("pod-0", "team", 3.0) is None


def test_a_pod_that_floods_gets_its_share_and_what_it_had_saved_up() -> None:
    taken = spent_in(60.0, Shares(), pods=1, cost=0.01)
    assert taken == pytest.approx(60 * POD.rate + POD.burst, rel=0.05)


def test_pods_that_flood_together_get_the_share_of_their_namespace() -> None:
    taken = spent_in(60.0, Shares(), pods=64, cost=0.01)
    assert taken <= 60 * NAMESPACE.rate + NAMESPACE.burst + 64 * LONGEST_PAUSE * NAMESPACE.rate
    assert taken / 60 < 0.75


def test_a_pod_of_another_namespace_is_not_paused() -> None:
    shares = Shares()
    spent_in(60.0, shares, pods=64, cost=0.01)
    assert shares.pause("0", "team", 60.0) is not None
    shares.spend("pod", "other", 0.01, 60.0)
    assert shares.pause("pod", "other", 60.0) is None


def test_the_longer_pause_counts_and_says_whose_share_it_is() -> None:
    shares = Shares()
    shares.spend("pod", "team", POD.burst + 0.05, 0.0)
    found = shares.pause("pod", "team", 0.0)
    assert found is not None
    assert found.seconds == pytest.approx(0.05 / POD.rate)
    assert found.owner is Owner.POD
    for other in range(100):
        shares.spend(f"other-{other}", "team", 0.03, 0.0)
    found = shares.pause("other-1", "team", 0.0)
    assert found is not None
    assert found.owner is Owner.NAMESPACE


def test_what_a_pod_owes_outlives_its_connection_and_is_forgotten_once_it_is_paid() -> None:
    shares = Shares()
    shares.spend("pod", "team", 1.0, 0.0)
    shares.forget_paid(1.0)
    assert shares.pause("pod", "team", 1.0) is not None
    shares.forget_paid(1.0 / POD.rate)
    assert shares.pause("pod", "team", 1.0 / POD.rate) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 10)), max_size=50))
def test_a_pause_is_never_longer_than_the_longest(messages: list[tuple[float, float]]) -> None:
    shares, now = Shares(), 0.0
    for cost, later in messages:
        now += later
        shares.spend("pod", "team", cost, now)
        found = shares.pause("pod", "team", now)
        assert found is None or 0 < found.seconds <= LONGEST_PAUSE


def test_connections_are_paid_by_their_pod_and_not_by_its_namespace() -> None:
    shares = Shares()
    for pod in [f"pod-{at}" for at in range(10_000)] + ["pod-0"] * 100:
        shares.spend_of(Owner.POD, pod, CONNECTION_SECONDS, 0.0)
    assert shares.pause("pod-1", "team", 0.0) is None, "all members connect at once after a leader's end"
    pause = shares.pause("pod-0", "team", 0.0)
    assert pause is not None
    assert pause.owner is Owner.POD
