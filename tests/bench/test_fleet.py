"""The simulated months of a fleet: one seed gives one table, and what the core decides shows in it."""

from __future__ import annotations

from bench import fleet
from bench.fleet import A_DAY, POLICIES, Kind, Loss

EXEC, FORK, ELASTIC, SPARES, MEMORY = POLICIES[2:]
HOUR = 3600.0


def run(policy: fleet.Policy, seed: int = 3, away: float = 0.0) -> Loss:
    return fleet.of_gangctl(policy, list(fleet.faults(seed, A_DAY, 2)), 8, seed, away)


def test_a_seed_gives_one_history() -> None:
    assert run(SPARES) == run(SPARES)
    assert run(SPARES, 4) != run(SPARES)


def test_a_faster_start_a_spare_and_memory_lose_less() -> None:
    losses = [run(policy) for policy in (EXEC, FORK, SPARES, MEMORY)]
    down = [one.down for one in losses]
    assert down == sorted(down, reverse=True)
    assert len(set(down)) == 4
    assert losses[3].again < losses[2].again / 10


def test_without_a_node_to_spare_a_gang_that_shrinks_loses_the_share_that_is_away_and_grows_again() -> None:
    waits, shrinks, spared = (run(policy, away=HOUR) for policy in (FORK, ELASTIC, SPARES))
    away = [one for kind in fleet.LEAVES for one in waits.outages[kind]]
    assert min(away) > HOUR
    assert max(one for kind in fleet.LEAVES for one in shrinks.outages[kind]) < 500
    assert 0 < shrinks.thin < len(away) * HOUR / 8 * 1.5
    assert spared.down < shrinks.down + shrinks.thin < waits.down / 3


def test_a_lost_node_costs_its_notice_and_two_graces_of_the_core() -> None:
    gang = fleet.Gang(FORK, 8, 1, 0.0)
    process, _, made = gang.strike(fleet.Fault(10_000.0, Kind.PROCESS), 10)
    assert made == 0
    node, step, made = gang.strike(fleet.Fault(20_000.0, Kind.NODE), 20)
    assert (step, made) == (20, 1)
    assert round(node - process) == 46 + 30 + 30
