"""Every interleaving: all states that a small gang can get into with a few faults are visited, each once.

A state is the whole world: the stored status, every controller's memory, every machine, every process, every message on
its way, the pods, the disk. Thinking and writing are two steps, and a controller may crash between them. Time stands
still but for a few steps. Where nothing more can happen by itself the world is healed, and has to come to rest as in
the simulation.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation import invariants, moves
from tests.simulation.engine import Engine, remembering
from tests.simulation.faults import FAULTS, heal
from tests.simulation.lives import Run, settle
from tests.simulation.moves import Kind, Move
from tests.simulation.setups import setups
from tests.simulation.universe import Universe, new_universe
from tests.simulation.values import Box, Leader, Relay

_EAGER = frozenset({Kind.START, Kind.CONNECT, Kind.EXIT, Kind.ENDED})


@dataclass(frozen=True)
class Search:
    """What is searched."""

    setup: str
    faults: tuple[str, ...]
    """Which faults may happen, at any moment, to any member."""
    count: int = 1
    """How many of them."""
    jumps: tuple[int, ...] = ()
    """Time stands still but for these steps, in milliseconds, each at any moment after the one before."""
    fresh: bool = False
    """The gang was only just submitted; else it runs, and has checkpoints if it can."""
    before: tuple[str, ...] = ()
    """Faults that have happened by then, one after the other, with all that follows at once."""
    relays: int = 0
    """How many replicas relay; 0 = sidecars connect to the leader itself."""
    states: int = 1_000_000
    """The search ends after so many, in the order of their distance from the start."""

    def name(self) -> str:
        """What it is called where its result is printed."""
        faults = f"{self.count} x ({', '.join(self.faults)})" if self.faults else "no fault"
        faults = " and then ".join([*self.before, faults])
        jumps = "".join(f", +{jump / 1000:g} s" for jump in self.jumps)
        relays = f" with relays: {self.relays}" if self.relays else ""
        return f"{self.setup}{relays}{' from the start' if self.fresh else ''}: {faults}{jumps}"


@dataclass
class Found:
    """What a search has seen."""

    states: int = 0
    transitions: int = 0
    rests: int = 0
    """States in which nothing more happened by itself, and from which the gang came to rest."""
    complete: bool = False
    """All states were visited, not only the nearest ones."""
    power: Counter[str] = field(default_factory=Counter)
    """What has happened on the ways to them, for what counts that."""
    deepest: int = 0

    def text(self) -> str:
        """In words."""
        which = "all" if self.complete else "the nearest"
        return f"{which} {self.states} states, {self.transitions} transitions, depth {self.deepest}, {self.rests} rests"


@dataclass(slots=True)
class _Node:
    universe: Universe
    faults: int
    jumps: tuple[int, ...]
    depth: int
    parent: _Node | None = None
    label: str = ""

    def path(self) -> list[str]:
        """How it came to this."""
        before = [] if self.parent is None else self.parent.path()
        return [*before, self.label] if self.label else before


@dataclass
class _Searching:
    search: Search
    engine: Engine = field(default_factory=remembering)
    found: Found = field(default_factory=Found)
    seen: set[int] = field(default_factory=set)
    rested: set[int] = field(default_factory=set)


def explore(search: Search) -> Found:
    """Visit them.

    Raises:
        ViolationError: an invariant doesn't hold; its notes are the shortest way there.
    """
    work = _Searching(search)
    start = new_universe(setups()[search.setup], work.engine)
    start.relays = (Relay(),) * search.relays
    if not search.fresh:
        settle(Run(start))
    if not search.fresh and start.spec.checkpoint is not None:
        FAULTS["train"](start, 2)
        settle(Run(start))
    for fault in search.before:
        FAULTS[fault](start, 0)
        while move := next(moves.moves(start), None):
            moves.perform(start, move)
    queue = deque([_Node(start, search.count, search.jumps, 0)])
    work.seen.add(_key(queue[0]))
    while queue and work.found.states < search.states:
        node = queue.popleft()
        work.found.states += 1
        work.found.deepest = max(work.found.deepest, node.depth)
        for after in _successors(work, node):
            work.found.transitions += 1
            key = _key(after)
            if key not in work.seen:
                work.seen.add(key)
                queue.append(after)
    work.found.complete, work.found.power = not queue, start.power
    return work.found


def _successors(work: _Searching, node: _Node) -> Iterator[_Node]:
    enabled = _enabled(node.universe)
    for move in enabled:
        label = f"{move.kind.name.lower()} {move.who} {move.which or ''}"
        after = _Node(node.universe.copy(), node.faults, node.jumps, node.depth + 1, node, label)
        _try(after, lambda move=move, after=after: moves.perform(after.universe, move))
        yield after
    if node.faults:
        for what in work.search.faults:
            for target in range(len(node.universe.boxes)):
                after = _Node(
                    node.universe.copy(), node.faults - 1, node.jumps, node.depth + 1, node, f"-- {what} {target}"
                )
                _try(after, lambda what=what, target=target, after=after: _harm(after.universe, what, target))
                yield after
    if node.jumps:
        until = node.universe.now + node.jumps[0]
        label = f"time {until}"
        after = _Node(node.universe.copy(), node.faults, node.jumps[1:], node.depth + 1, node, label)
        _try(after, lambda: moves.advance(after.universe, until))
        yield after
    if not enabled:
        _rest(work, node)


def _enabled(u: Universe) -> list[Move]:
    """What can happen next. What only one side can see, and what commutes with all else, happens at once.

    A pod that is made late or starts late looks like one that connects late; a connection that is made late looks like
    a report that comes late. Faults may still come in between. With two controllers, one may act late.
    """
    enabled = list(moves.moves(u))
    eager = _EAGER if len(u.leaders) > 1 else {*_EAGER, Kind.ACT}
    return next(([move] for move in enabled if move.kind in eager), enabled)


def _harm(u: Universe, what: str, target: int) -> None:
    FAULTS[what](u, target)
    invariants.one_attempt(u)


def _rest(work: _Searching, node: _Node) -> None:
    key = _key(_Node(node.universe, 0, (), 0))
    if key in work.rested:
        return
    work.rested.add(key)
    work.found.rests += 1
    end = _Node(node.universe.copy(), 0, (), node.depth + 1, node, "no more faults")

    def rest() -> None:
        # What a status says is kept here: a wait that is not known to be told would be told again, every 4 s.
        end.universe.engine = replace(work.engine, stored=lambda status: status)
        heal(end.universe)
        settle(Run(end.universe))

    _try(end, rest)


def _try(node: _Node, happen: Any) -> None:
    try:
        happen()
    except Exception as error:
        error.add_note("\n".join(node.path()))
        raise


def _key(node: _Node) -> int:
    """What tells this state from others. Equal parts are one object, so that their identity says all."""
    u = node.universe
    keep = u.engine.keep
    return hash(
        (
            node.faults,
            node.jumps,
            u.now,
            u.spec.suspend,
            u.spec.restart_token,
            id(keep(u.status)),
            tuple((uid, id(keep(pod))) for uid, pod in sorted(u.pods.items())),
            tuple((uid, _box(keep, box)) for uid, box in sorted(u.boxes.items())),
            tuple((number, _leader(keep, u, leader)) for number, leader in sorted(u.leaders.items())),
            u.lost,
            id(keep(u.disk)),
            id(keep(u.ghost)),
            u.creation_fails,
            u.starts_fail,
            u.mounts_fail,
            u.relays,
        )
    )


def _box(keep: Any, box: Box) -> tuple[Any, ...]:
    return (
        id(keep(box.machine)),
        box.sessions,
        box.procs,
        tuple(id(keep(event)) for event in box.inbox),
        id(keep(box.history)),
        box.ran,
        box.ending,
        box.exited,
        box.dead,
        box.kill_at,
        box.step,
        box.poisoned,
        box.blind,
        box.unmounted,
        box.boots,
        box.known_boots,
        box.line,
        box.link,
        box.relay,
        tuple((id(keep(body)), sent) for body, sent in box.held),
        box.cut_off,
        box.broken,
        None if box.newest is None else (id(keep(box.newest[0])), box.newest[1]),
        id(keep(box.kept)),
        id(keep(box.kept_scan)),
        id(keep(box.told)),
        tuple((up.sent, id(keep(up.body))) for up in box.up),
        tuple(id(keep(message)) for message in box.down),
    )


def _leader(keep: Any, u: Universe, leader: Leader) -> tuple[Any, ...]:
    return (
        leader.since,
        leader.lost_links,
        id(keep(leader.status)),
        u.version - leader.version,
        leader.spec.restart_token,
        leader.spec.suspend,
        _begun(leader),
        id(keep(leader.pods)),
        leader.lost,
        id(keep(leader.heard)),
        id(keep(leader.scanned)),
        leader.scanned_at,
        leader.refused,
        id(keep(leader.plan)),
        # Until the round ends: the reports of these pods are kept then.
        leader.looked if leader.plan is not None or leader.todo else None,
        leader.todo,
        leader.wake_at,
        leader.dirty,
        leader.frozen,
    )


def _begun(leader: Leader) -> tuple[Any, ...] | None:
    """What the Runs of its attempt are made from, where that is fixed."""
    known = leader.begun
    if known is None or not known.is_same(leader.status):
        return None
    return known.job.metadata.generation, tuple(sorted(known.pods.items()))


KILLED, CRASHED, DELETED = "a worker is killed", "a supervisor crashes", "a pod is deleted"
STARTLESS = "pods can or can't be started"
FORGOTTEN, FINISHED = "a pod is deleted by force", "a worker finishes"
LED, USURPED, CUT = "the controller crashes", "another controller leads", "a connection ends"
DEAD = "a container can't be started again"
THAWED, AHEAD = "a controller freezes or thaws", "one rank trains"
UNLINKED, RELAYED_ANEW = "a relay loses its link", "a relay restarts"
SUSPENDED, ASKED, LOST = "the user suspends or resumes", "the user asks for a restart", "a node is lost"

QUICK = (
    Search("duo", (KILLED, CRASHED, LED, USURPED, CUT), fresh=True),
    Search("duo", (KILLED, FINISHED, CRASHED, FORGOTTEN, LED, USURPED, CUT, ASKED)),
    Search("duo", (KILLED, LED), count=2),
    Search("trio", (KILLED, CRASHED, LED)),
    Search("duo on one machine", (CRASHED, FORGOTTEN)),
    Search("duo", (KILLED, USURPED, THAWED), count=2),
    Search("duo", (DEAD, KILLED), count=2),
    Search("duo", (SUSPENDED, ASKED), fresh=True),
    Search("duo", (LOST, KILLED), jumps=(35_000,)),
    Search("pair", (KILLED, "train", LED)),
    Search("elastic pair", (KILLED, LED), jumps=(35_000,), before=(STARTLESS, DELETED)),
)
"""What is searched completely: the first LONG at night, the others with every test run."""
LONG = 8

WITH_RELAYS = (
    Search("duo", (KILLED, LED, USURPED, UNLINKED, RELAYED_ANEW), relays=1),
    Search("duo", (KILLED, LED, UNLINKED), relays=2),
)
"""Searched completely where replicas relay."""

MANY = (
    Search("duo", (SUSPENDED,)),
    Search("duo", (LOST, KILLED), jumps=(35_000,)),
    Search("duo", (FORGOTTEN, LED)),
)
"""Searched with so many members, as far as the status is concerned, that they aren't listed one by one."""

