# ruff: noqa: SLF001 - it moves by hand what sockets would move
"""Relays between supervisors and leaders, with everything that can happen on the way. It is a fake and says so.

Real are both ends of a link, the hub, and what a relay holds. Fake are the supervisors, the sockets, the Lease and the
time: batches and messages lag, links split and come again, relays freeze, die and start anew, leaders are deposed and
go on without noticing. What must hold is asserted where it could break:

    R1  a sidecar hears leaders in the order of their terms
    R2  a ping answers a report that its leader has heard in its own term; no relay makes one
    R3  what a leader believes is what the supervisor said, no younger than it is
    R4  a leader goes back to no older report, whichever way it came
    R5  what the leader has not heard since a relay was lost counts from then on, and not before
    R6  without faults, the leader hears every supervisor's newest report, and every sidecar is heard and told
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import aiohttp

from gangctl.cluster.kube.election import LeaderAt
from gangctl.cluster.port import MemberIdentity
from gangctl.controller import connection, hub, links, relay
from gangctl.controller.connection import CloseFrame, Connection
from gangctl.controller.intake import Shares
from gangctl.controller.relaying import decode_batch
from gangctl.controller.reports import substance
from gangctl.core.lifecycle.plan import AskScan
from gangsidecar import wire
from tests.controller.fake_sidecars import job
from tests.simulation.violations import require

GANG = "uid-g"
MEMBERS, RELAYS = 4, 3
HALF = 0.5
SILENT = 5.0


@dataclass
class Outlet:
    """The sidecar's socket at its relay: what waits to be sent, and which leader said it (0: the relay itself)."""

    world: World
    member: Member
    waiting: dict[str, tuple[str, int]] = field(default_factory=dict)
    closing: bool = False

    def put(self, kind: str, text: str) -> None:
        self.waiting[kind] = text, self.world.speaks

    def withdraw(self) -> None:
        self.waiting.clear()

    def close_soon(self, _frame: CloseFrame) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


@dataclass
class Member:
    """A supervisor and its sidecar."""

    identity: MemberIdentity
    session: int = 1
    seq: int = 0
    attempt: int = 1
    changed_at: float = 0.0
    said: dict[tuple[str, int], tuple[wire.Report, float]] = field(default_factory=dict)
    """Session and number of each report -> the report, and when it was made."""
    newest: wire.Report | None = None
    up: deque[str] = field(default_factory=deque)
    down: deque[tuple[str, int]] = field(default_factory=deque)
    at: Relay | None = None
    connection: Connection | None = None
    heard_term: int = 0
    slow: bool = False
    """Its relay can't send much."""
    answered: bool = False
    """Whether a leader has answered a report since the last fault."""


@dataclass
class Relay:
    """One relay process."""

    number: int
    program: relay.Relay
    leader: Leader | None = None
    """The one that it is linked to, or was: it may not have noticed yet."""
    link: Any = None
    frozen: bool = False


@dataclass
class Leader:
    """One controller process that leads, or did."""

    number: int
    hub: hub.Hub
    work: deque[Callable[[], None]] = field(default_factory=deque)
    leads: bool = True
    heard: dict[str, set[int]] = field(default_factory=dict)
    """Pod -> the clocks of all of its reports that were heard."""
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)

    def put(self, _namespace: str, work: Callable[[], None]) -> None:
        """Stand in for the turns of the loop."""
        self.work.append(work)

    @property
    def at(self) -> LeaderAt:
        return LeaderAt(f"ws://{self.number}", str(self.number))


