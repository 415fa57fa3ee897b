"""Replicas that relay, in the life of a gang: sidecars are connected to any of them, and each is linked to a leader.

A relay keeps its sidecars' connections while links come and go. Of each sidecar it holds the newest message of each
kind: a new leader gets the report, and what else no leader has taken, at the age that it has by then. What a leader
said before its link ended may still reach a sidecar. ``relays.py`` checks that real relays do no worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tests.simulation import invariants, sidecars
from tests.simulation.values import Fault, Relay, Up, seconds

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

RELAYS: Final = 3
REPLICAS_RELAY: Final = "the replicas relay, or no longer"


def to_link(u: Universe) -> Iterator[int]:
    """The relays that can link to the newest leader, and haven't."""
    host = u.host
    for number, one in enumerate(u.relays):
        if host is not None and not one.frozen and one.link != host.number:
            yield number


def link(u: Universe, number: int) -> None:
    """A relay links to the newest leader."""
    assert u.host is not None
    unlink(u, number)
    _change(u, number, link=u.host.number)
    for uid, box in list(u.boxes.items()):
        if box.relay == number:
            open_session(u, uid)


def unlink(u: Universe, number: int) -> None:
    """Its link ends. What was on its way to the leader is lost; the sidecars notice nothing."""
    before = u.relays[number].link
    _change(u, number, link=None)
    found = [box for box in u.boxes.values() if box.relay == number and box.link is not None]
    for box in found:
        u.boxes[box.pod] = box._replace(link=None, up=(), told=None, silent=False)
        sidecars.lose_sight(u, box.pod, before)
    leader = None if before is None else u.leaders.get(before)
    if leader is not None and found and not leader.frozen:
        u.leaders[leader.number] = leader._replace(
            lost_links=leader.lost_links.with_another(seconds(u.clock(leader))), dirty=True
        )


def open_session(u: Universe, uid: str) -> None:
    """The leader that the relay is linked to learns of this sidecar, and gets what the relay holds of it."""
    box = u.boxes[uid]
    assert box.relay is not None
    if invariants.is_lost(u, uid):
        u.ghost = u.ghost._replace(lost=u.ghost.lost | {uid})
    order = 0 if u.engine.searching else 1
    up = tuple(Up(order * (box.order + at), sent, body) for at, (body, sent) in enumerate(box.held, 1))
    number = u.relays[box.relay].link
    u.boxes[uid] = box._replace(link=number, up=up, order=box.order + order * len(up), told=None, heard_at=u.now)
    u.power["a relay gave a leader what it held"] += len(up)


def hang_up(u: Universe, number: int) -> None:
    """Every connection and every link to this controller ends."""
    for uid, box in list(u.boxes.items()):
        if box.link == number and box.relay is None:
            sidecars.cut(u, uid)
    for at, one in enumerate(u.relays):
        if one.link == number:
            unlink(u, at)


def _change(u: Universe, number: int, **update: Any) -> None:
    relays = list(u.relays)
    relays[number] = relays[number]._replace(**update)
    u.relays = tuple(relays)


def _toggle(u: Universe, _target: int) -> None:
    """The controllers are upgraded to replicas that relay, or back."""
    for uid in list(u.boxes):
        sidecars.cut(u, uid)
    u.relays = () if u.relays else (Relay(),) * RELAYS


def _unlink(u: Universe, target: int) -> None:
    if u.relays:
        unlink(u, target % len(u.relays))


def _restart(u: Universe, target: int) -> None:
    """It is gone with all that it holds, and another one starts."""
    if u.relays:
        unlink(u, target % len(u.relays))
        for uid, box in list(u.boxes.items()):
            if box.relay == target % len(u.relays):
                sidecars.cut(u, uid)


def _freeze(u: Universe, target: int) -> None:
    """The leader gives up its link. Its sidecars hang up, or go on when it thaws before."""
    if u.relays:
        unlink(u, target % len(u.relays))
        _change(u, target % len(u.relays), frozen=not u.relays[target % len(u.relays)].frozen)


FAULTS: Final[dict[str, Fault]] = {
    REPLICAS_RELAY: _toggle,
    "a relay loses its link": _unlink,
    "a relay restarts": _restart,
    "a relay freezes or thaws": _freeze,
}
