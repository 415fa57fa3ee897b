"""What relays and the leader do for each member: messages, bytes and processor time, and what follows for 100,000.

    python -m bench.scale                                  what docs/scale.md quotes
    python -m bench.scale --members 4000 --relays 4

Real are both ends of the links, the hub and every message; sockets, TLS and the clock are the simulation's
(``tests/simulation/relays.py``). So the times are those of gangctl's own code, without what asyncio and TLS need for a
connection. Members connect, rest for 30 s, train for 30 s with a step a second, and restart; then another leader gets
all sessions from the relays. Decisions are ``bench/decide.py``'s. Memory is what a member's objects take at each end,
counted by ``tracemalloc`` in a run of its own. The last table is a formula: so much for a message, times the messages.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from gangctl.api.status import GangPhase
from gangctl.controller import hub
from gangctl.controller.relaying import decode_batch
from gangsidecar import wire
from tests.controller.fake_sidecars import job
from tests.simulation import relays
from tests.simulation.relays import GANG, Relay, World

SECONDS: Final = 30
POINTS: Final = ((1000, 4), (4000, 4), (10_000, 4), (10_000, 16))
MEMORY_OF: Final = 1000
"""Members, at most, of which the memory is traced: it takes long, and each takes the same."""
FLEETS: Final = ((10_000, 4, 1), (100_000, 32, 1), (100_000, 32, 10), (1_000_000, 256, 60))
"""Members, relays, and seconds between two reports of steps."""


@dataclass
class Tally:
    """What a part of a run took, of all members together."""

    said: int = 0
    """Entries from relays to the leader."""
    up: int = 0
    """Their bytes."""
    heard: int = 0
    """Messages that sidecars get."""
    down: int = 0
    """Bytes from the leader to relays."""
    relay: float = 0.0
    """Seconds of processor time of all relays."""
    leader: float = 0.0
    relay_bytes: int = 0
    """Memory that relays have taken, while it is traced."""
    leader_bytes: int = 0


class Run:
    """One size."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tally = Tally()
        self.seq = 0

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add what this takes to the relays' or the leader's time."""
        began, (held, _) = time.process_time(), tracemalloc.get_traced_memory()
        yield
        setattr(self.tally, part, getattr(self.tally, part) + time.process_time() - began)
        grown = tracemalloc.get_traced_memory()[0] - held
        setattr(self.tally, f"{part}_bytes", getattr(self.tally, f"{part}_bytes") + grown)

    def connect(self) -> None:
        """All sidecars dial, each relay has its share."""
        with self.timed("relay"):
            for at, member in enumerate(self.world.members):
                self.world.dial(member, self.world.relays[at % len(self.world.relays)])
        self.link()

    def link(self) -> None:
        """All relays link to the newest leader."""
        for one in self.world.relays:
            self.world.link(one)
            self.answer()
        self.exchange()

    def report(self, step: int | None = None, **changes: Any) -> None:
        """Every supervisor reports."""
        self.seq += 1
        now = round(self.world.now * 1000)
        for member in self.world.members:
            who = member.identity
            progress = None if step is None else wire.Progress(1, step, 5, first_step=1, first_age_ms=now, every=1)
            known = {"attempt": 1, "phase": wire.Phase.READY, "address": "10.0.0.1", "phase_age_ms": now, **changes}
            made = wire.Report(
                GANG, who.member, 0, who.pod, "session", self.seq, sent_ms=now, progress=progress, **known
            )
            member.up.append(wire.encode(made))
        self.exchange()

    def exchange(self) -> None:
        """What was said arrives, and the answers go back."""
        world, leader = self.world, self.world.leaders[-1]
        with self.timed("relay"):
            for member in world.members:
                while member.up:
                    world.climb(member)
        for one in world.relays:
            while text := self._batch(one):
                with self.timed("leader"):
                    entries = decode_batch(text)[1]
                    for entry in entries:
                        one.link._take(entry)  # noqa: SLF001 - it moves by hand what sockets would move
                self.tally.up += len(text)
                self.tally.said += len(entries)
        with self.timed("leader"):
            while leader.work:
                leader.work.popleft()()
        self.answer()

    def _batch(self, one: Relay) -> str:
        with self.timed("relay"):
            text, has_entries = one.program.batch(one.leader.at) if one.leader is not None else ("", False)
        return text if has_entries else ""

    def answer(self) -> None:
        """What the leader says arrives at the sidecars."""
        world = self.world
        for one in world.relays:
            with self.timed("leader"):
                world.lower(one)
            texts = world._way(one.link, up=False)  # noqa: SLF001 - see above
            while texts:
                text = texts.popleft()
                self.tally.down += len(text)
                assert one.leader is not None
                with self.timed("relay"):
                    one.program.hear(one.leader.at, text)
        with self.timed("relay"):
            for member in world.members:
                assert member.connection is not None
                outlet = member.connection.outlet
                assert isinstance(outlet, relays.Outlet)
                self.tally.heard += len(outlet.waiting)
                outlet.waiting.clear()

    def taken(self) -> Tally:
        """What was done since the last look."""
        found, self.tally = self.tally, Tally()
        return found


def measured(members: int, shared: int) -> dict[str, Tally]:
    """What each part of one life took."""
    with patch.object(relays, "MEMBERS", members), patch.object(relays, "RELAYS", shared):
        world = World(0)
    run, found = Run(world), {}
    gc.freeze()
    with world.running(), patch.object(hub, "in_slices", lambda items, serve: [serve(one) for one in items]):
        run.connect()
        run.report()
        found["connect"] = run.taken()
        leader = world.leaders[-1].hub
        for _ in range(round(SECONDS / hub.PING_SECONDS)):
            world.now += hub.PING_SECONDS
            with run.timed("leader"):
                for connection in leader.connections.all():
                    leader._check(connection)  # noqa: SLF001 - the loop around it sleeps
            run.answer()
            run.report()
        found["rest"] = run.taken()
        for step in range(1, SECONDS + 1):
            world.now += 1
            run.report(step)
        found["train"] = run.taken()
        with run.timed("leader"):
            leader.publish(job(attempt=2, phase=GangPhase.GATHERING, version="2"))
        run.answer()
        for phase in (wire.Phase.STOPPING, wire.Phase.READY, wire.Phase.RUNNING):
            world.now += 0.2
            run.report(attempt=2, phase=phase)
        found["restart"] = run.taken()
        world.lead()
        run.link()
        found["new leader"] = run.taken()
    gc.unfreeze()
    return found


def memory(members: int, shared: int) -> tuple[float, float]:
    """Bytes that a member takes at its relay, and at the leader, once it has reported a step."""
    tracemalloc.start()
    with patch.object(relays, "MEMBERS", members), patch.object(relays, "RELAYS", shared):
        run = Run(World(0))
    with run.world.running(), patch.object(hub, "in_slices", lambda items, serve: [serve(one) for one in items]):
        run.connect()
        run.report()
        run.report(1)
    tracemalloc.stop()
    return run.tally.relay_bytes / members, run.tally.leader_bytes / members


def main() -> int:
    """Print the tables; returns the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--members", type=int, help="of one gang")
    flags.add_argument("--relays", type=int, default=4)
    options = flags.parse_args()
    points = POINTS if options.members is None else ((options.members, options.relays),)
    heads = ("messages up", "bytes up", "messages down", "bytes down", "relays, µs", "leader, µs")
    print(f"for each member\n{'members':>8} {'relays':>6} {'part':>10} " + " ".join(f"{head:>13}" for head in heads))
    for members, shared in points:
        found = measured(members, shared)
        for part, tally in found.items():
            row = (tally.said, tally.up, tally.heard, tally.down, tally.relay * 1e6, tally.leader * 1e6)
            print(f"{members:>8} {shared:>6} {part:>10} " + " ".join(f"{value / members:>13.1f}" for value in row))
    at_relay, at_leader = memory(min(members, MEMORY_OF), min(shared, 4))
    print(f"\nmemory of a member, without its socket: {at_relay:.0f} bytes at its relay, {at_leader:.0f} at the leader")
    print("\nby the last of them, cores that messages take, and MB/s at the leader's links")
    columns = ("s a report", "leader", "each relay", "MB/s", "s a restart")
    print(f"{'members':>8} {'relays':>6} " + " ".join(f"{head:>11}" for head in columns))
    train, rest, restart = found["train"], found["rest"], found["restart"]
    for fleet, shared, every in FLEETS:
        share = fleet / members
        leader, relay, up = (
            share * (getattr(train, name) / every + getattr(rest, name)) / SECONDS for name in ("leader", "relay", "up")
        )
        stop = share * (restart.leader + restart.relay / shared)
        needed = (every, leader, relay / shared, up / 1e6, stop)
        print(f"{fleet:>8} {shared:>6} " + " ".join(f"{value:>11.2f}" for value in needed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