class World:
    """All of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.speaks = 0
        self.power = Counter[str]()
        """How often each mechanism was reached."""
        self.numbers = count(1)
        self.orders = count(1)
        self.leaders: list[Leader] = []
        self.members = [Member(MemberIdentity(GANG, f"worker-{at}", 0, f"pod-{at}")) for at in range(MEMBERS)]
        for one in self.members:
            one.slow = self.random.random() < HALF
        self.lag = self.random.choice((1, 2, 6))
        self.relays = [self._relay(at) for at in range(RELAYS)]
        self.flying: list[tuple[Relay, Leader, Any, bool, deque[str]]] = []
        """Link by link and way by way: the relay, its leader, the link, whether it goes up, and the batches."""
        self.lead()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the programs see this world's time."""
        time = SimpleNamespace(monotonic=lambda: self.now)
        places = [patch.object(module, "time", time) for module in (connection, hub, relay)]
        places.append(patch.object(hub, "clock", SimpleNamespace(now=lambda: self.now)))
        for one in places:
            one.start()
        try:
            with patch.object(Shares, "pause", lambda *_: None):  # They go by the real time.
                yield
        finally:
            for one in places:
                one.stop()

    def _relay(self, number: int) -> Relay:
        program = relay.Relay(self._hub(lambda: ""), _nobody, lambda: None, lambda: None, _DIALING, 25.0)
        return Relay(number, program)

    def _hub(self, leads: Callable[[], str | None]) -> hub.Hub:
        def hold(stored: Any, said: wire.Report) -> wire.Directive | None:
            return wire.Directive(said.gang, said.pod, stored.status.attempt, wire.Verb.HOLD, "")

        return hub.Hub(_nobody, lambda stored, _before: partial(hold, stored), _ignore, _ignore, leads)

    # What happens.

    def lead(self) -> None:
        """Another controller leads. The last one may go on for a while: it may have sent, and not noticed."""
        for one in self.leaders:
            one.leads = False
        leader = Leader(next(self.numbers), None)  # type: ignore[arg-type]
        leader.hub = self._hub(lambda: None if leader.leads else "")
        leader.hub.publish(job(attempt=leader.number))
        self.leaders.append(leader)

    def say(self, member: Member, *, news: bool) -> None:
        """Its supervisor reports."""
        member.seq += 1
        if news:
            member.attempt, member.changed_at = member.attempt + 1, self.now
        report = wire.Report(
            *(GANG, member.identity.member, 0, member.identity.pod, f"s{member.session}", member.seq, member.attempt),
            wire.Phase.READY,
            sent_ms=_ms(self.now),
            phase_age_ms=_ms(self.now) - _ms(member.changed_at),
            progress=wire.Progress(member.attempt, member.seq // 3, 0) if member.seq > 1 else None,
        )
        member.newest = report
        member.said[report.session, report.seq] = report, self.now
        if member.connection is not None:
            member.up.append(wire.encode(report))

    def begin_session(self, member: Member) -> None:
        """Its supervisor starts anew."""
        member.session, member.seq, member.changed_at = member.session + 1, 0, self.now
        self.say(member, news=False)

    def dial(self, member: Member, to: Relay) -> None:
        """Its sidecar connects to a relay."""
        if to.frozen or member.connection is not None:
            return
        outlet = Outlet(self, member)
        member.at, member.connection = to, Connection(member.identity, outlet, next(self.orders), wire.REVISION)
        to.program.opened(member.connection)
        if member.newest is not None:
            late = self.now - member.said[member.newest.session, member.newest.seq][1]
            member.up.append(wire.encode(wire.aged(member.newest, _ms(late))))

    def hang_up(self, member: Member, *, noticed: bool = True) -> None:
        """The connection ends; ``noticed``: also for the relay."""
        if member.connection is not None and member.at is not None:
            if noticed and member.connection in member.at.program._session_of:
                member.at.program.ended(member.connection)
            member.at, member.connection = None, None
            member.up.clear()
            member.down.clear()

    def climb(self, member: Member) -> None:
        """The relay takes the next message of a sidecar."""
        if member.up and member.at is not None and member.connection is not None and not member.at.frozen:
            frame = aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, member.up.popleft(), None)
            require(member.at.program.take(member.connection, frame) is None, 19, "a relay refuses a report")

    def hear(self, member: Member) -> None:
        """A sidecar takes the next message of its relay."""
        if not member.down:
            return
        text, speaks = member.down.popleft()
        message = wire.decode(text) if text else None
        if message is None:
            return
        require(speaks > 0, 19, f"R2: a relay makes a {type(message).__name__} itself")
        require(speaks >= member.heard_term, 19, f"R1: leader {speaks} is heard after leader {member.heard_term}")
        member.heard_term = speaks
        if isinstance(message, wire.Ping) and message.heard_ms:
            leader = self.leaders[speaks - 1]
            known = leader.heard.get(member.identity.pod, set())
            require(message.heard_ms in known, 19, "R2: a ping answers a report that its leader has not heard")
            member.answered = True
            self.power["a ping answers a report"] += 1

    def flush(self, member: Member) -> None:
        """The relay sends what waits for a sidecar."""
        if member.connection is None or member.at is None or member.at.frozen:
            return
        outlet = member.connection.outlet
        assert isinstance(outlet, Outlet)
        if outlet.closing:
            self.hang_up(member)
        elif outlet.waiting:
            member.down.append(outlet.waiting.pop(next(iter(outlet.waiting))))

    def link(self, one: Relay) -> None:
        """A relay links to the leader that the Lease names."""
        leader = self.leaders[-1]
        if one.frozen or not leader.leads or (one.link is not None and one.leader is leader):
            return
        self.unlink(one)
        for other in self.flying:
            if other[0] is one and other[1] is leader and not other[3]:
                other[2].end()  # The leader knows the relay's older link.
        with patch.object(links, "SLICE", 10_000):
            link = links._Link(leader.hub, leader, _Socket(), None, leader.at.term)  # type: ignore[arg-type]
        one.leader, one.link = leader, link
        self.flying += [(one, leader, link, True, deque()), (one, leader, link, False, deque())]
        self.lower(one)

    def unlink(self, one: Relay) -> None:
        """A relay notices that its link has ended. What its leader sent before may still arrive at the process."""
        if one.link is not None:
            one.program.unlink()
            one.link = None

    def drop(self, one: Relay) -> None:
        """The leader notices that the link has ended, or is silent."""
        for leader in self.leaders:
            for relay_, of, link, up, batches in self.flying:
                if relay_ is one and of is leader and up and leader.leads:
                    link.end()
                    batches.clear()
        self.flying = [other for other in self.flying if other[0] is not one or not other[3]]

    def lift(self, one: Relay) -> None:
        """A relay sends a batch."""
        if one.link is not None and one.leader is not None and one.program._desk.term and not one.frozen:
            text, _ = one.program.batch(one.leader.at)
            self._way(one.link, up=True).append(text)

    def lower(self, one: Relay) -> None:
        """Its leader sends a batch."""
        if one.link is not None and one.leader is not None and one.leader.leads:
            batches = self._way(one.link, up=False)
            batches.append(one.link.batch())
            while one.link._waiting:
                batches.append(one.link.batch())

    def _way(self, link: Any, *, up: bool) -> deque[str]:
        return next((way[4] for way in self.flying if way[2] is link and way[3] is up), deque())

    def arrive(self) -> None:
        """A batch arrives, of any link and in its order."""
        ways = [way for way in self.flying if way[4] and not (way[0].frozen and not way[3])]
        if not ways:
            return
        one, leader, link, up, batches = self.random.choice(ways)
        text = batches.popleft()
        if up:
            for entry in decode_batch(text)[1]:
                self.power[f"a relay sends {type(entry).__name__}"] += 1
                before = {each.identity.pod: each.order for each in leader.hub.connections.all()}
                link._take(entry)
                for each in leader.hub.connections.all():
                    older = before.get(each.identity.pod, 0) > each.order
                    require(not older, 19, f"R4: an older connection of {each.identity.pod} replaces a newer one")
            return
        self.speaks = leader.number
        current = one.leader if one.link is not None and one.leader is not None else leader
        why = one.program.hear(current.at, text) if one.link is not None else "it has no link"
        self.speaks = 0
        self.power["a batch comes late" if why else "a batch comes in its term"] += 1
        require(why is None or one.link is not link, 19, f"a relay leaves its leader: {why}")

    def ask(self, leader: Leader, member: Member) -> None:
        """The leader asks a pod for a scan."""
        leader.hub.ask(GANG, AskScan(member.identity.pod, wire.Scan(leader.number, ())))

    def turn(self, leader: Leader) -> None:
        """The leader takes what waits of one session."""
        if not leader.work:
            return
        leader.work.popleft()()
        for known in leader.hub.reports.heard(GANG):
            self._believed(leader, known)

    def _believed(self, leader: Leader, known: Any) -> None:
        report, pod = known.report, known.report.pod
        member = next(one for one in self.members if one.identity.pod == pod)
        said, at = member.said[report.session, report.seq]
        require(substance(report) == substance(said), 19, f"R3: {pod} said something else")
        late = report.phase_age_ms - said.phase_age_ms
        require(0 <= late <= _ms(self.now - at) + 2, 19, f"R3: the age of {pod} is off by {late} ms")
        steps = [None if one.progress is None else one.progress.step for one in (report, said)]
        require(steps[0] == steps[1], 19, f"R3: {pod} has made step {steps[1]}, not {steps[0]}")
        number = int(report.session[1:]), report.seq
        before = leader.newest.get(pod, (0, 0))
        require(number >= before, 19, f"R4: {pod} goes back from {before} to {number}")
        leader.newest[pod] = number
        leader.heard.setdefault(pod, set()).add(report.sent_ms)

    def lose(self, one: Relay) -> None:
        """The leader takes a relay for lost: R5."""
        leader = self.leaders[-1]
        linked = one.leader is leader and any(way[0] is one and way[3] and way[1] is leader for way in self.flying)
        sessions: tuple[Connection, ...] = tuple(one.link._sessions.values()) if linked and one.link else ()
        here = [each for each in sessions if leader.hub.connections.get(each.identity.pod) is each]
        reported = [each for each in here if each.has_reported]
        self.drop(one)
        if here:
            self.power["a relay with sessions is lost"] += 1
            since = leader.hub.relayed_since(GANG)
            require(since == self.now, 19, "R5: the silence of a relay counts as that of its members")
        for each in reported:
            heard = next(known for known in leader.hub.reports.heard(GANG) if known.report.pod == each.identity.pod)
            require(not heard.connected, 19, "R5: a session of a relay that is lost counts as connected")

    def die(self, one: Relay) -> None:
        """A relay's process is gone, and another one starts."""
        for member in self.members:
            if member.at is one:
                self.hang_up(member, noticed=False)
        self.relays[one.number] = self._relay(one.number)
        one.frozen, one.link = True, None


