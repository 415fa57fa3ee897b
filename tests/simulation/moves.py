"""What happens in the world when nothing goes wrong: messages arrive, controllers think, kubelets and workers work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from gangsidecar.supervisor import machine
from gangsidecar.wire import Ping
from tests.simulation import (
    checks,
    controller,
    disks,
    hub,
    invariants,
    kubelets,
    parking,
    power,
    queues,
    relayed,
    sidecars,
)
from tests.simulation.universe import SIGKILL, SIGTERM, Universe
from tests.simulation.values import CHILD, Box, Leader, Proc

MOVES_AT_ONCE = 300
PING_MS = 200_000
"""Where nothing of less is measured by pings, a few of them show the same as many."""


class Kind(Enum):
    """What kind of thing happens next."""

    INNER = auto()
    UP = auto()
    DOWN = auto()
    CONNECT = auto()
    RECONNECT = auto()
    START = auto()
    SESSION = auto()
    SIGTERM = auto()
    EXIT = auto()
    ENDED = auto()
    REMOVE = auto()
    SYNC = auto()
    THINK = auto()
    WRITE = auto()
    ACT = auto()
    OBEY = auto()
    PARK = auto()
    CHECK = auto()
    LEAD = auto()
    LINK = auto()
    ADMIT = auto()


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that can happen now: to whom (a pod's UID or a controller's number), and which of several."""

    kind: Kind
    who: str | int = ""
    which: int = 0


def moves(u: Universe) -> Iterator[Move]:
    """Everything that can happen without time passing, in the order in which it usually does."""
    if not u.leaderless and not any(not leader.frozen for leader in u.leaders.values()):
        yield Move(Kind.LEAD)
    for number in relayed.to_link(u):
        yield Move(Kind.LINK, which=number)
    if queues.may_admit(u):
        yield Move(Kind.ADMIT)
    for uid, box in u.boxes.items():
        yield from _of_box(u, uid, box)
    for number, leader in u.leaders.items():
        if not leader.frozen:
            yield from _of_leader(u, number, leader)
    for uid, pod in u.pods.items():
        inside = u.boxes.get(uid)
        if inside is None:
            if pod.deleting:
                yield Move(Kind.REMOVE, uid)
            elif not u.starts_fail:
                yield Move(Kind.START, uid)
        elif inside.node not in u.lost:
            if inside.exited and not pod.terminated:
                yield Move(Kind.ENDED, uid)
            if pod.deleting and pod.terminated:
                yield Move(Kind.REMOVE, uid)


def _of_box(u: Universe, uid: str, box: Box) -> Iterator[Move]:
    if box.inbox and box.machine is not None:
        yield Move(Kind.INNER, uid)
    for at in range(len(box.up)):
        yield Move(Kind.UP, uid, at)
    for at in range(len(box.down)):
        yield Move(Kind.DOWN, uid, at)
    if box.is_connected and (box.broken or (box.relay is not None and u.relays[box.relay].frozen)):
        yield Move(Kind.RECONNECT, uid)
    yield from _connects(u, uid, box)
    if any(proc.termed and not proc.stubborn and not proc.stuck for proc in box.procs):
        yield Move(Kind.OBEY, uid)
    if any(parking.parks(proc) for proc in box.procs):
        yield Move(Kind.PARK, uid)
    if checks.ends(box):
        yield Move(Kind.CHECK, uid)
    awake = box.node not in u.lost
    stuck, left = any(proc.stuck for proc in box.procs), any(not proc.stuck for proc in box.procs)
    if box.machine is None and not (box.exited or box.dead) and awake and (not stuck or left):
        yield Move(Kind.SESSION, uid)
    if box.ending and (not box.up or box.link is None):
        yield Move(Kind.EXIT, uid)
    pod = u.pods.get(uid)
    if (pod is None or pod.deleting) and box.kill_at is None and not box.exited and awake:
        yield Move(Kind.SIGTERM, uid)