DEEP = (
    Search("duo", (KILLED, CRASHED, DELETED, FORGOTTEN, LED, USURPED, CUT, ASKED, SUSPENDED), fresh=True),
    Search("duo", (KILLED, CRASHED), count=2),
    Search("duo on one machine", (KILLED, CRASHED), count=2),
    Search("duo", (KILLED, DELETED), count=2, states=400_000),
    Search("duo", (SUSPENDED, FORGOTTEN), count=2, fresh=True, states=400_000),
    Search("duo", (SUSPENDED, LED), count=2, states=400_000),
    Search("pair", (KILLED, AHEAD), count=2),
    Search("registered", (KILLED, AHEAD), count=3, states=400_000),
    Search("duo", (FORGOTTEN, DELETED), jumps=(35_000,)),
    Search("trio", (KILLED, LED, USURPED), count=2),
    Search("duo", (KILLED, USURPED, UNLINKED), count=2, relays=1, states=400_000),
    Search("trio", (DELETED,), states=400_000),
    Search("pair", (KILLED, "train", CRASHED, LED), count=2),
    Search("elastic pair", (CRASHED, CUT, LOST, STARTLESS), jumps=(35_000,), before=(STARTLESS, DELETED)),
    Search("elastic pair", (STARTLESS, "train"), 2, (35_000, 65_000), before=(STARTLESS, DELETED), states=400_000),
)
"""Minutes, and some gigabytes of memory."""