class _Socket:
    """It is never used: batches are made by hand."""


async def _nobody(_token: str) -> Any:
    return None


def _ignore(_gang: str) -> None:
    """Do nothing."""


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


_DIALING = relay.Dialing("relay", "name", lambda: "", lambda: None)  # type: ignore[arg-type, return-value]


def live(seed: int, steps: int) -> World:
    """One life: so many moves in a random order, then none that goes wrong until all is well."""
    world = World(seed)
    with world.running():
        for _ in range(steps):
            _move(world)
        _heal(world)
        for _ in range(400):
            _move(world, faults=False)
        _settled(world)
    return world


def _move(world: World, *, faults: bool = True) -> None:
    random = world.random
    member, one, leader = random.choice(world.members), random.choice(world.relays), random.choice(world.leaders[-2:])
    flush = partial(world.flush, member)
    if faults and member.slow and random.random() < HALF:
        flush = partial(_pass, world, 0.0)
    arrive = world.arrive if not faults or random.randrange(world.lag) == 0 else partial(_pass, world, 0.0)
    often: list[Callable[[], None]] = [partial(world.climb, member), partial(world.hear, member), flush]
    often += [partial(world.lift, one), partial(world.lower, one), arrive]
    usual: list[Callable[[], None]] = [
        *often * 3,
        partial(world.ask, leader, member),
        *[partial(world.turn, leader)] * 6,
        partial(world.say, member, news=random.random() < 0.3),
        partial(world.dial, member, one),
        partial(world.link, one),
        partial(_pass, world, random.choice((0.001, 0.1, 1.0))),
    ]
    wrong: list[Callable[[], None]] = [
        world.lead,
        partial(world.hang_up, member),
        partial(world.hang_up, member, noticed=False),
        partial(world.begin_session, member),
        partial(world.unlink, one),
        partial(world.lose, one),
        partial(world.die, one),
        partial(_freeze, one),
        partial(_pass, world, 30.0),
    ]
    random.choice(wrong if faults and random.random() < 0.05 else usual)()