def _connects(u: Universe, uid: str, box: Box) -> Iterator[Move]:
    """A token is good as long as its pod is there, as far as the replica sees that is asked."""
    hears = box.is_reached and u.listens
    if box.is_connected or not hears or box.exited or box.dead or box.newest is None:
        return
    if u.relays and uid in u.pods:
        yield from (Move(Kind.CONNECT, uid, at) for at, one in enumerate(u.relays) if not one.frozen)
    elif not u.relays and u.host is not None and any(pod.uid == uid for pod in u.host.pods):
        yield Move(Kind.CONNECT, uid)


def _of_leader(u: Universe, number: int, leader: Leader) -> Iterator[Move]:
    if leader.plan is not None:
        yield Move(Kind.WRITE, number)
    if leader.todo:
        yield Move(Kind.ACT, number)
    news = controller.stale(u, leader)
    if news and u.engine.searching:
        yield Move(Kind.SYNC, number)
    elif news:
        yield from (Move(Kind.SYNC, number, watch.value) for watch in news)
    if controller.wants_to_think(u, leader):
        yield Move(Kind.THINK, number)


def perform(u: Universe, move: Move) -> None:
    """Let it happen."""
    if isinstance(move.who, int):
        _lead(u, move, move.who)
    elif move.kind is Kind.LEAD:
        controller.begin(u)
    elif move.kind is Kind.LINK:
        relayed.link(u, move.which)
    elif move.kind is Kind.ADMIT:
        queues.admit(u)
    else:
        _in_pod(u, move, move.who)
    invariants.one_attempt(u)
    invariants.stops_in_time(u)


def _lead(u: Universe, move: Move, number: int) -> None:
    match move.kind:
        case Kind.SYNC:
            controller.sync(u, number, (controller.Watch(move.which),) if move.which else tuple(controller.Watch))
        case Kind.THINK:
            controller.think(u, number)
        case Kind.WRITE:
            controller.write(u, number, controller.Write.DONE)
        case _:
            controller.act(u, number)


def _in_pod(u: Universe, move: Move, uid: str) -> None:
    match move.kind:
        case Kind.INNER:
            _inner(u, uid)
        case Kind.UP:
            box = u.boxes[uid]
            up = box.up[move.which]
            u.boxes[uid] = box._replace(up=box.up[: move.which] + box.up[move.which + 1 :])
            hub.receive(u, uid, up)
        case Kind.DOWN:
            box = u.boxes[uid]
            message = box.down[move.which]
            u.boxes[uid] = box._replace(down=box.down[: move.which] + box.down[move.which + 1 :])
            sidecars.hear(u, uid, message)
        case Kind.CONNECT:
            _connect(u, uid, move.which)
        case Kind.RECONNECT:
            sidecars.cut(u, uid)
        case Kind.START:
            kubelets.start_pod(u, uid)
        case Kind.SESSION if uid not in u.pods or u.pods[uid].deleting:
            kubelets.end_containers(u, uid)
        case Kind.SESSION:
            kubelets.restart_container(u, uid)
        case Kind.SIGTERM:
            kubelets.ask_to_end(u, uid)
        case Kind.EXIT:
            kubelets.end_containers(u, uid)
        case Kind.ENDED:
            kubelets.show_end(u, uid)
        case Kind.REMOVE:
            u.remove_pod(uid)
        case Kind.CHECK:
            checks.end(u, uid)
        case Kind.PARK:
            parking.park(u, uid, next(one for one in u.boxes[uid].procs if parking.parks(one)))
        case _:
            box = u.boxes[uid]
            proc = next(one for one in box.procs if one.termed and not one.stubborn and not one.stuck)
            # Some workers save and exit with 0 when they are told to stop: that is no success.
            code, signum = (0, None) if proc.attempt % 2 else (None, SIGTERM)
            u.end_process(uid, proc, code, signum)


def _inner(u: Universe, uid: str) -> None:
    """The supervisor has looked for the restore point, again and again for a while."""
    box = u.boxes[uid]
    look = box.inbox[0]
    u.boxes[uid] = box._replace(inbox=box.inbox[1:])
    there = disks.sees(u, box, look.restore.tier, look.restore.step)
    missing = machine.RestoreMissing(look.attempt, in_folder=not box.unmounted)
    u.feed(uid, machine.RestoreSeen(look.attempt) if there else missing)


