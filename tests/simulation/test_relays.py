# ruff: noqa: SLF001 - it moves by hand what sockets would move
"""Relays pass on what is said, and nothing else, whatever goes wrong on the way: as stories, and as lives at random."""

from __future__ import annotations

from collections import Counter

import pytest

from gangctl.controller.relaying import NO_LINK_LOST, ROW_SECONDS, Open, encode_batch
from gangctl.core.facts.world import Brake, Observed
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy.brake import apply_brake
from gangsidecar import wire
from tests.core.braked_gangs import Gangs
from tests.effort import tries
from tests.simulation.relays import GANG, Member, Outlet, Relay, World, live
from tests.simulation.seeds import with_relays

LIVES, MOVES = 40, 1200
AWAY = 30.0
"""Seconds: longer than a relay may be without a leader that is known."""
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


def test_what_has_waited_at_a_relay_reaches_its_leader_with_that_age() -> None:
    world = World(0)
    with world.running():
        member, relay = world.members[0], world.relays[0]
        world.dial(member, relay)
        world.say(member, news=True)
        world.climb(member)
        world.now += AWAY
        world.link(relay)
        world.arrive()
        world.lift(relay)
        world.arrive()
        leader = world.leaders[-1]
        world.turn(leader)
        (known,) = leader.hub.reports.heard(GANG)
        assert known.report.phase_age_ms == AWAY * 1000


def test_a_relay_whose_links_break_at_once_sends_its_sidecars_elsewhere() -> None:
    world = World(0)
    with world.running():
        program, leader = world.relays[0].program, world.leaders[-1]
        program._unreached = leader.at.term, world.now
        program.hear(leader.at, encode_batch(leader.at.term, iter(())))
        program.unlink()
        world.now += AWAY
        assert not program.can_serve


def test_a_session_that_is_opened_twice_ends_its_link_and_leaves_no_connection() -> None:
    world = World(0)
    with world.running():
        member, relay, _ = told(world)
        link, leader = relay.link, world.leaders[-1]
        other = Open(1, world.members[1].identity, 1, 1)
        with pytest.raises(wire.WireError):
            link._take(other)
        link.end()
        assert list(leader.hub.connections.all()) == []
        link._take(other)
        assert list(leader.hub.connections.all()) == [], "nothing is taken from a link that has ended"
        assert leader.hub.connections.get(member.identity.pod) is None


def test_a_link_that_comes_and_goes_begins_deadlines_anew_a_few_times_only() -> None:
    lost, counted = NO_LINK_LOST, set[float]()
    for now in range(1000, 1000 + 3600, 20):
        lost = lost.with_another(float(now))
        counted.add(lost.counts_since)
    assert sorted(counted) == [1000.0, 1020.0, 1040.0, 1060.0]
    assert lost.with_another(lost.last + ROW_SECONDS + 1).counts_since == lost.last + ROW_SECONDS + 1


def test_relays_hold_their_invariants_whatever_goes_wrong() -> None:
    reached = sum((live(seed, MOVES).power for seed in range(LIVES)), Counter[str]())
    assert not [what for what in REACHED if not reached[what]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, tries(60), 10))
def test_lives_with_relays_hold_the_invariants_of_gangs(first: int) -> None:
    reached = Counter[str]()
    for seed in range(first, first + 10):
        reached += with_relays(seed).run().universe.power
    assert reached["a relay gave a leader what it held"] > HELD


def test_the_loss_of_a_relay_and_the_brake_leave_alone_since_when_the_cluster_is_watched() -> None:
    braked = apply_brake(Observed(listening_since=30.0, watching_since=10.0), Brake(), 40.0)
    assert (braked.listening_since, braked.watching_since) == (30.0, 10.0)


def test_no_node_is_lost_for_the_silence_of_a_relay() -> None:
    gangs = Gangs.running(1)
    gangs.do("the node of worker-1 is lost", "300 s pass", "the relay of worker-1 is lost, silent for 40 s")
    gangs.passes(25)
    assert gangs.attempts() == [1]
    gangs.passes(10)
    assert gangs.attempts() == [2], "its sidecar had its time to connect to another relay"
