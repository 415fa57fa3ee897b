"""The sidecars of the simulated world: they pass reports up and directives down, as long as there is a connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangsidecar.supervisor import machine
from gangsidecar.wire import Directive, Ping, Report, Scan, Scanned
from tests.simulation import disks
from tests.simulation.values import Up

if TYPE_CHECKING:
    from tests.simulation.universe import Universe


def report(u: Universe, uid: str) -> None:
    """The supervisor tells its sidecar, which tells the controller."""
    box = u.boxes[uid]
    assert box.machine is not None
    said = u.engine.keep(machine.report(box.machine, u.now, 0))
    u.boxes[uid] = replace(box, newest=(said, u.now))
    send_up(u, uid, said)


def send_up(u: Universe, uid: str, body: Report | Scanned) -> None:
    """One message towards the controller, if there is a connection."""
    box = u.boxes[uid]
    if box.link is None:
        return
    if u.engine.searching:  # Only the newest report matters: an older one could only have come before it.
        kept = tuple(one for one in box.up if type(one.body) is not type(body))
        u.boxes[uid] = replace(box, up=(*kept, Up(0, u.now, body)))
    else:
        u.boxes[uid] = replace(box, order=box.order + 1, up=(*box.up, Up(box.order + 1, u.now, body)))


def answer_scan(u: Universe, uid: str, scan: Scan) -> None:
    """The supervisor lists what it sees now."""
    found = disks.found(u, u.boxes[uid])
    u.boxes[uid] = replace(u.boxes[uid], kept_scan=None)
    send_up(u, uid, u.engine.keep(Scanned(scan.attempt, uid, found)))


def hear(u: Universe, uid: str, message: object) -> None:
    """A message of the controller reaches the sidecar, which keeps it and hands it on."""
    box = u.boxes[uid]
    match message:
        case Directive():
            u.boxes[uid] = replace(box, kept=message)
            u.feed(uid, message)
        case Ping():
            u.feed(uid, message)
        case Scan():
            u.boxes[uid] = replace(box, kept_scan=message)
            if box.machine is not None:
                answer_scan(u, uid, message)


def cut(u: Universe, uid: str) -> None:
    """The connection ends, and what was on its way is lost."""
    box = u.boxes[uid]
    if box.link is None:
        return
    leader = u.leaders.get(box.link)
    u.boxes[uid] = replace(box, link=None, up=(), down=(), kept=None, kept_scan=None, told=None, broken=False)
    if leader is not None and not leader.frozen:
        heard = tuple(replace(one, connected=False) if one.report.pod == uid else one for one in leader.heard)
        u.leaders[leader.number] = replace(leader, heard=heard, dirty=True)