def _connect(u: Universe, uid: str, relay: int) -> None:
    """The sidecar sends the newest report that it has, even if the supervisor that sent it is gone."""
    box = u.boxes[uid]
    assert box.newest is not None
    if invariants.is_lost(u, uid):
        u.ghost = u.ghost._replace(lost=u.ghost.lost | {uid})
    u.boxes[uid] = box._replace(link=u.newest_leader, up=(), down=(), told=None, broken=False, heard_at=u.now)
    if u.relays:
        u.boxes[uid] = u.boxes[uid]._replace(link=u.relays[relay].link, relay=relay)
    if box.machine is not None:
        sidecars.report(u, uid)  # Supervisors repeat their reports every few seconds.
        return
    sidecars.send_up(u, uid, *box.newest)


# Time


def next_time(u: Universe) -> int | None:
    """When something is due next, if nothing else happens: in a millisecond, if it is due now."""
    times = [deadline for box in u.boxes.values() if (deadline := _deadline(u, box)) is not None]
    times += [leader.wake_at for leader in u.leaders.values() if leader.wake_at is not None and not leader.frozen]
    return max(min(times), u.now + 1) if times else None


def advance(u: Universe, until: int) -> None:
    """Time passes; what is due in a supervisor or a kubelet is done on time, and controllers ping."""
    while u.now < until:
        dues = [due for box in u.boxes.values() if (due := _deadline(u, box)) is not None]
        ends = controller.lease_ends(u)
        if ends is not None and ends > u.now:
            dues.append(ends)
        u.now = max(u.now, min(until, u.now + _ping_ms(u), *dues))
        controller.lose_leases(u)
        for uid in list(u.boxes):
            box = u.boxes[uid]
            if box.kill_at is not None and box.kill_at <= u.now and not box.exited and box.node not in u.lost:
                kubelets.end_containers(u, uid)
                continue
            if sidecars.is_silent(u, box):
                sidecars.fall_silent(u, uid)
            if box.machine is not None and _hears_pings(u, box):
                hub.beat(u, uid)
                power.pinged(u, u.boxes[uid])
                u.feed(uid, Ping(hub.heard_ms(u, uid)))
            state = u.boxes[uid].machine
            due = None if state is None else machine.deadline(state)
            if due is not None and due <= u.now:
                u.feed(uid, machine.Tick())
        invariants.one_attempt(u)


def live(u: Universe, until: int) -> None:
    """Time passes, and everything that can happens meanwhile: a controller that doesn't lead any more notices it."""
    for number in [number for number in u.leaders if number != u.newest_leader]:
        controller.end(u, number)
    while u.now < until:
        for _ in range(MOVES_AT_ONCE):
            move = next(moves(u), None)
            if move is None:
                break
            perform(u, move)
        due = next_time(u)
        advance(u, until if due is None else min(until, due))


def _ping_ms(u: Universe) -> int:
    """Pings come often enough for every supervisor that has a lease, and for those that end without a controller."""
    machines = [box.machine for box in u.boxes.values() if box.machine is not None]
    leases = [one.directive.isolation_ms for one in machines if one.directive is not None]
    waits = [*(lease for lease in leases if lease is not None), *(one.orphan_ms for one in machines)]
    return min([PING_MS, *(wait * 3 // 4 for wait in waits)])


def _hears_pings(u: Universe, box: Box) -> bool:
    return box.link is not None and not (box.broken or box.deaf) and not u.leaders[box.link].frozen


def _deadline(u: Universe, box: Box) -> int | None:
    times = [] if box.kill_at is None or box.exited or box.node in u.lost else [box.kill_at]
    due = None if box.machine is None else machine.deadline(box.machine)
    if due is not None:
        times.append(due)
    if box.mute and box.is_heard:
        times.append(box.heard_at + sidecars.SILENT_MS)
    return min(times, default=None)


def main_processes(box: Box) -> list[Proc]:
    """The processes that the supervisor has started itself."""
    return [proc for proc in box.procs if proc.local_rank != CHILD]


def kill_process(u: Universe, uid: str, proc: Proc) -> None:
    """It was stuck in a driver and under SIGKILL; now it goes."""
    u.end_process(uid, proc, None, SIGKILL)