def _pass(world: World, seconds: float) -> None:
    world.now += seconds


def _freeze(one: Relay) -> None:
    one.frozen = not one.frozen


def _heal(world: World) -> None:
    """All relays run, what is stale is noticed, and every sidecar has its time to connect."""
    for one in world.relays:
        one.frozen = False
        world.lose(one)
        world.unlink(one)
    world.flying.clear()
    for member in world.members:
        world.hang_up(member)
        gone = [
            (one, each) for one in world.relays for each in one.program._session_of if each.identity == member.identity
        ]
        for one, each in gone:
            one.program.ended(each)
        member.answered = False
        if member.newest is None or world.random.random() < 0.5:
            world.begin_session(member)


def _settled(world: World) -> None:
    for member in world.members:  # What is on its way arrives.
        world.say(member, news=False)
    _all_are_heard(world)
    world.lead()
    for member in world.members:
        member.answered = False
    _all_are_heard(world)
    gone, leader = world.members[0], world.leaders[-1]
    world.hang_up(gone)
    _flow(world, gone)
    left = leader.hub.connections.get(gone.identity.pod)
    require(left is None, 19, f"R6: {gone.identity.pod} is gone, and counts as connected")


def _all_are_heard(world: World) -> None:
    _flow(world)
    leader = world.leaders[-1]
    for member in world.members:
        known = next((one for one in leader.hub.reports.heard(GANG) if one.report.pod == member.identity.pod), None)
        assert member.newest is not None
        newest = member.newest.session, member.newest.seq
        is_heard = known is not None and known.connected and (known.report.session, known.report.seq) == newest
        require(is_heard, 19, f"R6: {member.identity.pod} isn't heard")
        require(member.answered, 19, f"R6: {member.identity.pod} isn't answered")


def _flow(world: World, gone: Member | None = None) -> None:
    """Everything goes its way for long enough; ``gone`` stays away."""
    leader = world.leaders[-1]
    for _ in range(60):
        for member in world.members:
            if member is not gone:
                world.dial(member, world.relays[0])
            world.climb(member)
        for one in world.relays:
            world.link(one)
            world.lift(one)
            world.lower(one)
        for _ in range(12):
            world.arrive()
        while leader.work:
            world.turn(leader)
        for member in world.members:
            world.flush(member)
            world.hear(member)
