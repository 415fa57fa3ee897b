"""The sidecars of the simulated world: they pass reports up and directives down, as long as there is a connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gangsidecar.supervisor import machine
from gangsidecar.wire import Check, Directive, Ping, Report, Scan, Scanned
from tests.simulation import disks, power
from tests.simulation.values import Box, Up

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

SILENT_MS: Final = 20_000
"""A member of which nothing arrives for so long does not count as connected (hub.SILENT_SECONDS)."""


def report(u: Universe, uid: str) -> None:
    """The supervisor tells its sidecar, which tells the controller."""
    box = u.boxes[uid]
    assert box.machine is not None
    seq = 0 if u.engine.searching else box.seq + 1
    said = u.engine.keep(machine.report(box.machine, u.now, seq))
    u.boxes[uid] = box._replace(newest=(said, u.now), seq=seq)
    send_up(u, uid, said)


def send_up(u: Universe, uid: str, body: Report | Scanned, sent: int | None = None) -> None:
    """One message towards the controller, if there is a connection. ``sent``: when the supervisor said it."""
    box, at = u.boxes[uid], u.now if sent is None else sent
    if box.relay is not None and not box.mute:
        others = tuple(one for one in box.held if type(one[0]) is not type(body))
        u.boxes[uid] = box = box._replace(held=(*others, (body, at)))
    if box.link is None or box.mute:
        return
    if u.engine.searching:  # Only the newest report matters: an older one could only have come before it.
        kept = tuple(one for one in box.up if type(one.body) is not type(body))
        u.boxes[uid] = box._replace(up=(*kept, Up(0, at, body)))
    else:
        u.boxes[uid] = box._replace(order=box.order + 1, up=(*box.up, Up(box.order + 1, at, body)))


def answer_scan(u: Universe, uid: str, scan: Scan) -> None:
    """The supervisor lists what it sees now."""
    found = disks.found(u, u.boxes[uid])
    u.boxes[uid] = u.boxes[uid]._replace(kept_scan=None)
    send_up(u, uid, u.engine.keep(Scanned(scan.attempt, uid, found)))


def hear(u: Universe, uid: str, message: object) -> None:
    """A message of the controller reaches the sidecar, which keeps it and hands it on."""
    box = u.boxes[uid]
    match message:
        case Directive():
            u.boxes[uid] = box._replace(kept=message)
            u.feed(uid, message)
        case Ping():
            power.pinged(u, box)
            u.feed(uid, message)
        case Check():
            u.feed(uid, message)
        case Scan():
            u.boxes[uid] = box._replace(kept_scan=message)
            if box.machine is not None:
                answer_scan(u, uid, message)


def tell(u: Universe, uid: str, message: Directive | Ping | Scan | Check) -> None:
    """A controller sends a message to a sidecar that is connected."""
    box = u.boxes[uid]
    if not box.deaf:
        u.boxes[uid] = box._replace(down=(*box.down, u.engine.keep(message)))


def reach(u: Universe, uid: str) -> None:
    """The network carries both ways again. A supervisor repeats its report every few seconds: the next one is heard."""
    box = u.boxes[uid]
    u.boxes[uid] = box._replace(cut_off=False, mute=False, deaf=False)
    if box.mute and box.is_connected and box.machine is not None:
        report(u, uid)


def is_silent(u: Universe, box: Box) -> bool:
    """Whether the controller has heard nothing on a connection for so long that it counts no longer."""
    return box.is_heard and box.mute and u.now >= box.heard_at + SILENT_MS


def fall_silent(u: Universe, uid: str) -> None:
    """The connection stays open, as where a supervisor is frozen and its sidecar is not."""
    box = u.boxes[uid]
    assert box.link is not None
    has_reported = any(one.connected and one.report.pod == uid for one in u.leaders[box.link].heard)
    u.boxes[uid] = box._replace(silent=has_reported, heard_at=box.heard_at if has_reported else u.now)
    lose_sight(u, uid, box.link)


def cut(u: Universe, uid: str) -> None:
    """The connection ends, and what was on its way is lost."""
    box = u.boxes[uid]
    if not box.is_connected:
        return
    cleared = box._replace(link=None, relay=None, held=(), up=(), down=(), kept=None, kept_scan=None, told=None)
    u.boxes[uid] = cleared._replace(broken=False, silent=False)
    lose_sight(u, uid, box.link)


def lose_sight(u: Universe, uid: str, number: int | None) -> None:
    """A controller notices that this member is connected no longer."""
    leader = None if number is None else u.leaders.get(number)
    if leader is not None and not leader.frozen:
        heard = tuple(replace(one, connected=False) if one.report.pod == uid else one for one in leader.heard)
        u.leaders[leader.number] = leader._replace(heard=heard, dirty=True)
