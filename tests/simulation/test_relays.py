"""Relays pass on what is said, and nothing else, whatever goes wrong on the way: as stories, and as lives at random."""

from __future__ import annotations

from collections import Counter

import pytest

from gangctl.core.facts.world import Brake, Observed
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy.brake import apply_brake
from gangsidecar import wire
from tests.simulation.relays import GANG, Member, Outlet, Relay, World, live
from tests.simulation.seeds import with_relays

LIVES, MOVES = 40, 1200
HELD = 50
"""So much ten lives must have of what only relays do."""
REACHED = (
    *("a relay sends Open", "a relay sends Say", "a relay sends Beat", "a relay sends Gone"),
    *("a batch comes late", "a ping answers a report", "a relay with sessions is lost"),
)


def told(world: World) -> tuple[Member, Relay, Outlet]:
    """A member at a relay, whose leader has told it something that it has not got yet."""
    member, relay = world.members[0], world.relays[0]
    world.link(relay)
    world.arrive()
    world.dial(member, relay)
    world.say(member, news=True)
    world.climb(member)
    world.lift(relay)
    world.arrive()
    leader = world.leaders[-1]
    world.turn(leader)
    leader.hub.ask(GANG, AskScan(member.identity.pod, wire.Scan(1, ())))
    assert member.connection is not None
    outlet = member.connection.outlet
    assert isinstance(outlet, Outlet)
    return member, relay, outlet


def test_what_a_deposed_leader_said_and_a_slow_sidecar_has_not_got_never_reaches_it() -> None:
    world = World(0)
    with world.running():
        _, relay, outlet = told(world)
        world.lower(relay)
        world.arrive()
        assert {"Ping", "Directive", "Scan"} <= set(outlet.waiting)
        world.lead()
        world.link(relay)
        assert not {kind for kind, (_, leader) in outlet.waiting.items() if leader}


def test_a_batch_of_a_deposed_leader_that_comes_late_is_dropped() -> None:
    world = World(0)
    with world.running():
        _, relay, outlet = told(world)
        world.lower(relay)
        late = next(way for way in world.flying if way[1] is world.leaders[0] and not way[3])
        world.lead()
        world.link(relay)
        world.flying.remove(late)
        while any(way[4] for way in world.flying):
            world.arrive()
        world.flying = [late]
        world.arrive()
        assert world.power["a batch comes late"]
        assert not {kind for kind, (_, leader) in outlet.waiting.items() if leader == 1}


def test_relays_hold_their_invariants_whatever_goes_wrong() -> None:
    reached = sum((live(seed, MOVES).power for seed in range(LIVES)), Counter[str]())
    assert not [what for what in REACHED if not reached[what]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, 30, 10))
def test_lives_with_relays_hold_the_invariants_of_gangs(first: int) -> None:
    reached = Counter[str]()
    for seed in range(first, first + 10):
        reached += with_relays(seed).run().universe.power
    assert reached["a relay gave a leader what it held"] > HELD


def test_the_loss_of_a_relay_and_the_brake_leave_alone_since_when_the_cluster_is_watched() -> None:
    braked = apply_brake(Observed(listening_since=30.0, watching_since=10.0), Brake(), 40.0)
    assert (braked.listening_since, braked.watching_since) == (30.0, 10.0)
